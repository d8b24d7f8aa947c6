"""Asks a process that serves frames one thing, on a connection of its own. Invariant: all of it has one deadline, connecting too."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from tidegate.adapters.frames import question, take_answers

_READ_BYTES: Final = 262_144


async def ask(path: Path, kind: str, payload: bytes, *, deadline_s: float) -> bytes | None:
    """Give the answer; None when the process ended, or failed to serve it.

    `TimeoutError` after `deadline_s`, another `OSError` when nobody can be asked there, `ValueError` when what comes is no frame.
    """
    async with asyncio.timeout(deadline_s):
        reader, writer = await asyncio.open_unix_connection(path)
        try:
            writer.write(question(kind, 1, payload))
            received = bytearray()
            while more := await reader.read(_READ_BYTES):
                received += more
                for _, answer in take_answers(received):
                    return answer
        finally:
            writer.transport.abort()
    return None
