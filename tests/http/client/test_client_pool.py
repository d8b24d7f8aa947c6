"""The pool: limits, the queue, reuse, expiry and the end of it all."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.http.client.raw_server import OK, Peer, Recorder, call, get, open_pool, post, raw_server, run, until

from tidegate.errors import ConfigurationError
from tidegate.http.client import PoolSettings, UpstreamPool
from tidegate.ports import CallFailureKind


async def answer_all(peer: Peer, _: int) -> None:
    await peer.answer_all()


async def never_answer(peer: Peer, _: int) -> None:
    await peer.request()
    await peer.client_closed()


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


class Held:
    """A server that answers only when told to."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.order: list[bytes] = []

    async def script(self, peer: Peer, _: int) -> None:
        while request := await peer.request():
            self.order.append(request.split(b"\r\n\r\n", 1)[1])
            await self.release.wait()
            await peer.send(OK)


def test_a_call_tells_its_receiver_the_whole_story_in_order() -> None:
    """Expected: connected, status, body, end; and the request arrives as written, in one piece."""

    async def main() -> None:
        seen: list[bytes] = []

        async def script(peer: Peer, _: int) -> None:
            seen.append(await peer.request())
            await peer.send(OK)

        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            recorder = await call(pool, post(b'{"a":1}', headers=((b"accept", b"*/*"), (b"x-empty", b""))))
            assert recorder.events == ["connected", 200, "ended"]
            assert (recorder.body, recorder.headers) == (b"ok", ((b"content-length", b"2"),))
            host = f"host: 127.0.0.1:{server.port}".encode()
            assert seen == [
                b"POST /v1/chat/completions HTTP/1.1\r\n" + host + b"\r\naccept: */*\r\nx-empty: \r\ncontent-length: 7\r\n\r\n" + b'{"a":1}'
            ]

    run(main())


def test_start_calls_nobody_before_it_returns() -> None:
    """Expected no event right after start, on a fresh connection, on a reused one and when refused."""

    async def main() -> None:
        async with raw_server(answer_all) as server, open_pool(server.base_url(), max_connections=1, max_waiting=0) as pool:
            first, second, refused = Recorder(), Recorder(), Recorder()
            pool.start(post(), first)
            assert first.events == []
            pool.start(post(), refused)
            assert refused.events == []
            await first.finished()
            assert (await refused.finished()).failure.kind is CallFailureKind.POOL_FULL
            pool.start(post(), second)
            assert second.events == []
            assert (await second.finished()).events == ["connected", 200, "ended"]

    run(main())


def test_five_hundred_calls_in_a_row_use_one_connection() -> None:
    """Expected one accepted connection for 500 sequential calls."""

    async def main() -> None:
        async with raw_server(answer_all) as server, open_pool(server.base_url()) as pool:
            for _ in range(500):
                assert (await call(pool)).events == ["connected", 200, "ended"]
            counts = pool.statistics()
            assert (server.accepted, counts.connects, counts.reused, counts.idle) == (1, 1, 499, 1)

    run(main())


def test_a_receiver_may_start_the_next_call_from_within_the_end_of_one() -> None:
    """Expected: the connection is free again when `response_ended` is heard."""

    async def main() -> None:
        async with raw_server(answer_all) as server, open_pool(server.base_url(), max_connections=1, max_waiting=0) as pool:
            following = Recorder()

            class Chaining(Recorder):
                def response_ended(self) -> None:
                    super().response_ended()
                    pool.start(post(), following)

            pool.start(post(), Chaining())
            assert (await following.finished()).events == ["connected", 200, "ended"]
            assert server.accepted == 1

    run(main())


def test_two_hundred_calls_at_once_share_ten_connections() -> None:
    """Expected all 200 answered over exactly the 10 connections allowed."""

    async def main() -> None:
        async with raw_server(answer_all) as server, open_pool(server.base_url(), max_connections=10) as pool:
            recorders = await asyncio.gather(*(call(pool) for _ in range(200)))
            assert all(recorder.events == ["connected", 200, "ended"] for recorder in recorders)
            assert (server.accepted, pool.statistics().open) == (10, 10)

    run(main())


