"""What the books cost: `python benchmarks/books.py [postgresql://…]`. A worker's `post`, and what the desk takes, over a real socket.

`post` is timed by the processor time of the worker, with the sending that it leads to, the acknowledgements that come meanwhile and the
turn of the loop itself, for turns of one, two and twenty entries; the desk by the time from the first entry to the last acknowledgement.
The SQLite file lies in the temporary folder.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import psutil
import uvloop

from tidegate.adapters.books.desk import Desk
from tidegate.adapters.books.journal import Journal
from tidegate.adapters.books.opening import open_books
from tidegate.adapters.books.spill import EntrySpillFile
from tidegate.adapters.frame_server import FrameServer
from tidegate.adapters.frames import POST
from tidegate.adapters.wall_clock import wall_clock
from tidegate.domain.books import Dimensions, Entry, Hold, OperationId, Settle
from tidegate.domain.units import TenantId
from tidegate.domain.usage import Evidence, Usage

ENTRIES = 100_000
FAR = 9_000_000_000.0


def entries(count: int, name: str) -> list[Entry]:
    """Make holds and the settlements that follow them some requests later."""
    made: list[Entry] = []
    by = Dimensions("key_0123456789", "user-17", "chat", "qwen3-32b", "qwen-*", "openrouter")
    for number in range(count // 2):
        tenant = TenantId(f"tenant-{number % 50}")
        made.append(Hold(OperationId(f"{name}.{number}"), 1, tenant, 5_000, 1.0, FAR))
        if number >= 100:
            before = OperationId(f"{name}.{number - 100}")
            made.append(
                Settle(before, 1, TenantId(f"tenant-{(number - 100) % 50}"), 3_000, 2.0, Evidence.REPORTED, "2026-01", Usage(900, 250), by)
            )
    return made


async def serve(path: str, database: str) -> None:
    desk = Desk(lambda: open_books(database), clock=wall_clock)
    desk.start()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    FrameServer(listener, {POST: desk.post})
    await asyncio.Event().wait()


def ledger_process(path: str, database: str) -> None:
    uvloop.run(serve(path, database))


async def post_all(path: str, spill: Path, made: list[Entry], per_turn: int) -> tuple[float, float]:
    """Give the processor seconds of posting and sending, and the seconds until all was acknowledged."""
    journal = Journal(path, spill=EntrySpillFile(spill), rng=Random(1), max_in_flight_bytes=10**9)  # noqa: S311  jitter
    journal.start()
    while not journal.statistics().connected:  # noqa: ASYNC110  it tells nobody
        await asyncio.sleep(0.01)
    posting = 0.0
    began = time.perf_counter()
    for start in range(0, len(made), per_turn):
        turn_began = time.process_time()
        for entry in made[start : start + per_turn]:
            journal.post(entry)
        await asyncio.sleep(0)  # the turn ends: what was posted is sent
        posting += time.process_time() - turn_began
    await journal.aclose(deadline_s=60.0)
    return posting, time.perf_counter() - began


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        database = sys.argv[1] if len(sys.argv) > 1 else str(directory / "books.sqlite")
        path = str(directory / "ledger.sock")
        ledger = multiprocessing.get_context("spawn").Process(target=ledger_process, args=(path, database), daemon=True)
        ledger.start()
        while not Path(path).exists():
            time.sleep(0.01)
        for per_turn in (1, 2, 20):
            name = f"{time.time_ns():x}"
            made = entries(ENTRIES if per_turn == 20 else ENTRIES // 5, name)
            before = sum(psutil.Process(ledger.pid).cpu_times()[:2])
            posting_s, whole_s = uvloop.run(post_all(path, directory / "spill", made, per_turn))
            desk_s = sum(psutil.Process(ledger.pid).cpu_times()[:2]) - before
            print(
                f"{per_turn:2} entries a turn: post {posting_s / len(made) * 1e6:.2f} us an entry, "
                f"acknowledged {len(made) / whole_s:,.0f} entries/s, "
                f"desk {desk_s / len(made) * 1e6:.0f} us of processor time an entry"
            )
        ledger.kill()


if __name__ == "__main__":
    main()
