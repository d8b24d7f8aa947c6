"""A real `redis-server` of this machine as a child process: on a free loopback port, with nothing kept on disk.

For tests of what is shared between nodes, and of what happens when that store dies, freezes, or comes back empty.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from types import TracebackType
from typing import Self

_COMMAND = "redis-server"
_START_S = 10.0  # it takes some ten milliseconds; this is for a machine in trouble
_STOP_S = 5.0
_POLL_S = 0.01
_TRIES = 5  # a free port may be taken by somebody else before the server has it


class RedisServer:
    """Use as a context manager. `kill` and `start` again is a restart without memory, on the same port."""

    def __init__(self, *, password: str | None = None) -> None:
        self.port = 0
        self._password = password
        self._process: subprocess.Popen[bytes] | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    @staticmethod
    def is_installed() -> bool:
        """Say whether this machine has the program; tests without it are skipped."""
        return shutil.which(_COMMAND) is not None

    @property
    def url(self) -> str:
        """What `shared.redis_url` takes."""
        user = f":{self._password}@" if self._password is not None else ""
        return f"redis://{user}127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def start(self) -> None:
        """Start, empty, and wait until it answers."""
        assert self._process is None, "the server is running already"
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="tidegate-redis-")
        for _ in range(_TRIES if self.port == 0 else 1):
            port = self.port or _free_port()
            self._process = self._launch(port)
            if self._answers(port):
                self.port = port
                return
            self.kill()
        raise AssertionError(f"{_COMMAND} did not answer within {_START_S:g} s, or could not have its port")

    def kill(self) -> None:
        """End it at once, as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(_STOP_S)

    def freeze(self) -> None:
        """Stop it: connections stay open and are even accepted, and nothing is answered."""
        assert self._process is not None, "the server is not running"
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None, "the server is not running"
        self._process.send_signal(signal.SIGCONT)

    def command(self, *words: str) -> bytes:
        """Send one command and give the beginning of its raw answer, for a look into the store."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=_STOP_S) as connection:
            if self._password is not None:
                connection.sendall(_encode("AUTH", self._password))
                connection.recv(65_536)
            connection.sendall(_encode(*words))
            return connection.recv(65_536)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._clean_up()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._clean_up()

    def _clean_up(self) -> None:
        self.kill()
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    def _launch(self, port: int) -> subprocess.Popen[bytes]:
        assert self._directory is not None
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", self._directory.name]
        if self._password is not None:
            options += ["--requirepass", self._password]
        return subprocess.Popen(  # noqa: S603  a fixed command line
            [shutil.which(_COMMAND) or _COMMAND, *options, "--daemonize", "no"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _answers(self, port: int) -> bool:
        assert self._process is not None
        until = time.monotonic() + _START_S
        while self._process.poll() is None and time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
                connection.sendall(_encode("PING"))
                if connection.recv(64).startswith((b"+PONG", b"-NOAUTH")):
                    return True
            time.sleep(_POLL_S)
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _encode(*words: str) -> bytes:
    parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
    return f"*{len(words)}\r\n{''.join(parts)}".encode()
