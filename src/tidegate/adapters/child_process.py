"""The end of a child process, in order and for certain."""

from __future__ import annotations

import asyncio


async def end(process: asyncio.subprocess.Process, *, grace_s: float) -> None:
    """Close its lifeline, SIGTERM, then SIGKILL after `grace_s`; returns when it is reaped, even if the caller is cancelled.

    The grace is no `asyncio.timeout`: in a task that is being cancelled, as an owner's last steps often are, Python before 3.11.4 lets that
    end in a cancellation instead of a `TimeoutError`.
    """
    if process.stdin is not None:
        process.stdin.close()
    reaped = asyncio.ensure_future(process.wait())
    try:
        if process.returncode is None:
            process.terminate()
            await asyncio.wait({reaped}, timeout=grace_s)
    finally:
        if process.returncode is None:
            process.kill()
        await reaped
