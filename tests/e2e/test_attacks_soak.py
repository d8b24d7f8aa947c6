"""Long attacks: run with `make soak`. Nothing may leak, and every request must be accounted for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import urllib.parse
from collections.abc import Iterator

import psutil
import pytest

from tidegate.testing import Fault, FaultKind, GatewayProcess, Script, Split, ThreadedUpstream, UsagePlace
from tidegate.testing.raw_http import raw_client

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

CHAT = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}]}
LEVELS = r"^tidegate_(?:running_requests|permits|reservation_tokens|upstream_calls)(?:\{[^}]*\})? (\S+)$"
ROUNDS = 4
CLIENTS = 200
REQUESTS = 20_000
ABOUT_AS_BEFORE_BYTES = 8 << 20


@pytest.fixture(scope="module")
def hardened(upstream_server: ThreadedUpstream) -> Iterator[GatewayProcess]:
    """A gateway of its own: these tests make its upstreams fail."""
    timeouts = {"connect_s": 2.0, "first_byte_s": 1.0, "first_token_s": 1.0, "stall_s": 1.0, "total_s": 5.0}
    same = {"dialect": "openai", "base_url": upstream_server.base_url, "api_key": "sk-upstream-canary", "timeouts": timeouts}
    upstreams = {name: {**same, "models": [name]} for name in ("scripted", "second")}
    with GatewayProcess({"upstreams": upstreams, "limits": {"tokens_per_minute": 1_000_000_000}}) as process:
        yield process


def port_of(gateway: GatewayProcess) -> int:
    port = urllib.parse.urlsplit(gateway.api_url).port
    assert port is not None
    return port


def post(key: str, body: dict[str, object]) -> bytes:
    content = json.dumps(body).encode()
    return (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-length: {len(content)}\r\n\r\n".encode()
        + content
    )


def all_levels_are_zero(page: str) -> bool:
    return {0.0} == {float(value) for value in re.findall(LEVELS, page, re.MULTILINE)}


def a_script(chance: random.Random) -> Script:
    """Anything that an upstream may do, one half of the time without a fault."""
    faults: list[FaultKind | None] = [*FaultKind, *[None] * len(FaultKind)]
    fault = chance.choice(faults)
    return Script(
        echo=True,
        headers_s=chance.choice([0.0, 0.0, 0.3]),
        first_token_s=chance.choice([0.0, 0.0, 0.2]),
        per_token_s=chance.choice([0.0, 0.01, 0.03]),
        status=chance.choice([200] * 8 + [400, 401, 404, 429, 500, 502, 503]),
        fault=None if fault is None else Fault(fault, chance.randrange(12)),
        newline=chance.choice(["\n", "\r\n", "\r"]),
        usage=chance.choice(list(UsagePlace)),
        split=chance.choice([None, None, Split(every=chance.randrange(1, 50))]),
    )


async def play(port: int, key: str, number: int, chance: random.Random) -> bytes:
    """Ask, perhaps with half a request, and perhaps leave early; give what came."""
    words = f"<{number}> " * 30
    request = post(
        key,
        {"model": chance.choice(["scripted", "second"]), "stream": chance.random() < 0.7, "messages": [{"role": "user", "content": words}]},
    )
    received = b""
    async with raw_client(port) as client:
        client.send(request if chance.random() > 0.1 else request[: chance.randrange(len(request))])
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(chance.choice([0.001, 0.01, 0.1, 0.3, 0.8, 7.0])):
                while piece := await client.reader.read(65_536):
                    received += piece
        client.reset()
    return received


def test_chaos_leaves_nothing_behind(hardened: GatewayProcess, upstream: ThreadedUpstream) -> None:
    """Clients killed at random, upstreams failing at random: levels return to zero, no answer is mixed, no fault of ours is logged."""
    chance = random.Random(5)
    keys = [hardened.create_key(name=name, tenant=name) for name in ("a", "b", "c", "d")]
    for key in keys:
        hardened.wait_for_key(key)

    async def a_round(first: int) -> list[bytes]:
        numbers = range(first, first + CLIENTS)
        return await asyncio.gather(*(play(port_of(hardened), chance.choice(keys).reveal(), number, chance) for number in numbers))

    for first in range(0, ROUNDS * CLIENTS, CLIENTS):
        upstream.script(*(a_script(chance) for _ in range(CLIENTS)))
        for number, received in enumerate(asyncio.run(a_round(first)), first):
            assert set(re.findall(rb"<(\d+)>", received)) <= {str(number).encode()}

    hardened.wait_for_metrics(all_levels_are_zero, deadline_s=15.0)
    assert "crashed" not in hardened.log()
    assert "exception=" not in hardened.log()


def test_twenty_thousand_requests_leave_the_worker_as_it_was(hardened: GatewayProcess, upstream: ThreadedUpstream) -> None:
    """Memory and open files after the second half are what they were after the first; ten thousand invented models add no series."""
    upstream.reset()
    key = hardened.create_key(name="steady")
    hardened.wait_for_key(key)
    (worker,) = [each for each in psutil.Process(hardened.pid).children(recursive=True) if "tidegate.node.worker" in each.cmdline()]

    async def ask(first: int, count: int) -> None:
        async with raw_client(port_of(hardened)) as client:
            for number in range(first, first + count):
                model = f"invented-{number}" if number % 2 else "scripted"
                client.send(post(key.reveal(), {**CHAT, "model": model}))
                assert (await client.read_response()).status in (200, 404, 429, 503)

    asyncio.run(ask(0, REQUESTS // 2))
    memory, files, series = worker.memory_info().rss, worker.num_fds(), hardened.metrics().count("\n")
    asyncio.run(ask(REQUESTS // 2, REQUESTS // 2))

    assert worker.memory_info().rss < memory + ABOUT_AS_BEFORE_BYTES
    assert worker.num_fds() <= files + 2
    assert hardened.metrics().count("\n") == series
    hardened.wait_for_metrics(all_levels_are_zero, deadline_s=5.0)
