"""Cancellation in every phase of a call, and back-pressure."""

from __future__ import annotations

import asyncio

import pytest
from tests.http.client.raw_server import CHUNKED, OK, Peer, Recorder, call, open_pool, post, raw_server, run, until

from tidegate.ports import CallFailureKind

# ── cancellation ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("phase", ["connected", "started", "chunk_came"])
def test_cancel_closes_the_socket_in_every_phase_of_a_call(phase: str) -> None:
    """Expected the server to see the close, the receiver nothing more, and the place free again."""

    async def main() -> None:
        closed = asyncio.Event()

        async def script(peer: Peer, number: int) -> None:
            await peer.request()
            if number == 0:
                if phase != "connected":
                    await peer.send(CHUNKED)
                if phase == "chunk_came":
                    await peer.send(b"2\r\nhe\r\n")
                await peer.client_closed()
                closed.set()
            else:
                await peer.send(OK)

        async with raw_server(script) as server, open_pool(server.base_url(), max_connections=1) as pool:
            recorder = Recorder()
            handle = pool.start(post(), recorder)
            await asyncio.wait_for(getattr(recorder, phase).wait(), 5)
            before = list(recorder.events)
            handle.cancel()
            handle.cancel()
            handle.pause()
            handle.resume()
            await asyncio.wait_for(closed.wait(), 5)
            assert recorder.events == before
            assert (await call(pool)).events == ["connected", 200, "ended"]

    run(main())


