"""The scripted upstream's connections: clients that never read or speak no HTTP, and a fault of the mock itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx
import pytest
import uvloop

from tidegate.testing import ScriptedUpstream

T = TypeVar("T")


def with_mock(body: Callable[[ScriptedUpstream, httpx.AsyncClient], Awaitable[T]]) -> T:
    async def main() -> T:
        async with ScriptedUpstream() as upstream, httpx.AsyncClient(timeout=5.0) as client:
            client.base_url = upstream.base_url.removesuffix("/v1")
            return await body(upstream, client)

    return uvloop.run(main())


async def connect(upstream: ScriptedUpstream) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection without a client's manners."""
    port = int(upstream.base_url.rsplit(":", 1)[1].removesuffix("/v1"))
    return await asyncio.open_connection("127.0.0.1", port)


def test_a_client_that_never_reads_is_cut_off() -> None:
    """More than 64 requests without reading an answer are refused with a reset; the server goes on."""

    async def body(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
        reader, writer = await connect(upstream)
        hang = b'{"messages":[{"role":"user","content":"[[mock:hang_before_headers]]"}]}'
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(hang), hang))
        writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n" * 66)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 5.0)
        writer.close()
        assert (await client.get("/health")).status_code == 200

    with_mock(body)


def test_a_fault_of_the_mock_itself_is_no_bad_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes to light in the loop, and its client gets no answer that a test could take for one."""
    told: list[dict[str, Any]] = []

    def answer(*_: object) -> None:
        raise ZeroDivisionError

    async def body(_: ScriptedUpstream, client: httpx.AsyncClient) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        with pytest.raises(httpx.TransportError):
            await client.post("/v1/chat/completions", json={})

    monkeypatch.setattr(ScriptedUpstream, "answer", answer)
    with_mock(body)
    (context,) = told
    problem = context["exception"]
    assert isinstance(problem, Exception)
    assert isinstance(problem.__context__, ZeroDivisionError)


def test_what_is_no_http_is_a_bad_request() -> None:
    """The client's own fault keeps its 400."""

    async def body(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> bytes:
        reader, writer = await connect(upstream)
        writer.write(b"this is not HTTP\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 5.0)
        writer.close()
        assert (await client.get("/health")).status_code == 200
        return answer

    assert with_mock(body).startswith(b"HTTP/1.1 400 ")
