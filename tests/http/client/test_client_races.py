"""What can happen at a bad moment: the keep-alive race, cancellation in every phase, back-pressure."""

from __future__ import annotations

import asyncio
import select

import pytest
from tests.http.client.raw_server import CHUNKED, OK, Peer, Recorder, call, open_pool, post, raw_server, run, until

from tidegate.http.client import UpstreamPool
from tidegate.http.client_connection import ASK_AFTER_IDLE_S, ClientConnection
from tidegate.ports import CallFailureKind

# ── the keep-alive race ───────────────────────────────────────────────────────


async def used_connection(pool: UpstreamPool) -> None:
    """Make one call, so that the pool has an idle connection."""
    assert (await call(pool)).body == b"ok"
    assert pool.statistics().idle == 1


@pytest.mark.parametrize("ending", ["fin", "reset"])
def test_a_reused_connection_that_dies_unanswered_is_replaced_once_silently(ending: str) -> None:
    """Expected the answer of a second connection, and the request sent to both."""

    async def main() -> None:
        seen: list[tuple[int, bytes]] = []

        async def script(peer: Peer, number: int) -> None:
            await peer.request()
            await peer.send(OK)
            request = await peer.request()
            seen.append((number, request))
            if number == 0:
                if ending == "reset":
                    peer.reset()
                return
            await peer.send(OK)

        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            await used_connection(pool)
            recorder = await call(pool, post(b"again"))
            assert recorder.events == ["connected", 200, "ended"]
            assert seen == [(0, seen[0][1])]
            assert seen[0][1].endswith(b"again")
            assert (server.accepted, pool.statistics().retried_unused, pool.statistics().waiting) == (2, 1, 0)

    run(main())


def test_the_second_connection_is_fresh_even_if_others_are_idle() -> None:
    """Expected no stale connection to be tried after another: the rest of them may be as dead."""

    async def main() -> None:
        async def script(peer: Peer, number: int) -> None:
            await peer.request()
            await both.wait()
            await peer.send(OK)
            if number < 2:
                await peer.request()
                return
            await peer.answer_all()

        both = asyncio.Event()
        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            first, second = Recorder(), Recorder()
            pool.start(post(), first)
            pool.start(post(), second)
            await until(lambda: server.accepted == 2)
            both.set()
            await asyncio.gather(first.finished(), second.finished())
            assert pool.statistics().idle == 2
            assert (await call(pool)).events == ["connected", 200, "ended"]
            assert (server.accepted, pool.statistics().idle) == (3, 2)

    run(main())


def test_it_is_sent_again_only_once() -> None:
    """Expected RESET when the fresh connection dies as well, after exactly two sends."""

    async def main() -> None:
        requests = 0

        async def script(peer: Peer, number: int) -> None:
            nonlocal requests
            await peer.request()
            if number == 0:
                await peer.send(OK)
                await peer.request()
            requests += 1

        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            await used_connection(pool)
            recorder = await call(pool)
            assert recorder.failure.kind is CallFailureKind.RESET
            assert recorder.events[0] == "connected"
            assert (requests, len(recorder.events)) == (2, 2)

    run(main())


@pytest.mark.parametrize("ending", ["fin", "reset"])
def test_a_fresh_connection_that_dies_unanswered_is_a_reset(ending: str) -> None:
    """Expected RESET at once, with the address and the moment."""

    async def main() -> None:
        async def script(peer: Peer, _: int) -> None:
            await peer.request()
            if ending == "reset":
                peer.reset()

        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            failure = (await call(pool)).failure
            assert failure.kind is CallFailureKind.RESET
            assert f"http://127.0.0.1:{server.port}" in failure.message
            assert "before it answered" in failure.message
            assert server.accepted == 1

    run(main())


@pytest.mark.parametrize(
    "beginning", [b"H", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", CHUNKED + b"2\r\nhe"]
)
def test_after_a_byte_of_the_answer_nothing_is_sent_again(beginning: bytes) -> None:
    """Expected RESET on a reused connection too, once anything came back."""

    async def main() -> None:
        async def script(peer: Peer, _: int) -> None:
            await peer.request()
            await peer.send(OK)
            await peer.request()
            await peer.send(beginning)

        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            await used_connection(pool)
            assert (await call(pool)).failure.kind is CallFailureKind.RESET
            assert (server.accepted, pool.statistics().retried_unused) == (1, 0)

    run(main())


@pytest.mark.parametrize("parting", [b"", b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n"])
def test_an_idle_connection_on_which_something_happens_is_dropped_at_once(parting: bytes) -> None:
    """Expected the connection gone before the next call, whether the server closed it or spoke."""

    async def main() -> None:
        async def script(peer: Peer, number: int) -> None:
            await peer.request()
            await peer.send(OK)
            if number == 0:
                await part.wait()
                if not parting:
                    return
                await peer.send(parting)
            await peer.answer_all()

        part = asyncio.Event()
        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            await used_connection(pool)
            part.set()
            await until(lambda: pool.statistics().open == 0)
            assert pool.statistics().lost_idle == 1
            assert (await call(pool)).events == ["connected", 200, "ended"]
            assert (server.accepted, pool.statistics().retried_unused) == (2, 0)

    run(main())


@pytest.mark.parametrize("parting", [b"", b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n"])
def test_what_waits_in_the_socket_of_an_idle_connection_is_not_the_answer_to_the_next_request(parting: bytes) -> None:
    """Expected a fresh connection, without a second send, though the loop has not yet seen what the server did."""

    async def main() -> None:
        async def script(peer: Peer, number: int) -> None:
            await peer.request()
            await peer.send(OK)
            if number == 0:
                await part.wait()
                peer.writer.write(parting)
                if not parting:
                    return
            await peer.answer_all()

        part = asyncio.Event()
        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            await used_connection(pool)
            (connection,) = pool._idle
            assert connection._transport is not None
            connection._transport.pause_reading()
            part.set()
            await until(lambda: _readable(connection))
            connection.idle_since -= ASK_AFTER_IDLE_S
            assert (await call(pool)).events == ["connected", 200, "ended"]
            counts = pool.statistics()
            assert (server.accepted, counts.retried_unused, counts.lost_idle, counts.open) == (2, 0, 1, 1)

    run(main())


def _readable(connection: ClientConnection) -> bool:
    assert connection._transport is not None
    poll = select.poll()
    poll.register(connection._transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))
