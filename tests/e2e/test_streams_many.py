"""Two hundred streams at once, half of the clients killed at seeded points: nothing leaks and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import time
import urllib.parse
from dataclasses import dataclass

import httptools
import httpx

from tidegate.testing import Endpoint, GatewayProcess, ReceivedRequest, Script, ThreadedUpstream

STREAMS = 200
WORDS = 30
LAST_KILL = 20
"""Far enough from the end that a client on a busy machine is still in the middle."""
SCRIPT = Script(echo=True, first_token_s=0.4, per_token_s=0.06)
LEAVE_WITHIN_S = 0.25
LEVELS = ("tidegate_running_requests", "tidegate_permits", "tidegate_reservation_tokens", "tidegate_upstream_calls")
"""What is above zero while a request runs, and at zero when all are settled."""


@dataclass(frozen=True)
class Plan:
    """What one client does: `kill_after` events it leaves; None: it stays to the end; 0: it leaves before the first token."""

    number: int
    kill_after: int | None

    @property
    def prompt(self) -> str:
        return " ".join(f"{self.number}-{word}水🌊" for word in range(WORDS))

    @property
    def request(self) -> dict[str, object]:
        return {"model": "scripted", "stream": True, "messages": [{"role": "user", "content": self.prompt}]}


def plans() -> list[Plan]:
    chance = random.Random(20)
    return [Plan(number, None if number % 2 else chance.choice([0, 0, *range(1, LAST_KILL)])) for number in range(STREAMS)]


class Answer:
    """Takes a response apart; the client is written by hand so that it costs little and closes exactly when told."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.body = b""
        self.complete = False

    def on_body(self, piece: bytes) -> None:
        self.body += piece

    def on_message_complete(self) -> None:
        self.complete = True


async def play(endpoint: Endpoint, plan: Plan, upstream: ThreadedUpstream) -> tuple[bytes, float | None]:
    """Give what was received and, for one that was killed, when its connection was closed."""
    began = time.monotonic()
    address = urllib.parse.urlsplit(endpoint.base_url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    body = json.dumps(plan.request).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {address.netloc}\r\ncontent-length: {len(body)}\r\n"
    fields = "".join(f"{name}: {value}\r\n" for name, value in endpoint.headers.items())
    writer.write(f"{head}{fields}content-type: application/json\r\n\r\n".encode() + body)
    answer = Answer()
    came: list[tuple[float, int]] = []
    if plan.kill_after == 0:
        await asyncio.to_thread(upstream.wait_for, lambda: plan.prompt in calls(upstream), 5.0)
    while not answer.complete and (plan.kill_after is None or answer.body.count(b"data: ") < plan.kill_after):
        piece = await asyncio.wait_for(reader.read(65536), 10.0)
        assert piece, f"the connection of stream {plan.number} ended early"
        came.append((round(time.monotonic() - began, 3), len(piece)))
        answer.parser.feed_data(piece)
    writer.transport.abort()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    killed_at = time.monotonic()
    assert answer.complete == (plan.kill_after is None), came
    return answer.body, None if plan.kill_after is None else killed_at


def calls(upstream: ThreadedUpstream) -> dict[str, ReceivedRequest]:
    """Calls by their prompt."""
    return {str(each.json["messages"][0]["content"]): each for each in upstream.requests if each.path == "/v1/chat/completions"}


async def play_all(endpoint: Endpoint, todo: list[Plan], upstream: ThreadedUpstream) -> list[tuple[bytes, float | None]]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(play(endpoint, plan, upstream)) for plan in todo]
    return [task.result() for task in tasks]


def levels(page: str) -> dict[str, float]:
    """Give the value of each family of `LEVELS`, summed over its labels."""
    found = re.findall(rf"^({'|'.join(LEVELS)})(?:\{{[^}}]*\}})? (\S+)$", page, re.MULTILINE)
    return {name: sum(float(value) for family, value in found if family == name) for name in LEVELS if name in dict(found)}


def test_killed_clients_end_their_upstream_calls_and_the_rest_are_whole(
    through: Endpoint, gateway: GatewayProcess, upstream: ThreadedUpstream
) -> None:
    """The upstream sees killed clients go within 250 ms, survivors get a direct stream's bytes, every level returns to zero."""
    upstream.set_default(SCRIPT)
    todo = plans()
    results = asyncio.run(play_all(through, todo, upstream))
    seen = calls(upstream)
    killed = [(plan, at) for plan, (_, at) in zip(todo, results, strict=True) if at is not None]
    upstream.wait_for(lambda: all(seen[plan.prompt].client_left_at is not None for plan, _ in killed), 2.0)
    late = {plan: (seen[plan.prompt].client_left_at or 0.0) - at for plan, at in killed}
    assert len(killed) == STREAMS // 2
    latest = sorted(late.items(), key=lambda pair: pair[1])[-5:]
    assert latest[0][1] <= LEAVE_WITHIN_S, latest
    assert latest[-1][1] <= 4 * LEAVE_WITHIN_S, "a few whose turn came while the machine was busy"

    gateway.wait_for_metrics(lambda page: levels(page) == dict.fromkeys(LEVELS, 0.0), deadline_s=2.0)

    survivors = [plan for plan in todo if plan.kill_after is None]
    upstream.reset()
    upstream.set_default(Script(echo=True))
    direct = asyncio.run(play_all(upstream.endpoint, survivors, upstream))
    assert [body for body, _ in direct] == [body for plan, (body, _) in zip(todo, results, strict=True) if plan.kill_after is None]


def test_the_metrics_show_what_is_in_flight(through: Endpoint, gateway: GatewayProcess, upstream: ThreadedUpstream) -> None:
    """While a stream runs every level is above zero, so that zero afterwards means something."""
    upstream.set_default(Script(echo=True, per_token_s=0.05))
    plan = Plan(0, 3)

    async def main() -> None:
        client = httpx.AsyncClient(base_url=through.base_url, headers=through.headers, timeout=10.0)
        async with client, client.stream("POST", "/chat/completions", json=plan.request) as response:
            async for _ in response.aiter_raw():  # left alone, the iterator would close the response
                await asyncio.to_thread(
                    gateway.wait_for_metrics, lambda page: len(levels(page)) == len(LEVELS) and all(levels(page).values()), deadline_s=1.0
                )
                break

    asyncio.run(main())
    gateway.wait_for_metrics(lambda page: levels(page) == dict.fromkeys(LEVELS, 0.0), deadline_s=2.0)
