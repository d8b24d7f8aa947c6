"""The end in order, and the end without it (case R4): streams finish or hear why not, everything is settled and written down."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tidegate.testing import Endpoint, GatewayProcess, Script, ThreadedUpstream, stall_after

STREAMS = 50
MODELS = ("ends-soon", "never-ends")
DRAIN_S = 1.5


@pytest.fixture(scope="module")
def upstream() -> Iterator[ThreadedUpstream]:
    with ThreadedUpstream(models=MODELS) as server:
        server.scripts["ends-soon"] = Script(pieces=("a", "b", "c", "d"), per_token_s=0.2)
        server.scripts["never-ends"] = Script(pieces=("a", "b"), fault=stall_after(2))
        yield server


def configuration(upstream: ThreadedUpstream, *, workers: int = 2) -> dict[str, object]:
    return {
        "server": {"workers": workers, "drain_timeout_s": DRAIN_S},
        "upstreams": {"there": {"dialect": "openai", "base_url": upstream.base_url, "models": list(MODELS)}},
    }


def records(state_directory: Path) -> list[dict[str, Any]]:
    lines = [line for file in sorted((state_directory / "records").glob("*.jsonl")) for line in file.read_text().splitlines()]
    return [json.loads(line) for line in lines]


class Stream:
    """One client, on a connection of its own."""

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        self.text = ""
        self.model = model
        self.began = asyncio.Event()
        self.broken: httpx.TransportError | None = None
        self._endpoint = endpoint

    async def read(self) -> None:
        body = {"model": self.model, "stream": True, "messages": [{"role": "user", "content": "x"}]}
        try:
            async with (
                httpx.AsyncClient(timeout=20.0, trust_env=False) as client,
                client.stream("POST", f"{self._endpoint.base_url}/chat/completions", json=body, headers=self._endpoint.headers) as answer,
            ):
                assert answer.status_code == 200
                async for piece in answer.aiter_text():
                    self.text += piece
                    if '"content":"a"' in self.text:
                        self.began.set()
        except httpx.TransportError as problem:
            self.broken = problem


async def open_streams(endpoint: Endpoint, models: list[str]) -> tuple[list[Stream], list[asyncio.Task[None]]]:
    """Open streams that all have begun."""
    streams = [Stream(endpoint, model) for model in models]
    tasks = [asyncio.ensure_future(stream.read()) for stream in streams]
    async with asyncio.timeout(10.0):
        await asyncio.gather(*(stream.began.wait() for stream in streams))
    return streams, tasks


def test_fifty_streams_at_the_end_of_two_workers(tmp_path: Path, upstream: ThreadedUpstream) -> None:
    """Those that end within the drain time end well; the others get an error event and no `[DONE]`; each is settled and recorded."""
    process = GatewayProcess(configuration(upstream), state_directory=tmp_path)
    key = process.create_key()  # before the start, so that both workers know it
    with process:

        async def main() -> tuple[list[Stream], float]:
            endpoint = process.endpoint(key)
            stuck, stuck_tasks = await open_streams(endpoint, ["never-ends"] * (STREAMS // 2))
            soon, soon_tasks = await open_streams(endpoint, ["ends-soon"] * (STREAMS // 2))
            began_at = time.monotonic()
            stopping = asyncio.ensure_future(asyncio.to_thread(process.stop))
            await until_refused(endpoint, within_s=1.0)
            assert not any(task.done() for task in stuck_tasks), "the streams go on"
            await asyncio.gather(*soon_tasks, *stuck_tasks)
            await stopping
            return soon + stuck, time.monotonic() - began_at

        streams, took_s = asyncio.run(main())
    assert took_s < DRAIN_S + 3.0
    assert [stream.broken for stream in streams] == [None] * STREAMS
    for stream in streams[: STREAMS // 2]:
        assert stream.text.endswith("data: [DONE]\n\n")
    for stream in streams[STREAMS // 2 :]:
        error = json.loads(stream.text.rstrip().rpartition("data: ")[2])["error"]
        assert error["code"] == "shutting_down"
        assert "[DONE]" not in stream.text
    written = records(tmp_path)
    assert Counter(record["outcome"] for record in written if record["operation"] == "chat") == {
        "ok": STREAMS // 2,
        "failed_mid_stream": STREAMS // 2,
    }
    assert all(record["usage"]["completion_tokens"] > 0 for record in written if record["operation"] == "chat")
    assert not list(tmp_path.glob("*.sock")), "no socket is left behind"


async def until_refused(endpoint: Endpoint, *, within_s: float) -> None:
    """Wait until no connection is accepted, or none is called ready."""
    async with asyncio.timeout(within_s):
        while await accepts(endpoint):  # noqa: ASYNC110  another process has no event to wait for
            await asyncio.sleep(0.02)


async def accepts(endpoint: Endpoint) -> bool:
    """Say whether a new connection is taken and called ready."""
    try:
        async with httpx.AsyncClient(timeout=2.0, trust_env=False) as client:
            answer = await client.get(f"{endpoint.base_url.removesuffix('/v1')}/readyz")
    except httpx.TransportError:
        return False
    return answer.status_code == 200


def test_a_killed_worker_is_replaced(upstream: ThreadedUpstream) -> None:
    """Only its own streams break; its reservations are gone, what it lost is counted, and the next requests are served."""
    process = GatewayProcess(configuration(upstream))
    key = process.create_key()  # before the start, so that both workers know it
    with process:

        async def main() -> list[Stream]:
            endpoint = process.endpoint(key)
            streams, tasks = await open_streams(endpoint, ["never-ends"] * 20)
            await asyncio.to_thread(process.wait_for_metrics, lambda page: metric(page, "tidegate_permits") == 20, deadline_s=5.0)
            victim = busiest_worker(process)
            os.kill(victim, signal.SIGKILL)
            await asyncio.to_thread(
                process.wait_for_metrics, lambda page: metric(page, "tidegate_worker_restarts_total") == 1, deadline_s=5.0
            )
            page = await asyncio.to_thread(
                process.wait_for_metrics, lambda page: metric(page, 'tidegate_workers{phase="ready"}') == 2, deadline_s=5.0
            )
            async with asyncio.timeout(5.0):
                while len(going := [task for task in tasks if not task.done()]) > 20 - metric(page, "tidegate_requests_lost_total"):
                    await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
            broken = [stream for stream in streams if stream.broken is not None]
            assert 0 < len(broken) < 20, "the other worker's streams go on"
            assert metric(page, "tidegate_permits") == 20 - len(broken)
            assert metric(page, "tidegate_requests_lost_total") == len(broken)
            fresh, fresh_tasks = await open_streams(endpoint, ["ends-soon"] * 10)
            await asyncio.gather(*fresh_tasks)
            assert all(stream.text.endswith("data: [DONE]\n\n") for stream in fresh)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return fresh

        assert len(asyncio.run(main())) == 10
        process.wait_for_metrics(lambda page: metric(page, "tidegate_permits") == 0, deadline_s=5.0)


def busiest_worker(process: GatewayProcess) -> int:
    """Give the worker with the most client connections; the kernel spreads them, so each has some."""
    port = int(process.api_url.rpartition(":")[2])
    workers = [child for child in psutil.Process(process.pid).children() if "tidegate.node.worker" in " ".join(child.cmdline())]
    counts: dict[int, int] = {
        worker.pid: sum(1 for link in worker.net_connections(kind="tcp") if link.raddr and link.laddr.port == port) for worker in workers
    }
    assert min(counts.values()) > 0, counts
    return max(counts, key=lambda pid: counts[pid])


def metric(page: str, name: str) -> float:
    """Sum a metric's samples; a name with labels means that sample."""
    found = [line for line in page.splitlines() if line.startswith(name) and line[len(name)] in " {"]
    return sum(float(line.rpartition(" ")[2]) for line in found)


