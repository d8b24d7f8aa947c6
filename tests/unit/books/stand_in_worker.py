"""A worker that only posts: `python stand_in_worker.py SOCKET SPILL NAME HOW ENTRIES PER_TURN`.

HOW is `die` (SIGKILL itself in the turn after the last post), `spill` (likewise, but half of the entries are in the file before the others
are posted) or `close` (end in order). Says `posted N` before that; `progress` lines
tell how much was acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from random import Random

from tidegate.adapters.books.journal import Journal
from tidegate.adapters.books.spill import EntrySpillFile
from tidegate.domain.books import Hold, OperationId, Settle
from tidegate.domain.units import TenantId

FAR = 9_000_000_000.0


async def main(path: str, spill: str, name: str, how: str, entries: int, per_turn: int) -> None:
    file = EntrySpillFile(Path(spill))
    journal = Journal(path, spill=file, rng=Random(1))
    journal.start()
    tenant = TenantId("acme")
    for number in range(entries // 2):
        operation = OperationId(f"{name}-{number}")
        journal.post(Hold(operation, 1, tenant, 50, 1.0, FAR))
        journal.post(Settle(operation, 1, tenant, 30, 1.0))
        if number % per_turn == 0:
            await asyncio.sleep(0)
        if number % 500 == 0:
            print(f"progress {journal.statistics().posted}", flush=True)  # noqa: T201
            await asyncio.sleep(0.002)
        while how == "spill" and number == entries // 4 and (journal._fresh or journal._held or journal._file_turns):  # noqa: ASYNC110
            await asyncio.sleep(0.002)
    if how in ("die", "spill"):
        loop = asyncio.get_running_loop()
        loop.call_soon(print, f"posted {entries}")
        loop.call_soon(sys.stdout.flush)
        loop.call_soon(os.kill, os.getpid(), signal.SIGKILL)
        await asyncio.sleep(60)
    kept = await journal.aclose(deadline_s=20.0)
    print(f"posted {entries} kept {kept} {journal.statistics()}", flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), int(sys.argv[6])))
