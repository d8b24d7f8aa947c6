"""The supervisor's end of the ledger process: keeps it running, knows how it is, and has budgets that a reload adds begin where the books
say they stand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tidegate.adapters.books.desk import DeskStatistics
from tidegate.adapters.books.spent_before import Budgets
from tidegate.adapters.frame_client import ask
from tidegate.adapters.frames import BEGIN, STATUS
from tidegate.admin.view import BooksSnapshot, LedgerSnapshot
from tidegate.errors import InternalError
from tidegate.node.companion import Companion
from tidegate.policy.metering.leases.ledger import LedgerStatistics

DEADLINE_S: Final = 20.0
"""For the books to sum up a month, some seconds where it has millions of calls; nobody waits for a reload but who asked for it."""
STATUS_S: Final = 1.0
REFRESH_S: Final = 2.0
"""Age of its figures at most, while it answers."""


class LedgerStatus(msgspec.Struct, frozen=True):
    """The answer to a frame of the kind `status`."""

    leases: LedgerStatistics
    books: DeskStatistics | None = None
    """None where none are kept."""


_decode_status = msgspec.msgpack.Decoder(LedgerStatus).decode


class LedgerLink:
    """The ledger process of one node, from `run` until that is cancelled."""

    def __init__(self, companion: Companion, path: Path) -> None:
        """`path` is of the socket on which it is to answer."""
        self._companion = companion
        self._path = path
        self._status: LedgerStatus | None = None
        self._responsive = False

    def __repr__(self) -> str:
        return f"LedgerLink({self._companion!r})"

    def snapshot(self) -> LedgerSnapshot:
        companion, status = self._companion.statistics(), self._status
        responsive = companion.running and self._responsive
        if status is None:
            return LedgerSnapshot(running=companion.running, restarts=companion.restarts, responsive=responsive)
        return LedgerSnapshot(
            running=companion.running,
            restarts=companion.restarts,
            responsive=responsive,
            counters=status.leases.counters,
            leased_units=status.leases.leased,
            expired_units=status.leases.expired,
            books=None if status.books is None else _books_snapshot(status.books),
        )

    async def run(self) -> None:
        """Keep it running; ends only by cancellation, and then the process is gone."""
        asking = asyncio.ensure_future(self._refresh())
        try:
            await self._companion.run()
        finally:
            asking.cancel()

    def will_know(self, environment: Mapping[str, str]) -> None:
        """Tell the next one this instead of what this one was told."""
        self._companion.will_know(environment)

    def kill(self) -> None:
        """End the process at once; for a forced stop."""
        self._companion.kill()

    async def _refresh(self) -> None:
        while True:
            try:
                answer = await ask(self._path, STATUS, b"", deadline_s=STATUS_S)
                self._responsive = answer is not None
                if answer is not None:
                    self._status = _decode_status(answer)
            except (OSError, TimeoutError, ValueError):
                self._responsive = False
            await asyncio.sleep(REFRESH_S)


async def begin_budgets(socket_path: Path, budgets: Budgets, *, deadline_s: float = DEADLINE_S) -> None:
    """Have what was spent of these budgets charged. `InternalError` when it could not be, and then none of them may be used yet."""
    try:
        if await ask(socket_path, BEGIN, msgspec.json.encode(budgets), deadline_s=deadline_s) is not None:
            return
        reason = "the books could not be read; the lines above say why"
    except (OSError, TimeoutError, ValueError) as problem:
        reason = f"{problem}" or f"no answer within {deadline_s:g} s"
    names = ", ".join(rule.name for rule in budgets.rules)
    raise InternalError(f"The ledger process does not say what was spent of the new budgets ({names}): {reason}. Reload again.")


def _books_snapshot(desk: DeskStatistics) -> BooksSnapshot:
    return BooksSnapshot(
        trouble=desk.trouble or "",
        queued=desk.queued,
        commits=desk.commits,
        committed=desk.posted,
        repeated=desk.unchanged,
        expired_holds=desk.expired,
    )
