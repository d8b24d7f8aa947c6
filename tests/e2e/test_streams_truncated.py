"""A tenant that runs out in the middle of a stream, as its client meets it: official SDKs, real sockets, and a bill for what flowed."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tidegate.domain.principal import Limits
from tidegate.domain.units import Secret
from tidegate.testing import GatewayProcess, Script, ThreadedUpstream, ToolCall

NODE = shutil.which("node")
NODE_FOLDER = pathlib.Path(__file__).parent / "node"
LEAVE_WITHIN_S = 1.0
"""The upstream would go on for three seconds and more."""
HELD = 16
"""Output tokens held for a stream at first."""
SLICE = 64
"""And then at a time, as long as little is held."""
CHAT: dict[str, Any] = {"model": "talker", "messages": [{"role": "user", "content": "Say something."}], "stream": True}
TALK = Script(output_tokens=5000, per_token_s=0.001)
LIMIT = 2000
MANY, ENOUGH_FOR, ANSWER_TOKENS = 50, 20, 300


@pytest.fixture(scope="module")
def talker() -> Iterator[ThreadedUpstream]:
    with ThreadedUpstream(models=("talker",)) as server:
        yield server


@pytest.fixture
def upstream(talker: ThreadedUpstream) -> ThreadedUpstream:
    talker.reset()
    talker.set_default(TALK)
    return talker


@pytest.fixture(scope="module")
def process(talker: ThreadedUpstream) -> Iterator[GatewayProcess]:
    configuration: dict[str, object] = {
        "upstreams": {"talker": {"dialect": "openai", "base_url": talker.base_url, "models": ["talker"], "health": {"enabled": False}}},
        "reserve": {"method": "constant", "constant_tokens": HELD},
    }
    with GatewayProcess(configuration) as running:
        yield running


def key_with(process: GatewayProcess, tokens: int) -> Secret:
    key = process.create_key(name=f"limited-{time.monotonic_ns()}", limits=Limits(tokens_per_minute=tokens))
    process.wait_for_key(key)
    return key


def client_of(process: GatewayProcess, key: Secret) -> openai.OpenAI:
    return openai.OpenAI(base_url=process.base_url, api_key=key.reveal(), max_retries=0, timeout=20.0)


def used(process: GatewayProcess, key: Secret, limit: int) -> int:
    """Give what the key's window has, as its headers say."""
    answer = httpx.get(f"{process.base_url}/models", headers={"authorization": f"Bearer {key.reveal()}"})
    assert int(answer.headers["x-ratelimit-limit-tokens"]) == limit
    return limit - int(answer.headers["x-ratelimit-remaining-tokens"])


def test_the_python_sdk_reads_a_truncated_stream(process: GatewayProcess, upstream: ThreadedUpstream) -> None:
    """No exception: `length`, the usage it asked for, and why; the upstream is left at once; the window has what flowed."""
    key = key_with(process, LIMIT)
    with client_of(process, key) as client:
        chunks = list(client.chat.completions.create(**CHAT, stream_options={"include_usage": True}))
    ended_at = time.monotonic()
    end, usage = chunks[-2:]
    assert end.choices[0].finish_reason == "length"
    assert {chunk.id for chunk in chunks} == {end.id}
    assert {"reason": "token_limit", "rule": "key-tokens"} == usage.to_dict()["tidegate"]
    assert usage.usage is not None
    spoken = sum(1 for chunk in chunks if chunk.choices and chunk.choices[0].delta.content)
    assert usage.usage.completion_tokens == spoken
    assert LIMIT // 2 < spoken <= LIMIT
    assert usage.usage.total_tokens == used(process, key, LIMIT)
    (request,) = [received for received in upstream.requests if received.method == "POST"]
    upstream.wait_for(lambda: request.client_left_at is not None, 10.0)
    assert request.client_left_at is not None
    assert request.client_left_at - ended_at <= LEAVE_WITHIN_S
    assert record_of(process, request.header("x-request-id"))["outcome"] == "truncated"


def record_of(process: GatewayProcess, request_id: str | None) -> dict[str, Any]:
    deadline = time.monotonic() + 20.0
    while time.monotonic() < deadline:
        for file in (process.state_directory / "records").glob("*.jsonl"):
            for line in file.read_text().splitlines():
                record: dict[str, Any] = json.loads(line)
                if record["request_id"] == request_id:
                    return record
        time.sleep(0.02)
    raise TimeoutError(f"no record of {request_id}")


