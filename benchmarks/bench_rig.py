"""What the measurements of `tidegate bench` share: a scripted upstream on a core of its own, and a fleet of one client on another."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.machine import Others, pinned, raise_file_limit, require_tools, share_cores, usable_cores
from benchmarks.processes import free_port, running, wait_answering
from tidegate.bench.fleet import ClientFleet
from tidegate.bench.plan import Plan, PlannedRequest, Scenario, Stage, Target
from tidegate.bench.sample import ClientHealth, Sample

CORES = share_cores(usable_cores())
"""The client has the first core; the upstream and the parent have the rest."""
WORDS = Scenario("words", texts=("The tide comes in and the tide goes out, and the gate counts every wave that passes. " * 12,))
QUIET_SHARE = 0.05
ASK = b'{"model":"scripted","messages":[{"role":"user","content":"Ready?"}]}'


@dataclass(frozen=True)
class Upstream:
    """A scripted upstream in a process of its own."""

    port: int
    pid: int

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def follow(self, script: Mapping[str, object]) -> None:
        """Follow this script from now on, and forget the requests so far."""
        self._call("PUT", "/mock/script", json.dumps(script).encode())
        self._call("DELETE", "/mock/requests")

    def stop_for(self, seconds: float) -> None:
        """Let the whole process stand still, as a long pause of its memory or its machine would."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def requests(self, limit: int) -> list[dict[str, Any]]:
        """Give what it kept of its last requests to the model."""
        kept: Any = self._call("GET", f"/mock/requests?limit={limit}")
        entries: list[dict[str, Any]] = kept["requests"] if isinstance(kept, dict) else kept
        return [entry for entry in entries if entry["path"].startswith("/v1/")]

    def _call(self, method: str, path: str, body: bytes | None = None) -> object:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=body, method=method)
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310  ours
            text = answer.read()
        return json.loads(text) if text else None


@contextmanager
def scripted_upstream() -> Iterator[Upstream]:
    """Run one on the cores of the load."""
    require_tools()
    raise_file_limit()
    port = free_port()
    with TemporaryDirectory() as folder:
        log = Path(folder) / "mock.log"
        command = (*pinned(CORES.load[-1:]), sys.executable, "-m", "tidegate.cli.main", "mock", "--port", str(port), "--quiet")
        with running(command, log=log) as process:
            headers = {"content-type": "application/json"}
            wait_answering(port, "/v1/chat/completions", headers, ASK, name="The scripted upstream", log=log)
            yield Upstream(port, process.pid)


def judged(measure: Callable[[Upstream], Coroutine[object, object, int]]) -> int:
    """Measure with an upstream, and say how much of the machine others took meanwhile: a neighbour on a core is latency to both sides."""
    others = Others()
    with scripted_upstream() as upstream:
        status = asyncio.run(measure(upstream))
    share = others.share()
    print(f"others took {share:.0%} of the machine" + ("; that is too much to judge by" if share > QUIET_SHARE else ""))
    return status


@asynccontextmanager
async def client_on_its_core(target: Target, plan: Plan) -> AsyncIterator[ClientFleet]:
    """Start one client on its core, and leave that core to it."""
    os.sched_setaffinity(0, set(CORES.gateway))
    try:
        fleet = await ClientFleet(target, plan, {WORDS.name: WORDS}).__aenter__()
    finally:
        os.sched_setaffinity(0, set(CORES.load))
    async with fleet:
        yield fleet


async def carry_out(target: Target, plan: Plan) -> tuple[list[Sample], ClientHealth]:
    """Run a plan; give its samples and how the client was."""
    samples: list[Sample] = []
    async with client_on_its_core(target, plan) as fleet:
        async for batch in fleet.samples():
            samples += batch
        return samples, fleet.reports[0].health


def constant(rate_per_s: float, length_s: float, *, tokens: int | None = None) -> Plan:
    """Make an open plan of equal distances."""
    count = round(rate_per_s * length_s)
    requests = tuple(
        PlannedRequest(number, number / rate_per_s, 0, WORDS.name, number, prompt_tokens=64, completion_tokens=tokens)
        for number in range(count)
    )
    return Plan(1, f"constant, {rate_per_s:g}/s", requests, (Stage("all", 0.0, length_s, rate_per_s),), length_s)


def closed(concurrency: int, length_s: float, *, at_most: int) -> Plan:
    """Make a closed plan."""
    requests = tuple(PlannedRequest(number, 0.0, 0, WORDS.name, number, prompt_tokens=64) for number in range(at_most))
    stages = (Stage("all", 0.0, length_s, concurrency=concurrency),)
    return Plan(1, f"{concurrency} at once", requests, stages, length_s, concurrency)
