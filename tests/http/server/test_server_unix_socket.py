"""A server on a Unix socket and a client for it: how the workers of a node reach each other."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from tidegate.errors import TidegateError, UpstreamUnavailable
from tidegate.http.client_fetch import fetch
from tidegate.http.client_local import LocalClient
from tidegate.http.server import HttpServer, ServerLimits
from tidegate.ports import Exchange, UpstreamRequest

ASK = UpstreamRequest("POST", "/v1/x", ((b"x-word", b"hello"),), b"")


class Echo:
    """Answers with the request's word, or waits for ever when it is `wait`."""

    def __init__(self, exchange: Exchange) -> None:
        self.left = asyncio.Event()
        word = dict(exchange.head.headers)[b"x-word"]
        if word != b"wait":
            exchange.start(200, ())
            exchange.send(word)
            exchange.finish()

    def body_received(self, body: bytes) -> None: ...
    def body_refused(self, error: TidegateError) -> None: ...
    def write_paused(self) -> None: ...
    def write_resumed(self) -> None: ...

    def client_left(self) -> None:
        self.left.set()


@pytest.fixture
def path() -> Iterator[Path]:
    """A path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="tg-") as directory:
        yield Path(directory) / "worker-0.sock"


def test_a_call_over_a_socket_of_this_user_alone(path: Path) -> None:
    """Calls are answered; the socket has no access for others, replaces one left by a process that died, and goes with its server."""

    with socket.socket(socket.AF_UNIX) as left_by_a_crash:
        left_by_a_crash.bind(str(path))

    async def main() -> int:
        server = HttpServer(Echo, ServerLimits())
        await server.start(path=path)
        client = LocalClient(path)
        answers = await asyncio.gather(*(fetch(client, ASK, deadline_s=5.0, max_bytes=100) for _ in range(20)))
        assert {answer.body for answer in answers} == {b"hello"}
        mode = stat.S_IMODE(os.stat(path).st_mode)  # noqa: PTH116  one system call, in a test
        await client.aclose()
        server.stop_accepting()
        server.abort_all()
        return mode

    assert uvloop.run(main()) == 0o600
    assert not path.exists()


def test_a_cancelled_call_is_seen_to_leave(path: Path) -> None:
    """Cancelling closes the connection, so that the other process hears it at once."""
    seen: list[Echo] = []

    def application(exchange: Exchange) -> Echo:
        seen.append(Echo(exchange))
        return seen[-1]

    async def main() -> None:
        server = HttpServer(application, ServerLimits())
        await server.start(path=path)
        client = LocalClient(path)
        with pytest.raises(TidegateError):
            await fetch(client, UpstreamRequest("POST", "/", ((b"x-word", b"wait"),), b""), deadline_s=0.2, max_bytes=100)
        async with asyncio.timeout(1.0):
            await seen[0].left.wait()
        await client.aclose()
        server.abort_all()

    uvloop.run(main())


@pytest.mark.parametrize("left", [False, True], ids=["no-socket", "a-socket-that-nobody-serves"])
def test_a_process_that_is_gone(path: Path, *, left: bool) -> None:
    """Without a socket, or with one that nobody serves, the call fails and says so."""
    if left:
        with socket.socket(socket.AF_UNIX) as left_by_a_crash:
            left_by_a_crash.bind(str(path))

    async def main() -> None:
        client = LocalClient(path)
        with pytest.raises(UpstreamUnavailable, match=r"worker-0\.sock cannot be reached"):
            await fetch(client, ASK, deadline_s=5.0, max_bytes=100)
        await client.aclose()

    uvloop.run(main())


def test_a_call_given_up_before_it_had_a_connection(path: Path) -> None:
    """Its dial is cancelled with it, and nobody is told anything."""

    async def main() -> None:
        client = LocalClient(path)
        with pytest.raises(TidegateError):
            await fetch(client, ASK, deadline_s=0.0, max_bytes=100)
        await client.aclose()
        assert repr(client) == "LocalClient(worker-0.sock, 0 open)"

    uvloop.run(main())
