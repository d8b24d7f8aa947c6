"""Makes a file that only its owner can read, for SQLite to open.

Invariant: a file that is there already is never opened here. POSIX takes all of a process's locks on a file away when the process closes
any descriptor of it, whoever opened that. A connection without its locks writes on, into a log that another process takes for abandoned
and deletes: what was committed would be lost.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

_OWNER_ONLY: Final = 0o600


def make_private(path: Path) -> None:
    """Make the file, or take it away from everybody but its owner. `OSError` when that cannot be. `-wal` and `-shm` files take the mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNER_ONLY))
    except FileExistsError:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            path.chmod(_OWNER_ONLY)
