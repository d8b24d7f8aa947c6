"""Measure counting: `python -m benchmarks.counting`. Prints what one long count does to everything beside it, and counts a second.

* Prompts of a million tokens are sent to a running gateway's counting endpoints, one after another, while one client asks for `/livez`,
  one has streams of small chunks relayed and one asks for short counts. For each: how long it took (health, short counts), and how much
  later than the upstream's own pause a chunk came (streams).
* One core counts chat requests of 2, 4 and 6 messages whose messages were counted before: the client's side of counting, in the worker.
"""

from __future__ import annotations

import asyncio
import functools
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor

import httpx

from tidegate.adapters.counting.client import TextCounts
from tidegate.adapters.counting.service import TokenCountService
from tidegate.domain.request import Operation
from tidegate.domain.units import Secret
from tidegate.testing import GatewayProcess, Script, ThreadedUpstream
from tidegate.wire.openai import parse_request

MODEL = "qwen3.6-plus"
LONG_COUNTS = 6
WARM_COUNTS = 20_000
CHUNK_PAUSE_S = 0.01
REST_S = 5.0
"""How long everything is measured without a long count, for comparison."""


class OneTokenEach:
    """Stands in for the counting process, which a warm cache never asks."""

    async def count_texts(self, vocabulary: str, texts: tuple[str, ...], *, deadline_s: float, want_ids: bool = False) -> TextCounts:
        del vocabulary, deadline_s, want_ids
        return TextCounts((1,) * len(texts), exact=True)

    async def count_body(
        self, vocabulary: str, operation: Operation, body: bytes, *, deadline_s: float, want_ids: bool = False
    ) -> TextCounts:
        raise AssertionError((vocabulary, operation, len(body), deadline_s, want_ids))


def long_count(url: str, key: str, path: str, turn: int) -> float:
    """Have a little over a million tokens counted that were not counted before, about 3.4 MB; give the seconds it took.

    Runs in a process of its own, so that the clients which are measured do not wait for this one.
    """
    text = f"Story {turn}{path}: " + " ".join(f"word {number} of the story" for number in range(130_000))
    body = json.dumps({"model": MODEL, "max_tokens": 1, "messages": [{"role": "user", "content": text}]}).encode()
    begun = time.perf_counter()
    answer = httpx.post(f"{url}{path}", content=body, headers={"authorization": f"Bearer {key}"}, timeout=60.0, trust_env=False)
    took_s = time.perf_counter() - begun
    counted = answer.raise_for_status().json()
    assert counted.get("count", counted.get("input_tokens")) > 1_000_000, counted
    return took_s


async def timed(ask: Callable[[], Awaitable[httpx.Response]], until: asyncio.Event, every_s: float) -> list[float]:
    """Ask again and again until told to end; give how long each answer took, in seconds."""
    took: list[float] = []
    while not until.is_set():
        begun = time.perf_counter()
        answer = await ask()
        took.append(time.perf_counter() - begun)
        answer.raise_for_status()
        await asyncio.sleep(every_s)
    return took


async def gaps(chunks: Callable[[], AsyncIterator[bytes]], until: asyncio.Event) -> list[float]:
    """Read one stream after another; give the time between neighbouring chunks beyond the upstream's own pause, in seconds."""
    late: list[float] = []
    while not until.is_set():
        last: float | None = None
        async for _ in chunks():
            now = time.perf_counter()
            if last is not None:
                late.append(max(0.0, now - last - CHUNK_PAUSE_S))
            last = now
            if until.is_set():
                break
    return late


def row(what: str, seconds: list[float]) -> str:
    ordered = sorted(seconds)
    shares = [ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3 for share in (0.5, 0.99, 1.0)]
    return f"  {what:<28} {len(ordered):>6} samples   p50 {shares[0]:7.2f} ms   p99 {shares[1]:7.2f} ms   max {shares[2]:7.2f} ms"


async def beside_long_counts(gateway: GatewayProcess, key: Secret, path: str, counts: int) -> None:
    """Measure everything else, while so many long prompts are counted one after another; none: at rest."""
    headers = {"authorization": f"Bearer {key.reveal()}"}
    over = asyncio.Event()
    async with httpx.AsyncClient(base_url=gateway.api_url, headers=headers, timeout=60.0, trust_env=False) as client:
        number = iter(range(1_000_000))

        async def short() -> httpx.Response:
            return await client.post("/tokenize", json={"model": MODEL, "prompt": f"a short question, number {next(number)}"})

        async def chunks() -> AsyncIterator[bytes]:
            question = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "say something"}]}
            async with client.stream("POST", "/v1/chat/completions", json=question) as answer:
                async for chunk in answer.aiter_raw():
                    yield chunk

        async with asyncio.TaskGroup() as group:
            health = group.create_task(timed(lambda: client.get("/livez"), over, 0.002))
            shorts = group.create_task(timed(short, over, 0.005))
            streams = group.create_task(gaps(chunks, over))
            if counts:
                ask = functools.partial(long_count, gateway.api_url, key.reveal(), path)
                with ProcessPoolExecutor(1) as other:
                    loop = asyncio.get_running_loop()
                    long_s = [await loop.run_in_executor(other, ask, turn) for turn in range(counts)]
            else:
                await asyncio.sleep(REST_S)
            over.set()
    print(f"{path}: {counts} prompts of a million tokens, {sum(long_s) / counts:.2f} s each" if counts else "at rest")
    for what, seconds in (("/livez", health), ("short counts", shorts), ("chunks, later than sent", streams)):
        print(row(what, seconds.result()))


async def warm() -> None:
    """Count again and again what is in memory."""
    service = TokenCountService(tokenizer_of=lambda _: "qwen3.6", counter=OneTokenEach())
    said = "How do I reset my password for the account? " * 5
    messages = [{"role": "system", "content": "You are a helpful assistant. " * 10}]
    messages += [{"role": role, "content": said} for role in ("user", "assistant", "user", "assistant", "user")]
    for length in (2, 4, 6):
        request = parse_request(Operation.CHAT, json.dumps({"model": MODEL, "messages": messages[:length]}).encode())
        assert not isinstance(request, Exception)
        await service.count(request, deadline_s=1.0)
        begun = time.process_time()
        for _ in range(WARM_COUNTS):
            await service.count(request, deadline_s=1.0)
        rate = WARM_COUNTS / (time.process_time() - begun)
        print(f"{length} messages, {len(request.body)} bytes: {rate:,.0f} counts/s on one core")


def main() -> int:
    asyncio.run(warm())
    script = Script(output_tokens=400, per_token_s=CHUNK_PAUSE_S)
    with ThreadedUpstream(script, models=(MODEL,)) as upstream:
        hosted = {"dialect": "openai", "base_url": upstream.base_url, "tokenizer": "qwen3.6", "models": [MODEL]}
        with GatewayProcess({"upstreams": {"hosted": hosted}, "server": {"max_body_bytes": 16_777_216}}) as gateway:
            key = gateway.create_key()
            gateway.wait_for_key(key)
            for path, counts in (("", 0), ("/tokenize", LONG_COUNTS), ("/v1/messages/count_tokens", LONG_COUNTS)):
                asyncio.run(beside_long_counts(gateway, key, path, counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
