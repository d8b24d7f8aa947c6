"""What the supervisor knows of the ledger process: its figures while it answers, its silence when it does not."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import msgspec
import pytest

from tidegate.adapters.books.desk import DeskStatistics
from tidegate.adapters.frame_server import FrameServer
from tidegate.adapters.frames import STATUS
from tidegate.admin.view import BooksSnapshot, LedgerSnapshot
from tidegate.errors import InternalError
from tidegate.node.companion import Companion
from tidegate.node.ledger_link import LedgerLink, LedgerStatus
from tidegate.policy.metering.leases.ledger import LedgerStatistics

DEADLINE_S = 10.0
LEASES = LedgerStatistics(counters=3, workers=2, leased=500, expired=7)
DESK = DeskStatistics(posted=9, unchanged=1, refused=0, commits=4, expired=2, queued=5, trouble="the disk is full")
WAITS = (sys.executable, "-c", "import sys; sys.stdin.read()")


def _linked(path: Path, status: LedgerStatus | None) -> LedgerSnapshot:
    """Run a link to a process that says this, or fails to say anything; give its snapshot once it was asked."""
    asked = asyncio.Event()

    async def answer(_: bytes) -> bytes:
        asked.set()
        if status is None:
            raise InternalError("It fails.")
        return msgspec.msgpack.encode(status)

    async def run() -> LedgerSnapshot:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            server = FrameServer(listener, {STATUS: answer})
            link = LedgerLink(Companion("ledger", WAITS), path)
            assert LedgerSnapshot(running=False, restarts=0, responsive=False) == link.snapshot()
            running = asyncio.ensure_future(link.run())
            async with asyncio.timeout(DEADLINE_S):
                await asked.wait()
                while not (snapshot := link.snapshot()).running or snapshot.responsive is (status is None):  # noqa: ASYNC110  no event tells of it
                    await asyncio.sleep(0.01)
            running.cancel()
            await asyncio.wait([running])
            server.close()
            return snapshot

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("desk", "books"),
    [
        (None, None),
        (DESK, BooksSnapshot(trouble="the disk is full", queued=5, commits=4, committed=9, repeated=1, expired_holds=2)),
        (msgspec.structs.replace(DESK, trouble=None), BooksSnapshot(queued=5, commits=4, committed=9, repeated=1, expired_holds=2)),
    ],
)
def test_its_figures_are_shown(tmp_path: Path, desk: DeskStatistics | None, books: BooksSnapshot | None) -> None:
    """Of the leases always, of the books where there are some."""
    shown = _linked(tmp_path / "ledger.sock", LedgerStatus(LEASES, desk))
    assert LedgerSnapshot(True, 0, True, counters=3, leased_units=500, expired_units=7, books=books) == shown


def test_a_process_that_does_not_answer_is_not_up(tmp_path: Path) -> None:
    """It runs, and that is all that is known of it."""
    assert LedgerSnapshot(running=True, restarts=0, responsive=False) == _linked(tmp_path / "ledger.sock", None)
