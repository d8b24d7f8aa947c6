"""Ties a child process to its parent: the child never outlives it, however the parent ends.

Two ropes: the kernel kills the child when the parent's thread dies (Linux), and standard input, whose other end only the parent
holds, reaches its end. Nothing is ever read from standard input for its content here.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
"""prctl(2)."""


def tie_to_parent() -> None:
    """Die with the parent, and leave Ctrl-C, which the terminal sends to the whole group, for the parent to decide on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def wait_for_parent_to_leave(stdin: int, *, every_s: float, tick: Callable[[], None]) -> None:
    """Return when `stdin` ends; call `tick` about every `every_s` seconds meanwhile."""
    poll = select.poll()
    poll.register(stdin, select.POLLIN | select.POLLHUP)
    while True:
        if poll.poll(every_s * 1000) and not os.read(stdin, 4096):
            return
        tick()
