"""The suite can fail: straight to the misbehaving upstream, without a gateway to mend things, its cases do not hold."""

from __future__ import annotations

import asyncio

import pytest

from tidegate.conformance.cases import cases
from tidegate.conformance.events import read_events
from tidegate.conformance.observe import Target
from tidegate.conformance.run import Result, Settings, run_cases
from tidegate.testing import ThreadedUpstream

_CHOSEN = (
    "plain",
    "usage-cumulative",
    "malformed-event",
    "reset-before-headers-once",
    "hang-before-headers-once",
    "stall-3",
    "cut-3",
    "wrong-key",
)
_NO_KEY = "none"


def _ignore(result: Result) -> None:
    """Nobody watches."""


@pytest.fixture(scope="module")
def complaints() -> dict[str, str | None]:
    """What the suite says of a bare upstream, by case (asked as a chat stream)."""
    with ThreadedUpstream() as upstream:
        settings = Settings(Target(upstream.base_url, _NO_KEY), patience_s=0.5)
        results = asyncio.run(run_cases([case for case in cases() if case.name in _CHOSEN], settings, told=_ignore))
    return {result.case: result.complaint for result in results if result.way == "chat stream"}


def test_what_the_upstream_does_right_holds(complaints: dict[str, str | None]) -> None:
    """A plain answer needs no gateway."""
    assert complaints["plain"] is None


@pytest.mark.parametrize(
    ("case", "word"),
    [
        ("malformed-event", "not JSON"),
        ("reset-before-headers-once", "expected a complete answer"),
        ("hang-before-headers-once", "nothing more came"),
        ("stall-3", "nothing more came"),
        ("cut-3", "good HTTP order"),
        ("wrong-key", "expected status"),
    ],
)
def test_what_only_a_gateway_can_mend_does_not(complaints: dict[str, str | None], case: str, word: str) -> None:
    """The complaint names what is wrong."""
    complaint = complaints[case]
    assert complaint is not None
    assert word in complaint


def test_a_forged_done_is_a_complaint() -> None:
    """The reader sees a [DONE] wherever it stands, comments that dispatch, bytes that are no text, and what hangs over at the end."""
    reading = read_events(b": c\n\ndata: {}\r\n\r\ndata: \xff\n\ndata: [DONE]\n\ndata: half")
    assert reading.data == ("{}", "\ufffd", "[DONE]")
    assert (1, 1, True, b"data: half") == (reading.empty_dispatches, reading.comments, reading.undecodable, reading.rest)
    assert reading.ends_with_done
    assert reading.malformed == ["\ufffd"]
