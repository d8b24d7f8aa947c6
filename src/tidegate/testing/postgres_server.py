"""A real PostgreSQL server of this machine as a child process: on a free loopback port, in a temporary folder, without a password.

For tests of what several nodes keep there, and of what happens when it dies in the middle. The server refuses to run as root, so root
starts it as the user `postgres` or `nobody`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

_PLACES = ("/usr/lib/postgresql", "/usr/pgsql", "/usr/local/pgsql", "/opt/homebrew/opt/postgresql")
_UNPRIVILEGED = ("postgres", "nobody")
_USER = "tidegate"
_START_S = 20.0  # it takes some hundred milliseconds; this is for a machine in trouble
_STOP_S = 10.0
_POLL_S = 0.02
_MEMORY_LINE, _STATUS_LINE = 6, 7  # of `postmaster.pid`, from 0


class PostgresServer:
    """Use as a context manager. `kill` and `start` again is a crash and its recovery, on the same port, with what was committed."""

    def __init__(self) -> None:
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    @staticmethod
    def is_installed() -> bool:
        """Say whether this machine has the programs; tests without them are skipped."""
        return _programs() is not None and (os.geteuid() != 0 or _unprivileged() is not None)

    @property
    def url(self) -> str:
        """What `books.database` takes."""
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/postgres"

    @property
    def _lock(self) -> Path:
        """What the server says of itself, line by line."""
        assert self._directory is not None
        return Path(self._directory.name) / "kept" / "postmaster.pid"

    def start(self) -> None:
        """Start, and wait until it takes connections; the first time with an empty database."""
        assert self._process is None, "the server is running already"
        if self._directory is None:
            self._initialise()
        assert self._directory is not None
        self._process = self._spawn(
            "postgres", "-D", f"{self._directory.name}/kept", "-h", "127.0.0.1", "-p", str(self.port), "-k", "", "-c", "max_connections=20"
        )
        until = time.monotonic() + _START_S
        while self._process.poll() is None and time.monotonic() < until:
            if _lock_words(self._lock, _STATUS_LINE) == ["ready"] and _lock_words(self._lock, 0) == [str(self._process.pid)]:
                return
            time.sleep(_POLL_S)
        self.kill()
        raise AssertionError(f"PostgreSQL did not take connections within {_START_S:g} s, or could not have its port")

    def kill(self) -> None:
        """End it at once, as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait(_STOP_S)
            self._await_backends()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._clean_up()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._clean_up()

    def _initialise(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="tidegate-postgres-")
        user = _unprivileged() if os.geteuid() == 0 else None
        if user is not None:
            os.chown(self._directory.name, user.pw_uid, user.pw_gid)
        made = self._spawn("initdb", "-D", f"{self._directory.name}/kept", "-U", _USER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        assert made.wait(_START_S * 3) == 0, "initdb failed"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    def _await_backends(self) -> None:
        """Wait for the children of a killed server, which notice by themselves: it does not start beside them."""
        until = time.monotonic() + _STOP_S
        while _still_attached(self._lock) and time.monotonic() < until:
            time.sleep(_POLL_S)

    def _spawn(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        programs, user = _programs(), _unprivileged() if os.geteuid() == 0 else None
        assert programs is not None, "PostgreSQL is not installed"
        assert self._directory is not None
        return subprocess.Popen(  # noqa: S603  fixed command lines
            [str(programs / program), *arguments],
            cwd=self._directory.name,
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
            user=user.pw_uid if user is not None else None,
            group=user.pw_gid if user is not None else None,
            extra_groups=[] if user is not None else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _clean_up(self) -> None:
        self.kill()
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None


def _programs() -> Path | None:
    """Find the folder of the server's programs: on the path, or where packages put them, the newest version first."""
    found = shutil.which("initdb")
    if found is not None and shutil.which("postgres") is not None:
        return Path(found).resolve().parent
    candidates = [folder for place in _PLACES for folder in Path(place).parent.glob(f"{Path(place).name}*/**/bin")]
    usable = [folder for folder in candidates if (folder / "initdb").exists() and (folder / "postgres").exists()]
    return max(usable, key=_version, default=None)


def _version(folder: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in folder.parent.name.split(".") if part.isdigit())


def _unprivileged() -> pwd.struct_passwd | None:
    for name in _UNPRIVILEGED:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


def _still_attached(lock: Path) -> bool:
    """Say whether a process still uses the shared memory that the lock file names by key and id."""
    words = _lock_words(lock, _MEMORY_LINE)
    try:
        segments = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    except OSError:
        return False  # not Linux
    return any(fields[1] == words[-1] and fields[6] != "0" for fields in (line.split() for line in segments) if words)


def _lock_words(lock: Path, line: int) -> list[str]:
    try:
        return lock.read_text().splitlines()[line].split()
    except (OSError, IndexError):
        return []