def test_a_second_signal_ends_at_once(upstream: ThreadedUpstream) -> None:
    """An operator who cannot wait sends SIGTERM again: running streams are cut, and the exit code says so."""
    settings = configuration(upstream) | {"server": {"workers": 2, "drain_timeout_s": 60.0}}
    process = GatewayProcess(settings)
    key = process.create_key()  # before the start, so that both workers know it
    with process:

        async def main() -> float:
            streams, tasks = await open_streams(process.endpoint(key), ["never-ends"] * 4)
            os.kill(process.pid, signal.SIGTERM)
            await until_refused(process.endpoint(key), within_s=5.0)
            at = time.monotonic()
            os.kill(process.pid, signal.SIGTERM)
            async with asyncio.timeout(10.0):
                await asyncio.gather(*tasks)
            assert all(stream.broken is not None for stream in streams)
            return time.monotonic() - at

        assert asyncio.run(main()) < 2.0
        with pytest.raises(AssertionError, match="exit code 1"):
            process.stop()
        assert "node.stopped interrupted=4" in process.log()
        assert "is started again" not in process.log()


@pytest.mark.soak
def test_the_local_engine_finishes_what_it_says(tmp_path: Path) -> None:
    """At SIGTERM the engine outlives the workers: a stream from it ends well, and then nothing is left."""
    settings: dict[str, object] = {
        "server": {"workers": 2, "drain_timeout_s": 8.0},
        "local_engine": {"enabled": True, "slots": 2, "context_tokens": 512},
    }
    process = GatewayProcess(settings, state_directory=tmp_path, ready_deadline_s=50.0)
    key = process.create_key()  # before the start, so that both workers know it
    with process:

        async def main() -> str:
            body = {"model": "smollm2-135m-instruct", "stream": True, "max_tokens": 40, "messages": [{"role": "user", "content": "Hi"}]}
            text = ""
            endpoint = process.endpoint(key)
            async with (
                httpx.AsyncClient(timeout=30.0, trust_env=False) as client,
                client.stream("POST", f"{endpoint.base_url}/chat/completions", json=body, headers=endpoint.headers) as answer,
            ):
                stopping: asyncio.Future[None] | None = None
                async for piece in answer.aiter_text():
                    text += piece
                    if stopping is None:
                        stopping = asyncio.ensure_future(asyncio.to_thread(process.stop))
            assert stopping is not None
            await stopping
            return text

        assert asyncio.run(main()).endswith("data: [DONE]\n\n")
    (record,) = [each for each in records(tmp_path) if each["operation"] == "chat"]
    assert record["outcome"] in {"ok", "truncated"}
    assert record["evidence"] == "reported"
