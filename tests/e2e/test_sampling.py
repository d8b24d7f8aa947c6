"""A running gateway beside a model server: its figures are in the tables, and belong to the requests of the same replica and second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tidegate.adapters.analytics.client import NearestAsker
from tidegate.adapters.analytics.opening import DIRECTORY, StoreSettings
from tidegate.analytics.asking import QueryRequest
from tidegate.domain.units import Secret
from tidegate.errors import StoreError
from tidegate.mock.settings import MockSettings
from tidegate.testing import EngineSettings, GatewayProcess, Script, ThreadedUpstream

ENOUGH_S = 40.0
SLOW_ENGINE = EngineSettings(prefill_tokens_per_s=2_000, decode_tokens_per_s=60, batch=2, kv_tokens=400)
"""Two at once, the others wait: what the samples are to show."""
ANSWER = Script(output_tokens=60, prompt_tokens=40)
"""Six of them take six seconds."""
JOINED = """
    SELECT count(), max(running), max(waiting), max(kv), max(ttft)
    FROM requests
    JOIN (
      SELECT replica, toStartOfSecond(at) AS second, maxIf(value, metric = 'vllm.requests_running') AS running,
        maxIf(value, metric = 'vllm.requests_waiting') AS waiting, maxIf(value, metric = 'vllm.kv_cache_ratio') AS kv,
        maxIf(value, metric = 'vllm.ttft_mean_s') AS ttft
      FROM samples WHERE source = 'vllm' GROUP BY replica, second
    ) AS sampled ON requests.replica = sampled.replica
    WHERE operation = 'chat' AND second BETWEEN toStartOfSecond(started_at) AND started_at + toIntervalMillisecond(1000 * duration_s)
"""


@pytest.fixture(scope="module")
def upstream() -> Iterator[ThreadedUpstream]:
    with ThreadedUpstream(models=("m",), settings=MockSettings(engine=SLOW_ENGINE, default=ANSWER)) as server:
        yield server


def configuration(upstream: ThreadedUpstream, **more: Any) -> dict[str, Any]:
    there = {"dialect": "vllm", "base_url": upstream.base_url, "models": ["m"], "health": {"enabled": False}}
    return {"upstreams": {"there": there}, "analytics": {"enabled": True}, **more}


def ask(gateway: GatewayProcess, sql: str) -> list[tuple[Any, ...]]:
    asker = NearestAsker(StoreSettings(str(gateway.state_directory / DIRECTORY), None, 30, 2**31))
    try:
        answer = asyncio.run(asker.ask(QueryRequest(sql)))
    except StoreError:
        return []
    return list(answer.rows)


def wait_for(gateway: GatewayProcess, sql: str, holds: Callable[[list[tuple[Any, ...]]], bool]) -> list[tuple[Any, ...]]:
    until = time.monotonic() + ENOUGH_S
    while not holds(rows := ask(gateway, sql)):
        assert time.monotonic() < until, (rows, gateway.log()[-3000:])
        time.sleep(0.2)
    return rows


def chat(gateway: GatewayProcess, key: Secret) -> None:
    body = {"model": "m", "max_tokens": 60, "messages": [{"role": "user", "content": "hello " * 20}]}
    with httpx.Client(trust_env=False, timeout=ENOUGH_S) as client:
        answer = client.post(f"{gateway.base_url}/chat/completions", json=body, headers={"authorization": f"Bearer {key.reveal()}"})
    assert answer.status_code == httpx.codes.OK


def test_samples_of_a_model_server_join_its_requests_by_replica_and_second(upstream: ThreadedUpstream) -> None:
    """While six requests share an engine for two, the samples of those seconds show a full batch and a queue."""
    with GatewayProcess(configuration(upstream)) as gateway:
        key = gateway.create_key()
        gateway.wait_for_key(key)
        wait_for(gateway, "SELECT count() FROM samples WHERE source = 'vllm'", lambda rows: bool(rows) and rows[0][0] > 0)
        with ThreadPoolExecutor(6) as pool:
            for sent in [pool.submit(chat, gateway, key) for _ in range(6)]:
                sent.result()
        [(_, running, waiting, kv, ttft)] = wait_for(gateway, JOINED, lambda rows: bool(rows) and rows[0][0] > 0 and rows[0][4] > 0)
        assert 2.0 == running
        assert waiting > 0
        assert 0 < kv <= 1
        assert ttft > 0
        twice = "SELECT max(n) FROM (SELECT count() AS n FROM samples WHERE metric = 'vllm.requests_running' GROUP BY toStartOfSecond(at))"
        assert [(1,)] == ask(gateway, twice)
        assert [("there/0", "")] == ask(gateway, "SELECT DISTINCT replica, device FROM samples")


@pytest.mark.soak
def test_a_model_server_without_figures_is_told_once_and_costs_nothing(upstream: ThreadedUpstream, tmp_path: Path) -> None:
    """Others are sampled all the same: here a file of dmon."""
    dmon, state = tmp_path / "dmon.txt", tmp_path / "state"
    state.mkdir()
    dmon.write_text("")
    settings = configuration(upstream, sampling={"gpu": "dmon", "dmon_file": str(dmon), "every_s": 0.5})
    settings["upstreams"]["gone"] = {"dialect": "vllm", "base_url": "http://127.0.0.1:9/v1", "health": {"enabled": False}}
    settings["sampling"]["gpus"] = {"0": "there/0"}
    with GatewayProcess(settings, state_directory=state) as gateway:
        until = time.monotonic() + ENOUGH_S
        while "sampling.source_failed vllm gone/0" not in gateway.log():
            assert time.monotonic() < until
            time.sleep(0.1)
        with dmon.open("a") as writer:
            writer.write("# gpu sm mem\n0 99 96\n")
        sql = "SELECT DISTINCT replica, device, value FROM samples WHERE metric = 'gpu.memory_bandwidth_ratio'"
        assert [("there/0", "0", 0.96)] == wait_for(gateway, sql, bool)
        assert 1 == gateway.log().count("sampling.source_failed")


@pytest.mark.soak
def test_the_local_engine_is_sampled_with_its_process(tmp_path: Path) -> None:
    """CPU, memory and queue of the process that the supervisor started."""
    pytest.importorskip("xllamacpp")
    settings = {"local_engine": {"enabled": True, "slots": 1, "context_tokens": 512}, "analytics": {"enabled": True}}
    with GatewayProcess(settings, state_directory=tmp_path, ready_deadline_s=50.0) as gateway:
        sql = "SELECT DISTINCT source, metric FROM samples WHERE replica = 'local/0' ORDER BY source, metric"
        expected = {"cpu.memory_bytes", "cpu.threads", "cpu.used_cores", "llamacpp.requests_running", "llamacpp.requests_waiting"}
        wait_for(gateway, sql, lambda rows: expected <= {metric for _, metric in rows})
