"""The ledger process: `python -m tidegate.node.ledger --socket PATH`.

One per node, shared by its workers through a Unix socket that only this user can open: what may be used of a limit, and what was spent.
It is started by the supervisor where either is needed, and ends with it. Where the books are is in the environment, for the address may
hold a password. After a crash it comes up with empty limits, and the workers tell it what is in use.
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
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import msgspec
import uvloop

from tidegate.adapters.books.spent_before import Budgets, SpentBefore, spent_before
from tidegate.adapters.counting.process import bind
from tidegate.adapters.engine import lifeline
from tidegate.adapters.frame_server import FrameServer, Serve
from tidegate.adapters.limits import frames
from tidegate.adapters.records.lines import LogFormat
from tidegate.adapters.wall_clock import wall_clock
from tidegate.domain.leases import LeaseBatch
from tidegate.errors import TidegateError
from tidegate.node.ledger_settings import BOOKS_VARIABLE, BUDGETS_VARIABLE
from tidegate.node.log import configure_logging
from tidegate.policy.metering.leases.ledger import LeaseLedger
from tidegate.policy.metering.leases.store_view import SETTLE_S

_EPOCHS = 1 << 28
_decode = msgspec.msgpack.Decoder(LeaseBatch).decode
_encode = msgspec.msgpack.Encoder().encode


def lease_ledger(*, clock: Callable[[], float], is_first: bool) -> LeaseLedger:
    """Make an empty ledger. `is_first`: no worker can have used anything before it."""
    now = clock()
    epoch = Random(os.urandom(8)).randrange(1, _EPOCHS)  # noqa: S311  a name, not a secret
    return LeaseLedger(epoch=epoch, now=now - SETTLE_S if is_first else now, epoch_s=wall_clock() - now)


def lease_answering(ledger: LeaseLedger, *, clock: Callable[[], float]) -> Serve:
    """Answer frames of the kind `lease`."""

    async def answer(payload: bytes) -> bytes:
        return _encode(ledger.exchange(_decode(payload), now=clock()))

    return answer


async def serve(path: str, *, books: str | None, budgets: str | None, clock: Callable[[], float] = time.monotonic) -> None:
    """Serve until standard input ends or SIGTERM comes."""
    loop = asyncio.get_running_loop()
    leaving = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, leaving.set)
    is_first = not _was_left(path)
    listener = bind(path)
    async with contextlib.AsyncExitStack() as stack:
        ledger = lease_ledger(clock=clock, is_first=is_first)
        kinds: dict[str, Serve] = {frames.LEASE: lease_answering(ledger, clock=clock)}
        if books is not None:
            if budgets is not None:
                await _begin_budgets(ledger, books, budgets, clock=clock)
            kinds |= await _open_desk(books, stack)
        server = FrameServer(listener, kinds)
        threading.Thread(target=_watch_parent, args=(loop, leaving), name="lifeline", daemon=True).start()
        sys.stdout.write(msgspec.json.encode({"listening": path}).decode() + "\n")
        sys.stdout.flush()
        await leaving.wait()
        server.close()
    _take_away(path)


async def _begin_budgets(ledger: LeaseLedger, books: str, budgets: str, *, clock: Callable[[], float]) -> None:
    """Let budgets go on from where the books say they stood. With the books away nobody can say: the process ends, and is tried again."""
    from tidegate.adapters.books.opening import open_books

    def read() -> list[SpentBefore]:
        with contextlib.closing(open_books(books)) as opened:
            return spent_before(opened, msgspec.json.decode(budgets, type=Budgets))

    for each in await asyncio.to_thread(read):
        ledger.begin_with(each.counter, each.spec, each.used, now=clock())


async def _open_desk(books: str, stack: contextlib.AsyncExitStack) -> Mapping[str, Serve]:
    """Serve the books too; they are imported only where they are kept."""
    from tidegate.adapters.books.desk import Desk
    from tidegate.adapters.books.frames import POST
    from tidegate.adapters.books.opening import open_books

    desk = Desk(lambda: open_books(books), clock=wall_clock)
    desk.start()
    stack.push_async_callback(desk.aclose)
    return {POST: desk.post}


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