def test_waiting_calls_are_served_first_come_first_served() -> None:
    """Expected the bodies to arrive in the order of start."""

    async def main() -> None:
        held = Held()
        async with raw_server(held.script) as server, open_pool(server.base_url(), max_connections=1) as pool:
            recorders = [Recorder() for _ in range(5)]
            for number, recorder in enumerate(recorders):
                pool.start(post(b"%d" % number), recorder)
            held.release.set()
            for recorder in recorders:
                await recorder.finished()
            assert held.order == [b"0", b"1", b"2", b"3", b"4"]

    run(main())


def test_a_full_queue_refuses_with_advice_and_a_cancelled_place_is_free_again() -> None:
    """Expected POOL_FULL beyond max_waiting, naming the limit; after a cancel the next call may wait."""

    async def main() -> None:
        held = Held()
        async with raw_server(held.script) as server, open_pool(server.base_url(), max_connections=1, max_waiting=2) as pool:
            running, waiting, leaving, refused, late = (Recorder() for _ in range(5))
            pool.start(post(b"running"), running)
            await asyncio.wait_for(running.connected.wait(), 5)
            pool.start(post(b"waiting"), waiting)
            leaver = pool.start(post(b"leaving"), leaving)
            pool.start(post(b"refused"), refused)
            failure = (await refused.finished()).failure
            assert failure.kind is CallFailureKind.POOL_FULL
            assert "all 1 connections" in failure.message
            assert "raise max_connections" in failure.message
            leaver.cancel()
            leaver.cancel()
            pool.start(post(b"late"), late)
            held.release.set()
            await late.finished()
            assert (leaving.events, held.order) == ([], [b"running", b"waiting", b"late"])
            assert pool.statistics().refused_full == 1

    run(main())


def test_a_refused_call_that_is_cancelled_at_once_stays_silent() -> None:
    """Expected no call_failed after cancel, though the refusal was already decided."""

    async def main() -> None:
        async with raw_server(never_answer) as server, open_pool(server.base_url(), max_connections=1, max_waiting=0) as pool:
            pool.start(post(), Recorder())
            refused = Recorder()
            pool.start(post(), refused).cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert refused.events == []

    run(main())


def test_idle_connections_are_closed_after_their_time() -> None:
    """Expected the server to see the close, and the pool to count it, without a further call."""

    async def main() -> None:
        closed = asyncio.Event()

        async def script(peer: Peer, _: int) -> None:
            await peer.answer_all()
            closed.set()

        async with raw_server(script) as server, open_pool(server.base_url(), idle_timeout_s=0.05) as pool:
            await call(pool)
            assert pool.statistics().idle == 1
            await asyncio.wait_for(closed.wait(), 5)
            counts = pool.statistics()
            assert (counts.open, counts.idle, counts.expired, counts.lost_idle) == (0, 0, 1, 0)
            await call(pool)
            assert server.accepted == 2

    run(main())


def test_a_sweep_spares_connections_that_are_not_due() -> None:
    """Expected only the connection idle for longer than its time to go."""

    async def main() -> None:
        async with raw_server(answer_all) as server, open_pool(server.base_url(), idle_timeout_s=30.0) as pool:
            await asyncio.gather(call(pool), call(pool))
            longest, latest = pool._idle
            longest.idle_since -= 31.0
            pool._sweep()
            assert (longest.closed, latest.closed) == (True, False)
            assert (pool.statistics().idle, pool.statistics().expired) == (1, 1)

    run(main())


def test_closing_the_pool_ends_every_call_and_leaves_no_socket() -> None:
    """Expected one final call each for a running, a waiting and a connecting call, none for later starts but a failure, no open socket."""

    async def main() -> None:
        async with raw_server(never_answer) as server:
            before = open_files()
            pool = UpstreamPool(PoolSettings(base_url=server.base_url(), max_connections=2))
            running, connecting, waiting, late = (Recorder() for _ in range(4))
            pool.start(post(), running)
            await asyncio.wait_for(running.connected.wait(), 5)
            pool.start(post(), connecting)
            pool.start(post(), waiting)
            await pool.aclose()
            for recorder in (running, connecting, waiting):
                assert recorder.failure.kind is CallFailureKind.CONNECT
                assert "closed" in recorder.failure.message
            pool.start(post(), late)
            assert "closed" in (await late.finished()).failure.message
            await pool.aclose()
            await until(lambda: open_files() <= before)
            assert [len([e for e in recorder.events if e != "connected"]) for recorder in (running, connecting, waiting, late)] == [1] * 4

    run(main())


