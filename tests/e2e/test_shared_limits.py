"""Limits that worker processes share: whoever answers, the limit is one."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator

import httpx
import psutil
import pytest

from tidegate.domain.principal import Limits
from tidegate.domain.units import Secret
from tidegate.testing import GatewayProcess, RedisServer, ThreadedUpstream

ENOUGH_S = 20.0
"""For what comes by itself, on a busy machine."""
IN_A_ROW = 40
"""New connections go to any worker: of four, one is missed by so many once in a hundred thousand times."""
QUESTION = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hello"}]}
needs_redis = pytest.mark.skipif(not RedisServer.is_installed(), reason="redis-server is not installed: apt-get install redis-server")


@pytest.fixture(scope="module")
def upstream() -> Iterator[ThreadedUpstream]:
    with ThreadedUpstream(models=("m",)) as server:
        yield server


def configuration(upstream: ThreadedUpstream, workers: int, **limits: object) -> dict[str, object]:
    there = {"dialect": "openai", "base_url": upstream.base_url, "models": ["m"], "health": {"enabled": False}}
    return {"upstreams": {"there": there}, "server": {"workers": workers, "drain_timeout_s": 2.0}, "limits": limits}


def at_once(gateway: GatewayProcess, key: Secret, calls: int) -> Counter[int]:
    """Send so many calls at the same time, each on a connection of its own so that all workers get some; give the statuses."""

    async def call(client: httpx.AsyncClient) -> int:
        headers = {"authorization": f"Bearer {key.reveal()}", "connection": "close"}
        return (await client.post(f"{gateway.base_url}/chat/completions", json=QUESTION, headers=headers)).status_code

    async def all_of_them() -> list[int]:
        limits = httpx.Limits(max_connections=calls, max_keepalive_connections=0)
        async with httpx.AsyncClient(timeout=ENOUGH_S, limits=limits) as client:
            return await asyncio.gather(*(call(client) for _ in range(calls)))

    return Counter(asyncio.run(all_of_them()))


def prepared(gateway: GatewayProcess, limits: Limits) -> Secret:
    """Make a key that every worker knows, without using any of its limits: whoever knows the probe, which is younger, knows the key."""
    key = gateway.create_key(limits=limits)
    probe = gateway.create_key(name="probe")
    deadline = time.monotonic() + ENOUGH_S
    known = 0
    while known < IN_A_ROW:
        answer = httpx.get(f"{gateway.base_url}/models", headers={"authorization": f"Bearer {probe.reveal()}", "connection": "close"})
        known = known + 1 if answer.status_code == 200 else 0
        assert time.monotonic() < deadline
    while limits_words(gateway) not in (None, "shared"):  # a store that came up empty settles
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return key


def limits_words(gateway: GatewayProcess) -> str | None:
    words: str | None = httpx.get(f"{gateway.admin_url}/readyz").json().get("limits")
    return words


@pytest.mark.parametrize(
    ("workers", "store"),
    [
        pytest.param(1, None, marks=pytest.mark.soak),
        (4, None),
        pytest.param(1, "redis", marks=[needs_redis, pytest.mark.soak]),
        pytest.param(4, "redis", marks=needs_redis),
    ],
)
def test_ten_of_two_hundred(upstream: ThreadedUpstream, workers: int, store: str | None) -> None:
    """200 concurrent calls at a limit worth 10: exactly 10 are answered, on one worker and on four, whoever keeps the limit."""
    with RedisServer() if store else ThreadedUpstream(models=("unused",)) as server:
        limits = {"store": server.url} if isinstance(server, RedisServer) else {}
        with GatewayProcess(configuration(upstream, workers, **limits)) as gateway:
            key = prepared(gateway, Limits(requests_per_minute=10))
            assert {200: 10, 429: 190} == at_once(gateway, key, 200)


def test_a_place_that_was_freed_is_there_for_the_next_request(upstream: ThreadedUpstream) -> None:
    """One request after the other, each to any worker: the only place is always free, whoever had it last."""
    with GatewayProcess(configuration(upstream, 2)) as gateway:
        key = prepared(gateway, Limits(concurrency=1))
        assert {200: IN_A_ROW} == sum((at_once(gateway, key, 1) for _ in range(IN_A_ROW)), Counter())


def test_nobody_is_refused_while_all_of_many_limits_have_enough(upstream: ThreadedUpstream) -> None:
    """Each request needs a part of six limits at once, and while one is waited for, others use the parts of the rest."""
    rules = [
        {"name": "requests", "scope": {"tenant": "each"}, "of": "requests", "ceiling": 1_000_000},
        {"name": "places", "scope": {"tenant": "each"}, "of": "concurrency", "ceiling": 100},
        {"name": "input", "of": "input_tokens", "ceiling": 10_000_000},
        {"name": "output", "of": "output_tokens", "ceiling": 10_000_000},
        {"name": "tenant", "scope": {"tenant": "each"}, "ceiling": 1_000_000_000, "per": "day"},
    ]
    with GatewayProcess(configuration(upstream, 2, rules=rules)) as gateway:
        key = prepared(gateway, Limits(tokens_per_minute=1_000_000_000))
        assert {200: 400} == sum((at_once(gateway, key, 8) for _ in range(50)), Counter())


def test_a_killed_ledger_process_is_replaced_and_told(upstream: ThreadedUpstream) -> None:
    """kill -9: the next one comes by itself, the workers tell it what is in use, and readiness shows all of it."""
    with GatewayProcess(configuration(upstream, 2)) as gateway:
        key = prepared(gateway, Limits(requests_per_minute=20))
        assert {200: 12} == at_once(gateway, key, 12)
        [ledger] = [each for each in psutil.Process(gateway.pid).children() if "tidegate.node.ledger" in " ".join(each.cmdline())]
        os.kill(ledger.pid, signal.SIGKILL)

        deadline = time.monotonic() + ENOUGH_S
        seen: set[str] = set()
        while not seen or limits_words(gateway) != "shared":
            seen |= {str(limits_words(gateway))} - {"shared"}
            assert time.monotonic() < deadline
            time.sleep(0.05)
        answered = 0
        while answered < 8:  # a piece that one worker had leased may come back after another asked for it
            assert time.monotonic() < deadline
            answered += at_once(gateway, key, 40)[200]
        assert 8 == answered
        assert {429: 20} == at_once(gateway, key, 20)
