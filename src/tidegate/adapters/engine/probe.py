"""The few HTTP questions the supervisor asks its own engine, on one fresh connection each.

Enough HTTP/1.1 for one trusted server on loopback, no more: the status line, then lines. Invariants: every question has a deadline
and ends by closing its connection; answers are bounded; the key is only in the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import msgspec

from tidegate.domain.units import Secret
from tidegate.errors import UpstreamTimeout, UpstreamUnavailable

MAX_LINE_BYTES = 1_048_576
"""An answer is one line of JSON or short event lines; the largest (model list, errors) are a few KB."""
MAX_ANSWER_BYTES = 16_777_216
"""A warm-up answer of 64 tokens is about 20 KB."""


class FirstToken(msgspec.Struct, frozen=True):
    """How one streamed request went, in seconds by our clock from the connection's start."""

    ttft_s: float
    e2e_s: float
    completion_tokens: int


class EngineEndpoint(msgspec.Struct, frozen=True):
    """One start of the engine: its origin (`http://host:port`) and key."""

    origin: str
    api_key: Secret


class HttpProbe:
    """Asks over real sockets."""

    async def healthy(self, endpoint: EngineEndpoint, *, deadline_s: float) -> bool:
        """Tell whether `/health` answers 200 in time."""
        try:
            async with asyncio.timeout(deadline_s), _ask(endpoint, "GET", "/health", b"") as (status, _):
                return status == 200  # noqa: PLR2004  HTTP's OK
        except (TimeoutError, OSError, UpstreamUnavailable):
            return False

    async def first_token(self, endpoint: EngineEndpoint, *, max_tokens: int, deadline_s: float) -> FirstToken:
        """Stream one short chat answer; raise `UpstreamTimeout` or `UpstreamUnavailable`.

        `cache_prompt: false` makes two such requests do the same work, so that cold and warm can be compared.
        """
        body = msgspec.json.encode(
            {
                "messages": [{"role": "user", "content": "Say hello."}],
                "max_tokens": max_tokens,
                "stream": True,
                "stream_options": {"include_usage": True},
                "temperature": 0,
                "cache_prompt": False,
                "ignore_eos": True,
            }
        )
        try:
            async with asyncio.timeout(deadline_s), _ask(endpoint, "POST", "/v1/chat/completions", body) as (status, lines):
                return await _time_stream(status, lines)
        except TimeoutError as error:
            raise UpstreamTimeout(
                f"The engine at {endpoint.origin} gave no complete answer to a test prompt in {deadline_s:.0f} s."
            ) from error
        except OSError as error:
            raise UpstreamUnavailable(f"The engine at {endpoint.origin} closed the connection of a test prompt ({error}).") from error


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)


class _Usage(msgspec.Struct):
    completion_tokens: int


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None


async def _time_stream(status: int, lines: AsyncIterator[bytes]) -> FirstToken:
    loop = asyncio.get_running_loop()
    began = loop.time()
    ttft_s: float | None = None
    completion_tokens = 0
    async for line in lines:
        if status != 200:  # noqa: PLR2004  HTTP's OK
            raise UpstreamUnavailable(
                f"The engine refused a test prompt with status {status}: {line[:300].decode(errors='replace').strip()}"
            )
        if not line.startswith(b"data: {"):
            continue
        chunk = msgspec.json.decode(line[6:], type=_Chunk)
        if ttft_s is None and any(choice.delta.content or choice.delta.reasoning_content for choice in chunk.choices):
            ttft_s = loop.time() - began
        if chunk.usage is not None:
            completion_tokens = chunk.usage.completion_tokens
    if ttft_s is None:
        raise UpstreamUnavailable("The engine's answer to a test prompt had no text. The model file is probably not a chat model.")
    return FirstToken(ttft_s=ttft_s, e2e_s=loop.time() - began, completion_tokens=completion_tokens)


@asynccontextmanager
async def _ask(endpoint: EngineEndpoint, method: str, path: str, body: bytes) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
    address = urlsplit(endpoint.origin)
    reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=MAX_LINE_BYTES)
    try:
        writer.write(
            f"{method} {path} HTTP/1.1\r\nhost: {address.netloc}\r\nauthorization: Bearer {endpoint.api_key.reveal()}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()
            + body
        )
        await writer.drain()
        yield _status(await reader.readline()), _body_lines(reader)
    finally:
        writer.close()


def _status(line: bytes) -> int:
    parts = line.split(b" ", 2)
    if len(parts) < 2 or not parts[1].isdigit():  # noqa: PLR2004  version and status
        raise UpstreamUnavailable("The engine's answer is not HTTP.")
    return int(parts[1])


async def _body_lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while (await reader.readline()).strip():
        pass
    received = 0
    while line := await reader.readline():
        received += len(line)
        if received > MAX_ANSWER_BYTES:
            raise UpstreamUnavailable(f"The engine's answer is over {MAX_ANSWER_BYTES} bytes.")
        yield line
