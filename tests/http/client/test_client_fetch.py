"""`fetch`: a whole response, or an error from the tree."""

from __future__ import annotations

import asyncio

import pytest
from tests.http.client.raw_server import CHUNKED, Peer, get, open_pool, raw_server, run

from tidegate.errors import UpstreamTimeout, UpstreamUnavailable
from tidegate.http.client import Response, fetch


def test_fetch_gives_status_headers_and_body_of_any_answer() -> None:
    """Expected a 404 to be an answer, its chunks joined."""

    async def main() -> None:
        async def script(peer: Peer, _: int) -> None:
            await peer.answer_all(b"HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n2\r\nno\r\n2\r\npe\r\n0\r\n\r\n")

        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            for _ in range(2):
                response = await fetch(pool, get("/jwks.json"), deadline_s=5, max_bytes=4)
                assert response == Response(404, ((b"transfer-encoding", b"chunked"),), b"nope")
            assert server.accepted == 1

    run(main())


def test_fetch_stops_at_its_deadline_and_closes_the_connection() -> None:
    """Expected UpstreamTimeout, and the server to see the close."""

    async def main() -> None:
        closed = asyncio.Event()

        async def script(peer: Peer, _: int) -> None:
            await peer.request()
            await peer.client_closed()
            closed.set()

        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            with pytest.raises(UpstreamTimeout, match="/health"):
                await fetch(pool, get("/health"), deadline_s=0.05, max_bytes=10)
            await asyncio.wait_for(closed.wait(), 5)

    run(main())


def test_fetch_refuses_an_answer_over_its_bound_without_reading_on() -> None:
    """Expected UpstreamUnavailable and a closed connection, though the answer would never end."""

    async def main() -> None:
        async def script(peer: Peer, _: int) -> None:
            await peer.request()
            await peer.send(CHUNKED)
            while True:
                await peer.send(b"4\r\nmore\r\n")

        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            with pytest.raises(UpstreamUnavailable, match="longer than the 1000 bytes"):
                await fetch(pool, get(), deadline_s=5, max_bytes=1000)
            assert pool.statistics().open == 0

    run(main())


def test_fetch_passes_on_why_a_call_failed() -> None:
    """Expected the failure's own message."""

    async def main() -> None:
        async def script(peer: Peer, _: int) -> None:
            await peer.request()

        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            with pytest.raises(UpstreamUnavailable, match="before it answered"):
                await fetch(pool, get(), deadline_s=5, max_bytes=1000)

    run(main())


def test_a_cancelled_fetch_cancels_its_call() -> None:
    """Expected the connection closed when the awaiting task is cancelled."""

    async def main() -> None:
        asked, closed = asyncio.Event(), asyncio.Event()

        async def script(peer: Peer, _: int) -> None:
            await peer.request()
            asked.set()
            await peer.client_closed()
            closed.set()

        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            task = asyncio.ensure_future(fetch(pool, get(), deadline_s=5, max_bytes=10))
            await asyncio.wait_for(asked.wait(), 5)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(closed.wait(), 5)

    run(main())