def test_a_truncated_tool_call_ends_like_a_text(process: GatewayProcess, upstream: ThreadedUpstream) -> None:
    """Its arguments are cut, and the client is told."""
    upstream.set_default(Script(tool_calls=(ToolCall(name="write", arguments=json.dumps({"text": "潮水 " * 4000}), piece_chars=6),)))
    with client_of(process, key_with(process, LIMIT)) as client:
        chunks = list(client.chat.completions.create(**CHAT))
    assert chunks[-1].choices[0].finish_reason == "length"
    pieces = [call.function.arguments or "" for chunk in chunks for call in chunk.choices[0].delta.tool_calls or [] if call.function]
    assert "".join(pieces).startswith('{"text": "')


def test_the_older_completions_end_likewise(process: GatewayProcess, upstream: ThreadedUpstream) -> None:
    """In their own shape."""
    assert upstream.requests == ()
    with client_of(process, key_with(process, LIMIT)) as client:
        chunks = list(client.completions.create(model="talker", prompt="Say something.", stream=True))
    assert chunks[-1].choices[0].finish_reason == "length"
    assert chunks[-1].to_dict()["tidegate"] == {"reason": "token_limit", "rule": "key-tokens"}


def test_a_whole_answer_is_given_whole(process: GatewayProcess, upstream: ThreadedUpstream) -> None:
    """It has been generated already; what it took beyond the limit is carried."""
    upstream.set_default(Script(output_tokens=LIMIT + 100))
    key = key_with(process, LIMIT)
    with client_of(process, key) as client:
        answer = client.chat.completions.create(**(CHAT | {"stream": False}))
    assert answer.choices[0].finish_reason == "stop"
    assert used(process, key, LIMIT) == LIMIT


def test_many_streams_of_one_tenant_share_what_there_is(process: GatewayProcess, upstream: ThreadedUpstream) -> None:
    """Fifty at once with a limit for twenty: each ends well, and together they have the limit, and at most a slice each beyond it."""
    upstream.set_default(Script(output_tokens=ANSWER_TOKENS, per_token_s=0.01))
    limit = ENOUGH_FOR * (ANSWER_TOKENS + 9)
    key = key_with(process, limit)

    async def all_at_once() -> list[tuple[str | None, int]]:
        async with openai.AsyncOpenAI(base_url=process.base_url, api_key=key.reveal(), max_retries=0, timeout=30.0) as client:
            return await asyncio.gather(*(one(client) for _ in range(MANY)))

    async def one(client: openai.AsyncOpenAI) -> tuple[str | None, int]:
        try:
            stream = await client.chat.completions.create(**CHAT, stream_options={"include_usage": True})
        except openai.RateLimitError:
            return "refused", 0
        reason, total = None, 0
        async for chunk in stream:
            reason = chunk.choices[0].finish_reason or reason if chunk.choices else reason
            total = chunk.usage.total_tokens if chunk.usage is not None else total
        return reason, total

    ends = asyncio.run(all_at_once())
    total = sum(tokens for _, tokens in ends)
    assert {reason for reason, _ in ends} <= {"stop", "length", "refused"}
    assert "length" in {reason for reason, _ in ends}
    assert limit / 2 < total <= limit + MANY * SLICE
    assert min(total, limit) == used(process, key, limit)


@pytest.mark.skipif(NODE is None, reason="node is not installed; the suite for the openai npm package needs it")
@pytest.mark.skipif(not (NODE_FOLDER / "node_modules" / "openai").is_dir(), reason="run `npm ci` in tests/e2e/node first")
def test_the_node_sdk_reads_a_truncated_stream(process: GatewayProcess, upstream: ThreadedUpstream) -> None:
    """The same for the other official SDK."""
    assert upstream.requests == ()
    key = key_with(process, LIMIT)
    environment = {"PATH": os.environ["PATH"], "TIDEGATE_BASE_URL": process.base_url, "TIDEGATE_API_KEY": key.reveal()}
    command = [NODE or "node", "--test", "--test-reporter=spec", "truncated.test.mjs"]
    suite = subprocess.run(command, cwd=NODE_FOLDER, env=environment, capture_output=True, text=True, timeout=45.0, check=False)
    assert suite.returncode == 0, suite.stdout[-6000:] + suite.stderr[-2000:]