def test_closing_the_pool_closes_idle_connections_before_it_returns() -> None:
    """Expected the descriptors gone when aclose returns, not some time later."""

    async def main() -> None:
        async with raw_server(answer_all) as server:
            async with open_pool(server.base_url()) as pool:
                await asyncio.gather(*(call(pool) for _ in range(5)))
                transports = [connection._transport for connection in pool._idle]
                descriptors = [transport.get_extra_info("socket").fileno() for transport in transports if transport is not None]
                assert len(descriptors) == 5
            for descriptor in descriptors:
                with pytest.raises(OSError, match="Bad file descriptor"):
                    os.fstat(descriptor)

    run(main())


def test_a_failed_connect_fails_one_waiting_call_and_the_next_is_tried() -> None:
    """Expected with one connection allowed and nobody listening: every call fails by itself, none hangs."""

    async def main() -> None:
        async with raw_server(answer_all) as server:
            url = server.base_url()
        async with open_pool(url, max_connections=1) as pool:
            recorders = await asyncio.gather(*(call(pool) for _ in range(5)))
            assert {recorder.failure.kind for recorder in recorders} == {CallFailureKind.CONNECT}
            assert "check that the server runs" in recorders[0].failure.message
            assert pool.statistics().connect_failures == 5

    run(main())


def test_a_connection_opened_for_a_call_that_was_served_meanwhile_is_kept_idle() -> None:
    """Expected a surplus connection to wait for the next call instead of being thrown away."""

    async def main() -> None:
        resolved = asyncio.Event()
        lookups = 0

        async def lookup(_host: str, port: int) -> list[tuple[str, int]]:
            nonlocal lookups
            lookups += 1
            if lookups > 1:
                await resolved.wait()
            return [("127.0.0.1", port)]

        held = Held()
        async with raw_server(held.script) as server, open_pool(server.base_url(host="model.test"), lookup=lookup) as pool:
            first, second = Recorder(), Recorder()
            pool.start(post(b"first"), first)
            await asyncio.wait_for(first.connected.wait(), 5)
            pool._book.failed()
            pool.start(post(b"second"), second)
            held.release.set()
            await second.finished()
            assert (pool.statistics().idle, pool.statistics().connecting) == (1, 1)
            resolved.set()
            await until(lambda: pool.statistics().idle == 2)

    run(main())


def test_statistics_and_repr_add_up() -> None:
    """Expected in_use to be what is open and not idle, and a repr that tells the counts."""

    async def main() -> None:
        async with raw_server(never_answer) as server, open_pool(server.base_url()) as pool:
            recorder = Recorder()
            handle = pool.start(get(), recorder)
            assert "waiting" in repr(handle)
            await asyncio.wait_for(recorder.connected.wait(), 5)
            counts = pool.statistics()
            assert (counts.open, counts.in_use, counts.idle) == (1, 1, 0)
            assert "1 in use, 0 idle" in repr(pool)
            assert "running" in repr(handle)
            handle.cancel()
            assert "ended" in repr(handle)

    run(main())


def test_settings_never_show_the_proxy_password() -> None:
    """Expected a repr without the user name and password of the proxy."""
    settings = PoolSettings(base_url="http://model.test", proxy="http://ann:hunter2@proxy.test:3128")
    assert "hunter2" not in repr(settings)
    assert "proxy.test:3128" in repr(settings)
    assert "hunter2" not in str(settings.__rich_repr__())
    with pytest.raises(ConfigurationError, match="https://"):
        UpstreamPool(PoolSettings(base_url="http://model.test", proxy="https://ann:hunter2@proxy.test"))
