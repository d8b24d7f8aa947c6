"""What every SQLite file of ours needs at its opening: its owner alone can read it, readers go on while one writes, a schema comes whole.

Invariant: a file that is there already is never opened here. POSIX takes all of a process's locks on a file away when the process closes
any descriptor of it, whoever opened that. A connection without its locks writes on, into a log that another process takes for abandoned
and deletes: what was committed would be lost.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tidegate.errors import ConfigurationError

_OWNER_ONLY: Final = 0o600
_RETRY_PAUSE_S: Final = 0.02  # between tries to become the one that turns WAL on


def make_private(path: Path) -> None:
    """Make the file, or take it away from everybody but its owner. `OSError` when that cannot be. `-wal` and `-shm` files take the mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNER_ONLY))
    except FileExistsError:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            path.chmod(_OWNER_ONLY)


def turn_wal_on(connection: sqlite3.Connection, path: Path, *, busy_timeout_s: float) -> None:
    """Switch to WAL once. SQLite does not wait by itself when two processes switch at the same time, so this does."""
    give_up_at = time.monotonic() + busy_timeout_s
    while True:
        try:
            if connection.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",):
                return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= give_up_at:
                raise
        else:
            raise ConfigurationError(
                f"The file system of {path} has no support for SQLite's write-ahead log; put `state_directory` on a local disk."
            )
        time.sleep(_RETRY_PAUSE_S)


def statements(script: str) -> Iterator[str]:
    """Split a script, so that it can run inside one transaction (`executescript` would commit first)."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
