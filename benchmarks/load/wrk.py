"""Runs wrk: as many requests as a gateway takes on a number of connections, every prompt different."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.content import Body
from benchmarks.errors import BenchmarkError
from benchmarks.machine import pinned, search_path

_SCRIPT = """
local threads = 0
function setup(thread)
  thread:set("serial", threads * 100000000)
  threads = threads + 1
end
function init(args)
  local function content(path) local file = io.open(path, "rb"); local text = file:read("*a"); file:close(); return text end
  before, after = content(args[1]), content(args[2])
  serial = serial + tonumber(args[3])
end
function request()
  serial = serial + 1
  return before .. string.format("%010d", serial) .. after
end
function done(summary, latency, requests)
  local errors = summary.errors
  local wrong = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  local p50_ms, p99_ms = latency:percentile(50) / 1e3, latency:percentile(99) / 1e3
  local form = '\\n{"requests":%d,"seconds":%f,"wrong":%d,"p50_ms":%f,"p99_ms":%f}\\n'
  io.write(string.format(form, summary.requests, summary.duration / 1e6, wrong, p50_ms, p99_ms))
end
"""


@dataclass(frozen=True)
class WrkResult:
    requests: int
    seconds: float
    wrong: int
    """Connections that failed, and answers that were not 2xx."""
    p50_ms: float
    p99_ms: float


class Wrk:
    """wrk with its script, for one request to one port; the files lie in `directory`."""

    def __init__(self, directory: Path, name: str, *, port: int, head: bytes, body: Body, cores: tuple[int, ...], threads: int = 1) -> None:
        self._files = [directory / f"{name}-{part}" for part in ("before", "after", "script.lua")]
        for file, content in zip(self._files, (head + body.before, body.after, _SCRIPT.encode()), strict=True):
            file.write_bytes(content)
        self._url = f"http://127.0.0.1:{port}/"
        self._cores = cores
        self._threads = threads
        self._serial = 0

    def run(self, seconds: float, *, connections: int) -> WrkResult:
        """Load the gateway for whole seconds."""
        before, after, script = map(str, self._files)
        self._serial += 3_000_000  # more than any run sends, so that no prompt comes twice
        load = ("wrk", f"-t{self._threads}", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", "10s", "-s", script)
        command = (*pinned(self._cores), *load, self._url, "--", before, after, str(self._serial))
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 30, env={"PATH": search_path()})
        if ran.returncode:
            raise BenchmarkError(f"wrk failed: {ran.stdout[-300:]} {ran.stderr[-300:]}")
        return WrkResult(**json.loads(ran.stdout.rstrip().rsplit("\n", 1)[1]))
