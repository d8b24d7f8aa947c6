"""The recorder process of a running gateway: stopped, killed, or without its store, it costs no request anything and loses no record."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import httpx
import psutil
import pytest
from tests.e2e.test_shared_limits import configuration

from tidegate.adapters.analytics.client import NearestAsker
from tidegate.adapters.analytics.opening import DIRECTORY, StoreSettings
from tidegate.analytics.asking import QueryRequest
from tidegate.bench.fleet import ClientFleet
from tidegate.bench.load_options import Load, LoadOptions
from tidegate.bench.plan import Scenario, Target
from tidegate.bench.planning import make_plan
from tidegate.bench.sample import End, Sample
from tidegate.domain.units import Secret
from tidegate.errors import StoreError
from tidegate.testing import GatewayProcess, ThreadedUpstream
from tidegate.testing.clickhouse_server import ClickHouseServer

BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture(scope="module")
def upstream() -> Iterator[ThreadedUpstream]:
    with ThreadedUpstream(models=("m",)) as server:
        yield server


@pytest.fixture
def settings_of(upstream: ThreadedUpstream) -> dict[str, Any]:
    return {**configuration(upstream, 2), "analytics": {"enabled": True}}


def recorders(gateway: GatewayProcess) -> list[psutil.Process]:
    children = psutil.Process(gateway.pid).children(recursive=True)
    return [child for child in children if "tidegate.node.recorder" in " ".join(child.cmdline())]


def recorder(gateway: GatewayProcess) -> psutil.Process:
    """Give the one that runs, as soon as one does."""
    until = time.monotonic() + 20.0
    while not (running := recorders(gateway)):
        assert time.monotonic() < until
        time.sleep(0.02)
    return running[0]


def ask(gateway: GatewayProcess, sql: str) -> list[tuple[Any, ...]]:
    """Ask as a command would; no rows while nobody can be asked."""
    asker = NearestAsker(StoreSettings(str(gateway.state_directory / DIRECTORY), None, 30, 2**31))
    try:
        return list(asyncio.run(asker.ask(QueryRequest(sql))).rows)
    except StoreError:
        return []


def chat(gateway: GatewayProcess, key: Secret, count: int) -> list[float]:
    """Send requests one after the other; give how long each took, in seconds."""
    took = []
    headers = {"authorization": f"Bearer {key.reveal()}", "x-business-context": "feature=code; user_tier=vip"}
    with httpx.Client(trust_env=False, headers=headers) as client:
        for _ in range(count):
            began = time.monotonic()
            answer = client.post(f"{gateway.base_url}/chat/completions", json=BODY)
            took.append(time.monotonic() - began)
            assert answer.status_code == httpx.codes.OK
    return took


@contextmanager
def running(settings: dict[str, Any], state: Path | None = None) -> Iterator[tuple[GatewayProcess, Secret]]:
    """Start a gateway with a key that all of its workers know."""
    gateway = GatewayProcess(settings, state_directory=state)
    key = gateway.create_key()
    with gateway:
        yield gateway, key


def wait_for_rows(gateway: GatewayProcess, count: int, *, deadline_s: float = 30.0) -> None:
    """Wait until the tables have that many requests, and see that each is there once, and no more come."""
    sql = "SELECT count(), countDistinct(request_id) FROM requests WHERE operation = 'chat'"
    until = time.monotonic() + deadline_s
    while (given := ask(gateway, sql)) != [(count, count)]:
        assert time.monotonic() < until, (given, gateway.log()[-3000:])
        time.sleep(0.1)


def test_records_can_be_asked_while_the_gateway_runs_and_after(settings_of: dict[str, Any], tmp_path: Path) -> None:
    """The process answers while it runs; afterwards the tables are opened by whoever asks."""
    with running(settings_of, tmp_path) as (gateway, key):
        chat(gateway, key, 10)
        wait_for_rows(gateway, 10)
        [row] = ask(gateway, "SELECT any(feature), any(tenant), sum(attempts) FROM requests WHERE operation = 'chat'")
        assert ("code", "test", 10) == row
    assert not recorders_left(tmp_path)
    wait_for_rows(gateway, 10)


def recorders_left(state: Path) -> list[int]:
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if str(state) in " ".join(process.info["cmdline"] or ()) and "tidegate.node.recorder" in " ".join(process.info["cmdline"] or ())
    ]


@pytest.mark.soak
def test_killed_at_random_moments_it_has_every_record_once(settings_of: dict[str, Any]) -> None:
    """`kill -9` again and again, while requests come in: before, between and after what it writes."""
    rng = Random(6)
    with running(settings_of) as (gateway, key):
        with ThreadPoolExecutor(1) as pool:
            sending = [pool.submit(chat, gateway, key, 60) for _ in range(5)]
            for _ in range(5):
                process = recorder(gateway)
                time.sleep(rng.uniform(0.3, 1.6))
                process.send_signal(signal.SIGKILL)
                process.wait(5.0)
            assert 300 == sum(len(each.result()) for each in sending)
        wait_for_rows(gateway, 300)
        assert "recorder.exited was ended by SIGKILL" in gateway.log()


def test_stopped_it_costs_nothing_and_goes_on(settings_of: dict[str, Any]) -> None:
    """Nobody waits for a process that is stopped, and its backlog is in the tables soon after it goes on."""
    with running(settings_of) as (gateway, key):
        chat(gateway, key, 5)
        wait_for_rows(gateway, 5)
        process = recorder(gateway)
        process.send_signal(signal.SIGSTOP)
        chat(gateway, key, 200)
        process.send_signal(signal.SIGCONT)
        wait_for_rows(gateway, 205)
        assert process.pid == recorder(gateway).pid


@pytest.mark.soak
def test_a_gateway_that_dies_takes_a_stopped_one_with_it(settings_of: dict[str, Any], tmp_path: Path) -> None:
    """Otherwise nobody could open the tables any more."""
    with running(settings_of, tmp_path) as (gateway, _):
        process = recorder(gateway)
        process.send_signal(signal.SIGSTOP)
        os.kill(gateway.pid, signal.SIGKILL)
        process.wait(10.0)
        gateway.kill()


@pytest.mark.soak
def test_a_directory_that_cannot_be_written_is_told_and_the_gateway_serves(settings_of: dict[str, Any], tmp_path: Path) -> None:
    """A file stands where the tables belong; once it is gone, the records are put in."""
    (tmp_path / DIRECTORY).write_text("in the way")
    with running(settings_of, tmp_path) as (gateway, key):
        chat(gateway, key, 3)
        until = time.monotonic() + 20.0
        while "recorder.waiting" not in gateway.log():
            assert time.monotonic() < until
            time.sleep(0.05)
        (tmp_path / DIRECTORY).unlink()
        until = time.monotonic() + 30.0
        while "recorder.resumed" not in gateway.log():
            assert time.monotonic() < until, gateway.log()[-2000:]
            time.sleep(0.05)
        assert 3 <= ask_files(tmp_path)


def ask_files(state: Path) -> int:
    return sum(len(path.read_bytes().splitlines()) for path in (state / "records").glob("requests-*.jsonl"))


@pytest.mark.soak
def test_a_clickhouse_that_comes_and_goes_has_every_record_once(settings_of: dict[str, Any]) -> None:
    """Away at the start, failing after it kept rows, killed, and back: the gateway serves, and every record is there once."""
    with ClickHouseServer() as server:
        url = server.url
        server.kill()
        with running({**settings_of, "analytics": {"enabled": True, "clickhouse": url}}) as (gateway, key):
            chat(gateway, key, 20)
            server.start()
            chat(gateway, key, 20)
            server.misbehave("fail_after", times=2)
            chat(gateway, key, 20)
            until = time.monotonic() + 40.0
            while (given := counted(server)) != [[60, 60]]:
                assert time.monotonic() < until, (given, gateway.log()[-3000:])
                time.sleep(0.2)


def counted(server: ClickHouseServer) -> list[list[Any]]:
    try:
        return server.ask("SELECT count(), countDistinct(request_id) FROM requests WHERE operation = 'chat'")
    except AssertionError:
        return []  # no tables yet


def loaded(gateway: GatewayProcess, key: Secret, seconds: float) -> list[float]:
    """Ask 500 times a second, evenly, from a process of its own; give how long each answer took from when it was due, in seconds."""
    hello = Scenario("hello", texts=("How high is the tide today?",))
    plan = make_plan(LoadOptions(load=Load.CONSTANT, rate_per_s=500.0, length_s=seconds, mix=((hello, 1.0),)))

    async def carry_out() -> list[Sample]:
        target = Target(gateway.base_url, "m", key.reveal(), stream=False)
        async with ClientFleet(target, plan, {hello.name: hello}) as fleet:
            return [sample async for batch in fleet.samples() for sample in batch]

    samples = asyncio.run(carry_out())
    assert {End.COMPLETE} == {sample.end for sample in samples}
    return [sample.ended_at - sample.due_at for sample in samples]


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_a_minute_without_it_at_500_requests_a_second(settings_of: dict[str, Any]) -> None:
    """Stopped for 60 s at full rate: p99 is no longer than it was, and afterwards every record is there exactly once."""
    with running(settings_of) as (gateway, key):
        loaded(gateway, key, 5.0)  # starts what starts at first use
        before = loaded(gateway, key, 20.0)
        process = recorder(gateway)
        process.send_signal(signal.SIGSTOP)
        during = loaded(gateway, key, 60.0)
        process.send_signal(signal.SIGCONT)
        after = loaded(gateway, key, 20.0)
        wait_for_rows(gateway, 2_500 + len(before) + len(during) + len(after), deadline_s=120.0)
        p99 = {name: statistics.quantiles(took, n=100)[-1] for name, took in (("before", before), ("during", during), ("after", after))}
        print({name: round(1000 * value, 2) for name, value in p99.items()})  # noqa: T201  the figures of a soak
        assert p99["during"] <= 1.2 * p99["before"]
