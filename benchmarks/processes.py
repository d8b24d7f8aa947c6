"""Child processes of a measurement: started, asked, ended for certain; and what a family of processes costs."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from benchmarks.errors import BenchmarkError
from benchmarks.machine import pinned, search_path

ROOT = Path(__file__).resolve().parent.parent
_END_S = 10.0
_START_S = 60.0
"""LiteLLM needs some ten seconds of a core before it answers."""
_POLL_S = 0.05


@contextlib.contextmanager
def running(command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the context ends, with a PATH and `environment`; its output goes to `log`."""
    variables = {"PATH": search_path(), **(environment or {})}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=variables, cwd=ROOT, start_new_session=True
        )
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[Any], *, grace_s: float = _END_S) -> None:
    """SIGTERM, then SIGKILL; returns when it is gone. Its children are ended by it, or with it."""
    children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(grace_s)
    for child in psutil.wait_procs(children, timeout=1.0)[1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


@contextlib.contextmanager
def paused(pids: Iterable[int]) -> Iterator[None]:
    """Let these families of processes stand still (SIGSTOP) until the context ends: servers that idle still have timers and use caches."""
    still: list[psutil.Process] = []
    try:
        for pid in pids:
            with contextlib.suppress(psutil.NoSuchProcess):  # one that has failed is told where it is asked
                for process in family(pid):
                    process.suspend()
                    still.append(process)
        yield
    finally:
        for process in reversed(still):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


class LoadProcess:
    """A module of `benchmarks.load` as a process on given cores: one JSON line in, JSON lines out. Use as a context manager."""

    def __init__(self, module: str, cores: tuple[int, ...], task: Mapping[str, object], *, before: Sequence[str] = ()) -> None:
        """`before` is the beginning of its command line, such as `undisturbed()`."""
        command = (*before, *pinned(cores), sys.executable, "-m", f"benchmarks.load.{module}")
        self._module = module
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self.tell(task)

    def tell(self, words: object) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(words) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as problem:
            raise BenchmarkError(f"benchmarks.load.{self._module} ended too early; its own words are above.") from problem

    def hear(self) -> dict[str, Any]:
        """Wait for its next line. The modules themselves bound how long that takes."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BenchmarkError(f"benchmarks.load.{self._module} ended without an answer; its own words are above.")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        end(self._process)
        self._process.stdout.close()


@dataclass(frozen=True)
class CpuTimes:
    """CPU seconds used so far, by process id."""

    by_process: dict[int, float]

    def since(self, before: CpuTimes) -> tuple[float, float]:
        """Give seconds used meanwhile by the process that used most (it relays) and by all of the family."""
        used = [seconds - before.by_process.get(pid, 0.0) for pid, seconds in self.by_process.items()]
        return max(used), sum(used)


def family(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def cpu_times(pid: int) -> CpuTimes:
    times: dict[int, float] = {}
    for process in family(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            spent = process.cpu_times()
            times[process.pid] = spent.user + spent.system
    return CpuTimes(times)


def resident_mb(pid: int) -> tuple[float, float]:
    """Give the resident memory of the busiest process of a family, and of all of it, in MB (shared pages counted in each)."""
    sizes: list[tuple[float, float]] = []
    for process in family(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            spent = process.cpu_times()
            sizes.append((spent.user + spent.system, process.memory_info().rss / 1e6))
    return max(sizes)[1], sum(size for _, size in sizes)


def free_port() -> int:
    """Give a port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def post(port: int, path: str, headers: Mapping[str, str], body: bytes, *, deadline_s: float = 20.0) -> tuple[int, bytes]:
    """Send one request on a connection of its own; status 0 when nothing answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=deadline_s)
    try:
        connection.request("POST", path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


def wait_answering(port: int, path: str, headers: Mapping[str, str], body: bytes, *, name: str, log: Path | None = None) -> None:
    """Wait until a gateway gives its first good answer."""
    until = time.monotonic() + _START_S
    status, answer = post(port, path, headers, body)
    while status != http.HTTPStatus.OK:
        if time.monotonic() > until:
            said = log.read_text(errors="replace")[-800:] if log is not None else ""
            raise BenchmarkError(f"{name} on port {port} did not answer within {_START_S:.0f} s: status {status} {answer[:300]!r} {said}")
        time.sleep(_POLL_S)
        status, answer = post(port, path, headers, body)
