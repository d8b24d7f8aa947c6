"""A ledger process that only keeps books: `python stand_in_ledger.py SOCKET DATABASE`. Says `listening` when it serves."""

from __future__ import annotations

import asyncio
import socket
import sys

from tidegate.adapters.books.desk import Desk
from tidegate.adapters.books.opening import open_books
from tidegate.adapters.frame_server import FrameServer
from tidegate.adapters.frames import POST
from tidegate.adapters.wall_clock import wall_clock


async def main(path: str, database: str) -> None:
    desk = Desk(lambda: open_books(database), clock=wall_clock, sweep_s=0.05)
    desk.start()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    FrameServer(listener, {POST: desk.post})
    print("listening", flush=True)  # noqa: T201
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
