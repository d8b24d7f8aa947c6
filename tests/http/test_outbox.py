"""When what connections write is sent: together at a turn's end, or at once where turns are quiet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from tidegate.http.outbox import FULL, QUIET, READS_AT_ONCE, Outbox, Sender


class Turns:
    """A loop whose turns end when the test says so."""

    def __init__(self) -> None:
        self.ends: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.ends.append(callback)

    def end(self) -> int:
        """End the turn; give how many callbacks it had."""
        ends, self.ends = self.ends, []
        for each in ends:
            each()
        return len(ends)


class Peer(Sender):
    """Notes when it is sent to."""

    def __init__(self, sent: list[Peer]) -> None:
        self.sent = sent

    def flush(self) -> None:
        self.sent.append(self)


class Bench:
    """An outbox, its loop, and what was sent."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.sent: list[Peer] = []
        self.outbox = Outbox(cast("asyncio.AbstractEventLoop", self.turns))

    def read(self, writes: int = 1) -> int:
        """Read once, which writes to so many connections; give how many were sent to at its end."""
        before = len(self.sent)
        self.outbox.begin_read()
        for _ in range(writes):
            self.outbox.add(Peer(self.sent))
        assert len(self.sent) == before, "never from inside a call"
        self.outbox.end_read()
        return len(self.sent) - before


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_turn_sends_at_its_end_in_order(bench: Bench) -> None:
    """Whatever was added, once each, by one callback."""
    peers = [Peer(bench.sent) for _ in range(5)]
    for peer in peers:
        bench.outbox.add(peer)
    assert 1 == bench.turns.end()
    assert peers == bench.sent


def test_after_a_quiet_turn_reads_send_at_their_own_end(bench: Bench) -> None:
    """Without a callback; every so often one turn is looked at again."""
    assert 0 == bench.read(QUIET)
    assert 1 == bench.turns.end()
    assert [1] * READS_AT_ONCE == [bench.read() for _ in range(READS_AT_ONCE)]
    assert 0 == bench.turns.end()
    assert 0 == bench.read()
    assert 1 == bench.turns.end()
    assert 1 == bench.read()


def test_turns_with_much_to_send_are_kept_together(bench: Bench) -> None:
    """As long as they are, and from the first that is looked at."""
    for _ in range(3):
        assert [0] * (QUIET + 1) == [bench.read() for _ in range(QUIET + 1)]
        assert 1 == bench.turns.end()
    assert 0 == bench.read()


def test_what_is_added_outside_a_read_waits_for_the_turns_end(bench: Bench) -> None:
    """Nobody would send it otherwise; a read that comes before sends it along."""
    bench.read()
    bench.turns.end()
    bench.outbox.add(Peer(bench.sent))
    assert 1 == bench.turns.end()
    bench.outbox.add(Peer(bench.sent))
    assert 2 == bench.read()
    assert 1 == bench.turns.end()
    assert 4 == len(bench.sent)


def test_a_full_outbox_is_sent_at_the_end_of_a_read_and_is_not_quiet(bench: Bench) -> None:
    """What follows in the turn is few, and yet the turn was not."""
    assert FULL == bench.read(FULL)
    assert 0 == bench.read()
    assert 1 == bench.turns.end()
    assert FULL + 1 == len(bench.sent)
    assert 0 == bench.read()
