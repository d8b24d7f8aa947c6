"""The little arithmetic that the vocabulary has."""

from __future__ import annotations

from hashlib import sha256

import pytest

from tidegate.domain.units import Secret
from tidegate.domain.upstream import Clock, Timeouts
from tidegate.domain.usage import Usage

CLOCKS = Timeouts(connect_s=1.0, first_byte_s=2.0, first_token_s=3.0, stall_s=4.0, total_s=5.0)


@pytest.mark.parametrize(("clock", "expected_s"), list(zip(Clock, (1.0, 2.0, 3.0, 4.0, 5.0), strict=True)))
def test_each_clock_has_its_time(clock: Clock, expected_s: float) -> None:
    """The five are told apart by name."""
    assert expected_s == CLOCKS.of(clock)


def test_a_secret_shows_nothing_and_is_compared_by_value() -> None:
    """Not in `repr`, not in an f-string; equal values are equal keys."""
    secret = Secret("hush")
    assert "hush" not in f"{secret!r} {secret}"
    assert secret.reveal() == "hush"
    assert {secret} == {Secret("hush")}
    assert secret != "hush"
    assert not Secret("")


def test_a_secret_is_known_again_by_its_digest() -> None:
    """Which is that of its text, the same each time; a lone surrogate is text like any other."""
    secret = Secret("hush")
    assert [sha256(b"hush").digest()] * 2 == [secret.digest(), secret.digest()]
    assert sha256(b"\xed\xa0\x80").digest() == Secret("\ud800").digest()


def test_the_total_is_prompt_and_completion() -> None:
    """Cached and reasoning tokens are parts of these, not more."""
    assert Usage(prompt_tokens=3, completion_tokens=4, cached_tokens=2, reasoning_tokens=1).total_tokens == 7
