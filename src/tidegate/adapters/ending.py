"""Ends tasks for certain."""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN_S = 0.2
"""From one cancellation to the next."""


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel these tasks, as often as it takes, and wait until all are over; whoever cancels this waits as long.

    Once is not enough: until Python 3.12 `asyncio.wait_for`, by which redis-py sends, swallows a cancellation that comes in the turn in
    which what it waits for is done. What the tasks gave or raised is theirs to tell.
    """
    cancelled: asyncio.CancelledError | None = None
    while running := [task for task in tasks if not task.done()]:
        for task in running:
            task.cancel()
        try:
            await asyncio.wait(running, timeout=AGAIN_S)
        except asyncio.CancelledError as wish:
            cancelled = wish
    if cancelled is not None:
        raise cancelled
