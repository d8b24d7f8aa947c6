"""The machine under the measurements: its cores and who gets which, its limits, and the versions of what runs on it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import resource
import shutil
import subprocess
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.errors import BenchmarkError

MIN_CORES_FOR_TWO_WORKERS = 3
"""With fewer, a second worker has only the core that makes the load."""


@dataclass(frozen=True)
class Cores:
    """Which cores a gateway gets, and which the load and the upstreams share."""

    gateway: tuple[int, ...]
    load: tuple[int, ...]


def usable_cores() -> tuple[int, ...]:
    return tuple(sorted(os.sched_getaffinity(0)))


def share_cores(cores: tuple[int, ...], *, gateway: int = 1) -> Cores:
    """Give the first cores to the gateway and the rest to the load; when too few are left, both share the last one."""
    return Cores(cores[:gateway], cores[gateway:] or cores[-1:])


def pinned(cores: tuple[int, ...]) -> tuple[str, ...]:
    """The beginning of a command line that runs on these cores only."""
    return ("taskset", "-c", ",".join(map(str, cores)))


@cache
def undisturbed() -> tuple[str, ...]:
    """The beginning of a command line that no ordinary program interrupts; empty where this user may not ask for that.

    For a load whose latencies are measured: what a stranger takes of its core would otherwise be counted as the gateway's.
    """
    first_in_line = ("chrt", "--fifo", "1")
    try:
        allowed = subprocess.run((*first_in_line, "true"), capture_output=True, check=False, timeout=10, env={"PATH": search_path()})
    except FileNotFoundError:
        return ()
    return first_in_line if allowed.returncode == 0 else ()


def require_tools(*names: str) -> None:
    """Refuse to start without the programs that the measurements run."""
    missing = [name for name in ("taskset", *names) if shutil.which(name, path=search_path()) is None]
    if missing:
        raise BenchmarkError(
            f"Not on the PATH: {', '.join(missing)}. The load and the comparison need nginx and wrk; on Debian and Ubuntu: "
            "apt-get install nginx-light wrk util-linux"
        )


def search_path() -> str:
    """The PATH, and where Debian keeps nginx, which an ordinary user's PATH may leave out."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def raise_file_limit() -> int:
    """Raise the limit of open files to what this user may have (children inherit it); give that limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


class Others:
    """How much of the machine programs outside this run take. Counts ours when they have ended, so look between measurements."""

    def __init__(self) -> None:
        self._began = self._look()

    def share(self) -> float:
        """Give the part (0..1) of all cores that went to others since the beginning; a tick more or less is nobody's."""
        elapsed_s, busy_s, own_s = (now - then for now, then in zip(self._look(), self._began, strict=True))
        return max(0.0, (busy_s - own_s) / (elapsed_s * (os.cpu_count() or 1)))

    @staticmethod
    def _look() -> tuple[float, float, float]:
        ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        idle = ticks[3] + ticks[4]
        usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        own_s = sum(each.ru_utime + each.ru_stime for each in usage)
        return time.monotonic(), (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK"), own_s


@dataclass(frozen=True)
class Description:
    """What the page says of the machine."""

    cpu: str
    cores: int
    memory_gb: float
    kernel: str
    versions: dict[str, str]


def describe() -> Description:
    cpu = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    packages = {name: importlib.metadata.version(name) for name in ("tidegate", "uvloop", "httptools", "msgspec")}
    versions = {"Python": platform.python_version(), **packages}
    versions["nginx"] = _version(("nginx", "-v"), r"nginx/([\d.]+)")
    versions["wrk"] = _version(("wrk", "-v"), r"wrk \S*?(\d[\w.+-]*)")
    return Description(
        cpu[1].strip() if cpu else platform.machine(), len(usable_cores()), round(memory, 1), platform.release().partition("-")[0], versions
    )


def _version(command: tuple[str, ...], pattern: str) -> str:
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10, env={"PATH": search_path()})
    found = re.search(pattern, answer.stdout + answer.stderr)
    return found[1] if found else "unknown"
