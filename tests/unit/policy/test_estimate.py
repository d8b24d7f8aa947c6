"""What is held for a request."""

from __future__ import annotations

import pytest

from tidegate.policy.metering.estimate import bound_is_enough, estimate, guess_tokens


@pytest.mark.parametrize(
    ("cap", "choices", "ceiling", "completion"),
    [
        (None, 1, None, 1024),
        (None, 2, None, 2048),
        (None, 1, 500, 400),
        (None, 1, 50, 1),
        (300, 1, 10_000, 300),
        (300, 4, 10_000, 1200),
        (50_000, 1, 10_000, 50_000),
    ],
)
def test_the_completion_is_the_cap_times_choices_or_a_clamped_default(
    cap: int | None, choices: int, ceiling: int | None, completion: int
) -> None:
    """A default is clamped to what the limit can give; an explicit cap is the client's own and is not."""
    assert completion == estimate(100, cap, choices, ceiling=ceiling).completion_tokens


@pytest.mark.parametrize(
    ("cap", "expected", "completion"),
    [
        (None, 300, 300),
        (None, 1000, 400),
        (300, 200, 200),
        (350, 420, 400),
        (400, 480, 400),
        (1000, 1200, 1000),
        (1000, 700, 700),
    ],
)
def test_what_is_expected_counts_more_than_the_cap(cap: int | None, expected: int, completion: int) -> None:
    """A margin above the cap is held where the limit has room for it, and never makes a request impossible that fits without."""
    assert completion == estimate(100, cap, 1, ceiling=500, expected=expected).completion_tokens


def test_the_total_is_prompt_and_completion() -> None:
    """Both sides of a call count."""
    assert estimate(100, 50, 2, ceiling=None).total == 200


def test_the_bound_serves_while_it_is_small_beside_what_is_left() -> None:
    """Near the limit an exact count is asked for."""
    assert bound_is_enough(1000, None)
    assert bound_is_enough(100, 800)
    assert not bound_is_enough(101, 800)


def test_a_guess_is_a_quarter_of_the_bytes_rounded_up() -> None:
    """Without a count, four bytes are taken for a token."""
    assert guess_tokens(10) == 3
