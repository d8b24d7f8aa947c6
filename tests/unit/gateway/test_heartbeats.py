"""Heartbeats: when a committed stream is silent, between events, and at no other time (case S7)."""

from __future__ import annotations

import asyncio
import re

import pytest
from tests.unit.gateway.one_gateway import BODY, END, EPOCH_S, Client, OneGateway, event, run

from tidegate.gateway.stream_settings import StreamSettings

EVERY = StreamSettings(heartbeat_s=10.0)


async def begun(settings: StreamSettings, *chunks: bytes, client: Client | None = None) -> tuple[OneGateway, Client]:
    """A stream whose first pieces were relayed at time 0.001."""
    one, client = OneGateway(settings), client or Client()
    await one.call(client)
    one.upstream.answer(*(chunks or (event("a"),)))
    return one, client


def test_a_silent_stream_gets_a_heartbeat_each_interval() -> None:
    """One comment line with the time and a number that counts up; the events around it are as they were."""

    async def story() -> None:
        one, client = await begun(EVERY)
        await asyncio.sleep(35.0)
        one.upstream.end()
        beats = [EPOCH_S + 10.001 * 1.0, EPOCH_S + 20.001, EPOCH_S + 30.001]
        lines = [b": heartbeat %.3f %d\n" % (at, number) for number, at in enumerate(beats, 1)]
        assert client.text == event("a") + b"".join(lines) + END
        assert one.gateway.statistics().streams.heartbeats == 3
        assert client.finished

    run(story)


def test_a_stream_that_flows_gets_none() -> None:
    """Pieces nine seconds apart are never silent for ten: the client has the upstream's bytes."""

    async def story() -> None:
        one, client = await begun(EVERY)
        for _ in range(10):
            await asyncio.sleep(9.0)
            one.upstream.send(event("b"))
        one.upstream.end()
        assert client.text == event("a") + event("b") * 10 + END

    run(story)


def test_silence_is_measured_from_the_last_piece() -> None:
    """The heartbeat comes ten seconds after the last piece, not ten after the one before."""

    async def story() -> None:
        one, client = await begun(EVERY)
        await asyncio.sleep(9.0)
        one.upstream.send(event("b"))
        await asyncio.sleep(9.9)
        assert b"heartbeat" not in client.text
        await asyncio.sleep(0.2)
        assert client.text.count(b": heartbeat") == 1
        one.upstream.end()

    run(story)


def test_no_heartbeat_before_the_first_output() -> None:
    """Before the commit point nothing is sent, so that the call can still be retried unseen."""

    async def story() -> None:
        one, client = OneGateway(EVERY), Client()
        await one.call(client)
        one.upstream.answer(b": waiting\n\n")
        await asyncio.sleep(100.0)
        assert client.status == 0
        one.upstream.send(event("a"))
        one.upstream.end()
        assert b"heartbeat" not in client.text

    run(story)


def test_no_heartbeat_after_the_end() -> None:
    """The response ends with `[DONE]`; no timer is left."""

    async def story() -> None:
        one, client = await begun(EVERY)
        one.upstream.end()
        await asyncio.sleep(100.0)
        assert client.text == event("a") + END
        assert one.gateway.statistics().running == 0

    run(story)


def test_no_heartbeat_into_a_whole_answer() -> None:
    """An answer that is no stream has no place for one."""

    async def story() -> None:
        one, client = OneGateway(EVERY), Client(body=BODY.replace(b'"stream":true,', b""))
        await one.call(client)
        one.upstream.receiver.call_connected()
        one.upstream.receiver.response_started(200, ((b"content-type", b"application/json"),))
        await asyncio.sleep(100.0)
        answer = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}]}'
        one.upstream.send(answer)
        one.upstream.receiver.response_ended()
        assert client.text == answer

    run(story)


def test_heartbeats_can_be_turned_off() -> None:
    """`heartbeat_s: null` sends none."""

    async def story() -> None:
        one, client = await begun(StreamSettings(heartbeat_s=None))
        await asyncio.sleep(100.0)
        one.upstream.end()
        assert client.text == event("a") + END

    run(story)


def test_none_to_a_client_that_does_not_read() -> None:
    """While the client's socket is full a heartbeat would only wait behind the rest; and the upstream is not to blame."""

    async def story() -> None:
        client = Client()
        client.slow_after = 1
        one, client = await begun(EVERY, client=client)
        assert one.upstream.is_paused()
        await asyncio.sleep(100.0)
        assert client.text == event("a")
        client.slow_after = None
        client.receiver.write_resumed()
        assert not one.upstream.is_paused()
        await asyncio.sleep(10.1)
        assert client.text.count(b": heartbeat") == 1
        one.upstream.end()

    run(story)


@pytest.mark.parametrize("cut", [1, 5, 6, 20])
def test_a_heartbeat_never_cuts_an_event(cut: int) -> None:
    """Half an event is held back, so what comes between its halves stands between whole events."""

    async def story() -> None:
        one, client = await begun(EVERY)
        whole = event("b")
        one.upstream.send(whole[:cut])
        await asyncio.sleep(15.0)
        one.upstream.send(whole[cut:])
        one.upstream.end()
        assert re.sub(rb": heartbeat [0-9.]+ \d+\n", b"", client.text) == event("a") + whole + END
        assert client.text.startswith(event("a") + b": heartbeat")

    run(story)


def test_a_line_end_cut_in_two_stays_one() -> None:
    """After a heartbeat the LF of a CRLF would be a blank line of its own, and dispatch an empty event: it is left out."""

    async def story() -> None:
        first, second = event("a").replace(b"\n", b"\r\n"), event("b").replace(b"\n", b"\r\n")
        one, client = await begun(EVERY, first, second[:-1])
        await asyncio.sleep(15.0)
        one.upstream.send(b"\n")
        one.upstream.end()
        assert re.sub(rb": heartbeat [0-9.]+ \d+\n", b"<beat>", client.text) == first + second[:-1] + b"<beat>" + END

    run(story)


def test_a_client_that_leaves_ends_them() -> None:
    """Nothing is sent to nobody."""

    async def story() -> None:
        one, client = await begun(EVERY)
        client.leave()
        await asyncio.sleep(100.0)
        assert client.text == event("a")
        assert one.upstream.is_cancelled()
        assert one.gateway.statistics().running == 0

    run(story)
