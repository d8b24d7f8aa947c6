"""Limits that change while the server runs: what begins afterwards meets the fresh ones."""

from __future__ import annotations

import asyncio

import uvloop

from tidegate.http.server import ServerLimits
from tidegate.testing.raw_http import RecordingApplication, ask_for_body, do_nothing, raw_client, serving, until

POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n" + b"b" * 100


def test_a_smaller_body_limit_meets_the_next_request() -> None:
    """A request that runs keeps its body; the next one on the same connection is too large."""

    async def main() -> None:
        application = RecordingApplication(on_head=do_nothing)
        async with serving(application, ServerLimits()) as server, raw_client(server.port) as client:
            client.send(POST)
            running = await application.exchange(0)
            server.update_limits(ServerLimits(max_body_bytes=99))
            ask_for_body(running)
            assert (await client.read_response()).status == 200
            client.send(POST)
            ask_for_body(await application.exchange(1))
            refused = await client.read_response()
            assert refused.status == 413
            assert b"limit of 99 bytes" in refused.body

    uvloop.run(main())


def test_a_shorter_header_timeout_meets_connections_that_are_open_already() -> None:
    """The clock of a head is the one in force when its first byte comes."""

    async def main() -> None:
        async with serving(RecordingApplication(), ServerLimits()) as server, raw_client(server.port) as client:
            await until(lambda: server.statistics().connections == 1)
            server.update_limits(ServerLimits(header_timeout_s=0.1))
            async with asyncio.timeout(5.0):
                client.send(b"GET / HTTP/1.1\r\n")
                response = await client.read_response()
            assert response.status == 408
            assert b"0.1 s after its first byte" in response.body

    uvloop.run(main())


def test_fewer_connections_turn_away_the_next_one_and_close_none() -> None:
    """Whoever is connected stays, and the refusal names the fresh bound."""

    async def main() -> None:
        async with serving(RecordingApplication(), ServerLimits()) as server, raw_client(server.port) as first:
            await until(lambda: server.statistics().connections == 1)
            server.update_limits(ServerLimits(max_connections=1))
            async with raw_client(server.port) as extra:
                refused = await extra.read_response()
            assert refused.status == 503
            assert b"has its 1 connections open" in refused.body
            first.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await first.read_response()).status == 200

    uvloop.run(main())
