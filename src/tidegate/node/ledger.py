"""The ledger process: `python -m tidegate.node.ledger --socket PATH`.

One per node, shared by its workers through a Unix socket that only this user can open: what may be used of a limit, and what was spent.
It is started by the supervisor where either is needed, and ends with it. Where the books are is in the environment, for the address may
hold a password. After a crash it comes up with empty limits, and the workers tell it what is in use. What workers spent that are no more,
the books tell.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random

import msgspec
import uvloop

from tidegate.adapters.books.desk import Desk
from tidegate.adapters.books.spent_before import Budgets, SpentBefore, spent_before, spent_since
from tidegate.adapters.counting.process import bind
from tidegate.adapters.engine import lifeline
from tidegate.adapters.frame_server import FrameServer, Serve
from tidegate.adapters.frames import BEGIN, LEASE, POST, STATUS
from tidegate.adapters.records.lines import LogFormat
from tidegate.adapters.wall_clock import wall_clock
from tidegate.domain.leases import LeaseBatch
from tidegate.errors import TidegateError
from tidegate.node.ledger_link import LedgerStatus
from tidegate.node.ledger_settings import BOOKS_VARIABLE, BUDGETS_VARIABLE
from tidegate.node.log import configure_logging
from tidegate.policy.metering.leases.ledger import LeaseLedger
from tidegate.policy.metering.leases.store_view import SETTLE_S

ASK_BOOKS_S = SETTLE_S - 0.25
"""Since the start; every worker gives a sign of life twice a second."""
_EPOCHS = 1 << 28
_decode = msgspec.msgpack.Decoder(LeaseBatch).decode
_encode = msgspec.msgpack.Encoder().encode


def lease_ledger(*, clock: Callable[[], float], is_first: bool) -> LeaseLedger:
    """Make an empty ledger. `is_first`: no worker can have used anything before it."""
    now = clock()
    epoch = Random(os.urandom(8)).randrange(1, _EPOCHS)  # noqa: S311  a name, not a secret
    return LeaseLedger(epoch=epoch, now=now - SETTLE_S if is_first else now, epoch_s=wall_clock() - now)


class LeaseDesk:
    """Answers frames of the kind `lease`. Of what was spent before, it charges what no worker tells of.

    Whoever lives has told after a while; then, and before anybody leases, the books say what the others spent. They are asked that late so
    that they have what those left in files.
    """

    def __init__(
        self, ledger: LeaseLedger, *, clock: Callable[[], float], of_workers: Callable[[], Awaitable[Sequence[SpentBefore]]] | None
    ) -> None:
        """`of_workers` asks the books what every worker spent; None where none can be gone."""
        self._ledger = ledger
        self._clock = clock
        self._of_workers = of_workers
        self._alive: set[str] = set()
        """Who was heard of until the books were asked."""
        self._asking = asyncio.Lock()

    def __repr__(self) -> str:
        return f"LeaseDesk({self._ledger!r}, is_settled={self._of_workers is None})"

    async def answer(self, payload: bytes) -> bytes:
        batch = _decode(payload)
        if self._of_workers is not None:
            self._alive.add(batch.worker)
            if self._ledger.age_s(now=self._clock()) >= ASK_BOOKS_S:
                await self._charge_for_the_gone()
        return _encode(self._ledger.exchange(batch, now=self._clock()))

    async def _charge_for_the_gone(self) -> None:
        async with self._asking:
            if self._of_workers is None:
                return  # somebody else has
            spent = await self._of_workers()
            self._of_workers = None
            begin(self._ledger, [each for each in spent if each.worker not in self._alive], now=self._clock())


def begin(ledger: LeaseLedger, spent: Sequence[SpentBefore], *, now: float) -> None:
    """Charge what was spent before."""
    for each in spent:
        ledger.begin_with(each.counter, each.spec, each.used, now=now)


async def serve(path: str, *, books: str | None, budgets: str | None, clock: Callable[[], float] = time.monotonic) -> None:
    """Serve until standard input ends or SIGTERM comes."""
    loop = asyncio.get_running_loop()
    leaving = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, leaving.set)
    is_first = not _was_left(path)
    listener = bind(path)
    async with contextlib.AsyncExitStack() as stack:
        ledger = lease_ledger(clock=clock, is_first=is_first)
        of_workers = desk = None
        if books is not None and budgets is not None:
            begin(ledger, await _ask(spent_before, books, budgets), now=clock())  # with the books away, the process ends and is tried again
            if not is_first:
                of_workers = partial(_ask, spent_since, books, budgets)
        kinds: dict[str, Serve] = {LEASE: LeaseDesk(ledger, clock=clock, of_workers=of_workers).answer}
        if books is not None:
            kinds[BEGIN] = partial(_begin_added, ledger, books, clock)
        if books is not None:
            desk = _open_desk(books, stack)
            kinds[POST] = desk.post

        async def status(_: bytes) -> bytes:
            return _encode(LedgerStatus(ledger.statistics(), None if desk is None else desk.statistics()))

        kinds[STATUS] = status
        server = FrameServer(listener, kinds)
        threading.Thread(target=_watch_parent, args=(loop, leaving), name="lifeline", daemon=True).start()
        sys.stdout.write(msgspec.json.encode({"listening": path}).decode() + "\n")
        sys.stdout.flush()
        await leaving.wait()
        server.close()
    _take_away(path)


async def _begin_added(ledger: LeaseLedger, books: str, clock: Callable[[], float], payload: bytes) -> bytes:
    """Charge what was spent of budgets that a reload adds, before any worker leases of them; one that comes back goes on where it was."""
    spent = await _ask(spent_before, books, payload)
    begin(ledger, [each for each in spent if not ledger.has_counter(each.counter, each.spec)], now=clock())
    return b""


async def _ask(question: Callable[..., list[SpentBefore]], books: str, budgets: str | bytes) -> list[SpentBefore]:
    """Ask the books where budgets stand, in a thread."""
    from tidegate.adapters.books.opening import open_books

    def read() -> list[SpentBefore]:
        with contextlib.closing(open_books(books)) as opened:
            return question(opened, msgspec.json.decode(budgets, type=Budgets), now=wall_clock())

    return await asyncio.to_thread(read)


def _open_desk(books: str, stack: contextlib.AsyncExitStack) -> Desk:
    """Serve the books too; their database is imported only where they are kept."""
    from tidegate.adapters.books.opening import open_books

    desk = Desk(lambda: open_books(books), clock=wall_clock)
    desk.start()
    stack.push_async_callback(desk.aclose)
    return desk


def _was_left(path: str) -> bool:
    """Tell whether another one crashed here: one that ends in order takes its socket away, after all workers ended."""
    return Path(path).exists()


def _take_away(path: str) -> None:
    Path(path).unlink(missing_ok=True)


def _watch_parent(loop: asyncio.AbstractEventLoop, leaving: asyncio.Event) -> None:
    lifeline.wait_for_parent_to_leave(sys.stdin.fileno(), every_s=60.0, tick=lambda: None)
    loop.call_soon_threadsafe(leaving.set)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parser = argparse.ArgumentParser(prog="tidegate-ledger", description="Keeps the limits and the books of one node's workers.")
    parser.add_argument("--socket", required=True, help="path of the Unix socket to serve on")
    parser.add_argument("--log-format", default=LogFormat.LOGFMT, choices=[str(each) for each in LogFormat])
    arguments = parser.parse_args()
    configure_logging(LogFormat(arguments.log_format))
    books, budgets = os.environ.get(BOOKS_VARIABLE), os.environ.get(BUDGETS_VARIABLE)
    try:
        uvloop.run(serve(arguments.socket, books=books, budgets=budgets))
    except TidegateError as error:
        sys.exit(f"ledger.not_started {error.message}")


if __name__ == "__main__":
    main()