def test_cancel_from_within_a_chunk_silences_the_rest_of_the_same_read() -> None:
    """Expected one chunk heard of two that came in one packet with the end."""

    async def main() -> None:
        async def script(peer: Peer, _: int) -> None:
            await peer.request()
            await peer.send(CHUNKED + b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n")
            await peer.client_closed()

        async with raw_server(script) as server, open_pool(server.base_url()) as pool:

            class Leaving(Recorder):
                def response_chunk(self, chunk: bytes) -> None:
                    super().response_chunk(chunk)
                    handle.cancel()

            recorder = Leaving()
            handle = pool.start(post(), recorder)
            await asyncio.wait_for(recorder.chunk_came.wait(), 5)
            await until(lambda: pool.statistics().open == 0)
            assert (recorder.events, recorder.chunks) == (["connected", 200], [b"a"])

    run(main())


def test_cancel_from_within_the_head_or_the_connect_is_heard() -> None:
    """Expected silence after a cancel made inside `call_connected` or `response_started`."""

    async def main() -> None:
        async def script(peer: Peer, _: int) -> None:
            await peer.request()
            await peer.send(OK)
            await peer.client_closed()

        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            for moment in ("call_connected", "response_started"):

                class Leaving(Recorder):
                    def call_connected(self) -> None:
                        super().call_connected()
                        if moment == "call_connected":  # noqa: B023  used within the same turn
                            handle.cancel()  # noqa: B023  as above

                    def response_started(self, status: int, headers: tuple[tuple[bytes, bytes], ...]) -> None:
                        super().response_started(status, headers)
                        handle.cancel()  # noqa: B023  as above

                recorder = Leaving()
                handle = pool.start(post(), recorder)
                await until(lambda: pool.statistics().connects > 0 and pool.statistics().open == 0)
                assert recorder.events == (["connected"] if moment == "call_connected" else ["connected", 200])
                assert recorder.chunks == []
                pool._connects = 0

    run(main())


def test_cancel_while_connecting_stops_the_dial_and_the_server_sees_it() -> None:
    """Expected a TCP connection stuck in its TLS handshake to be closed."""

    async def main() -> None:
        accepted, closed = asyncio.Event(), asyncio.Event()

        async def script(peer: Peer, _: int) -> None:
            accepted.set()
            await peer.client_closed()
            closed.set()

        async with raw_server(script) as server, open_pool(server.base_url("https"), verify_tls=False) as pool:
            recorder = Recorder()
            handle = pool.start(post(), recorder)
            await asyncio.wait_for(accepted.wait(), 5)
            handle.cancel()
            await asyncio.wait_for(closed.wait(), 5)
            assert (recorder.events, pool.statistics().connecting) == ([], 0)

    run(main())


def test_cancelling_several_connecting_calls_in_one_turn_stops_as_many_dials() -> None:
    """Expected no dial left over, whichever order the calls leave in."""

    async def main() -> None:
        accepted = 0

        async def script(peer: Peer, _: int) -> None:
            nonlocal accepted
            accepted += 1
            await peer.client_closed()

        async with raw_server(script) as server, open_pool(server.base_url("https"), verify_tls=False) as pool:
            handles = [pool.start(post(), Recorder()) for _ in range(4)]
            await until(lambda: accepted == 4)
            dials = list(pool._dials)
            handles[1].cancel()
            assert list(pool._dials) == [dials[0], dials[2], dials[3]], "the calls that stay must keep the dials that began with them"
            for index in (0, 3, 2):
                handles[index].cancel()
            counts = pool.statistics()
            assert (counts.connecting, counts.waiting) == (0, 0)

    run(main())


def test_cancel_during_the_second_try_stops_its_dial() -> None:
    """Expected silence, and no connection opened for a call that left after its first connection died."""

    async def main() -> None:
        lookups = 0
        blocked = asyncio.Event()

        async def lookup(_host: str, port: int) -> list[tuple[str, int]]:
            nonlocal lookups
            lookups += 1
            if lookups > 1:
                blocked.set()
                await asyncio.Event().wait()
            return [("127.0.0.1", port)]

        async def script(peer: Peer, _: int) -> None:
            await peer.request()
            await peer.send(OK)
            await peer.request()

        async with raw_server(script) as server, open_pool(server.base_url(host="model.test"), lookup=lookup) as pool:
            assert (await call(pool)).body == b"ok"
            pool._book.failed()
            recorder = Recorder()
            handle = pool.start(post(), recorder)
            await asyncio.wait_for(blocked.wait(), 5)
            assert pool.statistics().retried_unused == 1
            handle.cancel()
            assert (recorder.events, pool.statistics().connecting) == (["connected"], 0)

    run(main())


# ── back-pressure ─────────────────────────────────────────────────────────────


def test_pause_stops_the_server_and_resume_lets_everything_through() -> None:
    """Expected a server that cannot send on while the receiver pauses, and every byte in the end."""

    async def main() -> None:
        piece, pieces = b"x" * 65_536, 400

        async def script(peer: Peer, _: int) -> None:
            await peer.request()
            await peer.send(CHUNKED)
            for _ in range(pieces):
                await peer.send(b"10000\r\n" + piece + b"\r\n")
            all_sent.set()
            await peer.send(b"0\r\n\r\n")

        all_sent = asyncio.Event()
        async with raw_server(script) as server, open_pool(server.base_url()) as pool:

            class Slow(Recorder):
                def response_chunk(self, chunk: bytes) -> None:
                    super().response_chunk(chunk)
                    if not resumed:
                        handle.pause()
                        handle.pause()

            resumed = False
            recorder = Slow()
            handle = pool.start(post(), recorder)
            await asyncio.wait_for(recorder.chunk_came.wait(), 5)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(all_sent.wait(), 0.2)
            assert len(recorder.body) <= 262_144
            resumed = True
            handle.resume()
            await recorder.finished()
            assert len(recorder.body) == pieces * len(piece)

    run(main())


def test_a_paused_call_can_be_cancelled_and_the_server_sees_it() -> None:
    """Expected the close to arrive although nothing is read any more."""

    async def main() -> None:
        closed = asyncio.Event()

        async def script(peer: Peer, _: int) -> None:
            await peer.request()
            await peer.send(CHUNKED + b"1\r\na\r\n")
            await peer.client_closed()
            closed.set()

        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            recorder = Recorder()
            handle = pool.start(post(), recorder)
            await asyncio.wait_for(recorder.chunk_came.wait(), 5)
            handle.pause()
            handle.cancel()
            await asyncio.wait_for(closed.wait(), 5)

    run(main())


def test_a_connection_is_read_again_after_a_call_that_ended_paused() -> None:
    """Expected the next call over the same connection to be answered, and the idle one to notice the server's close."""

    async def main() -> None:
        async def script(peer: Peer, _: int) -> None:
            for _ in range(2):
                await peer.request()
                await peer.send(OK)
            await part.wait()

        part = asyncio.Event()
        async with raw_server(script) as server, open_pool(server.base_url()) as pool:

            class Pausing(Recorder):
                def response_chunk(self, chunk: bytes) -> None:
                    super().response_chunk(chunk)
                    handle.pause()

            for _ in range(2):
                recorder = Pausing()
                handle = pool.start(post(), recorder)
                await recorder.finished()
            assert (server.accepted, pool.statistics().idle) == (1, 1)
            part.set()
            await until(lambda: pool.statistics().open == 0)

    run(main())


def test_the_end_of_a_paused_connection_is_told_after_resume_behind_the_remaining_bytes() -> None:
    """Expected nothing while paused, then the last bytes, then RESET."""

    async def main() -> None:
        async def script(peer: Peer, _: int) -> None:
            await peer.request()
            await peer.send(CHUNKED + b"1\r\na\r\n")
            await paused.wait()
            await peer.send(b"1\r\nb\r\n")
            parted.set()

        paused, parted = asyncio.Event(), asyncio.Event()
        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            recorder = Recorder()
            handle = pool.start(post(), recorder)
            await asyncio.wait_for(recorder.chunk_came.wait(), 5)
            handle.pause()
            paused.set()
            await asyncio.wait_for(parted.wait(), 5)
            assert (recorder.body, recorder.events) == (b"a", ["connected", 200])
            handle.resume()
            await recorder.finished()
            assert (recorder.body, recorder.failure.kind) == (b"ab", CallFailureKind.RESET)

    run(main())


def test_a_call_paused_before_it_has_a_connection_starts_paused() -> None:
    """Expected no answer until resume, though the server sent it."""

    async def main() -> None:
        async def script(peer: Peer, _: int) -> None:
            await peer.request()
            await peer.send(OK)
            answered.set()
            await peer.client_closed()

        answered = asyncio.Event()
        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            recorder = Recorder()
            handle = pool.start(post(), recorder)
            handle.pause()
            await asyncio.wait_for(answered.wait(), 5)
            await asyncio.sleep(0)
            assert recorder.events == ["connected"]
            handle.resume()
            assert (await recorder.finished()).body == b"ok"

    run(main())
