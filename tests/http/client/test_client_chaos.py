"""The pool's laws under a server that does anything and callers that leave at any moment."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.http.client.raw_server import CHUNKED, OK, Peer, Recorder, call, open_pool, post, raw_server, run

from tidegate.ports import CallFailure, CallFailureKind

DEEDS = {
    "answer": OK,
    "answer and close": b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
    "chunks": CHUNKED + b"2\r\nok\r\n0\r\n\r\n",
    "surplus": OK + b"more",
    "half": CHUNKED + b"2\r\no",
    "nonsense": b"\x16\x03\x01 not http\r\n\r\n",
    "nothing": b"",
}
LEAVES = ("never", "at once", "next turn", "connected", "started")


async def leave(moment: str, cancel: asyncio.Event, recorder: Recorder) -> None:
    match moment:
        case "next turn":
            await asyncio.sleep(0)
        case "connected":
            await _either(recorder.connected, recorder.over)
        case "started":
            await _either(recorder.started, recorder.over)
        case _:
            raise AssertionError(moment)
    cancel.set()


async def _either(first: asyncio.Event, second: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in (first, second)]
    await asyncio.wait(waits, timeout=5, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    await asyncio.gather(*waits, return_exceptions=True)


@settings(max_examples=40, deadline=None)
@given(
    deeds=st.lists(st.sampled_from(sorted(DEEDS)), min_size=1, max_size=12),
    leaves=st.lists(st.sampled_from(LEAVES), min_size=1, max_size=12),
    max_connections=st.integers(1, 4),
)
def test_law_every_call_ends_once_or_was_cancelled_and_the_pool_returns_to_rest(
    deeds: list[str], leaves: list[str], max_connections: int
) -> None:
    """Expected one final call for each that stayed, none after a cancel, nothing waiting or in use at the end."""

    async def main() -> None:
        turn = 0

        async def script(peer: Peer, _: int) -> None:
            nonlocal turn
            while await peer.request():
                deed, turn = deeds[turn % len(deeds)], turn + 1
                await peer.send(DEEDS[deed])
                if deed in {"answer and close", "half", "nothing"}:
                    return

        async with raw_server(script) as server, open_pool(server.base_url(), max_connections=max_connections) as pool:

            async def one(moment: str) -> None:
                recorder, cancel = Recorder(), asyncio.Event()
                handle = pool.start(post(), recorder)
                if moment == "never":
                    await recorder.finished()
                    assert sum(event == "ended" or isinstance(event, CallFailure) for event in recorder.events) == 1
                    return
                if moment != "at once":
                    await leave(moment, cancel, recorder)
                heard = list(recorder.events)
                handle.cancel()
                for _ in range(5):
                    await asyncio.sleep(0)
                assert recorder.events == heard

            await asyncio.gather(*(one(moment) for moment in leaves))
            counts = pool.statistics()
            assert (counts.in_use, counts.waiting) == (0, 0)
            assert counts.open + counts.connecting <= max_connections

    run(main())


def test_a_server_that_speaks_first_is_not_taken_for_an_http_server() -> None:
    """Expected PROTOCOL for a greeting, whether it comes before or just after the request is written."""

    async def main() -> None:
        async def script(peer: Peer, _: int) -> None:
            await peer.send(b"220 mail.test ready\r\n")
            await peer.client_closed()

        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            for _ in range(20):
                assert (await call(pool)).failure.kind is CallFailureKind.PROTOCOL

    run(main())


def test_a_server_that_closes_at_once_fails_the_call_once() -> None:
    """Expected CONNECT or RESET, as the close comes before or after the request is written, and no second connection."""

    async def main() -> None:
        async def script(peer: Peer, _: int) -> None:
            peer.reset()

        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            for _ in range(20):
                recorder = await call(pool)
                assert recorder.failure.kind in {CallFailureKind.CONNECT, CallFailureKind.RESET}
                assert len([event for event in recorder.events if event != "connected"]) == 1
            assert (server.accepted, pool.statistics().retried_unused) == (20, 0)

    run(main())
