"""A client that returns to another worker than the one it left: its request is passed on, and so is the answer."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.unit.gateway.one_gateway import Client, OneGateway, Upstream, run

from tidegate.gateway.stream_settings import StreamSettings
from tidegate.ports import CallFailure, CallFailureKind

ELSEWHERE = b"1.00000000000000000000abcd-4"
FIELDS = ((b"last-event-id", ELSEWHERE), (b"connection", b"keep-alive"), (b"host", b"gateway"))


async def passed_on(key: str = "key") -> tuple[OneGateway, Upstream, Client]:
    """Worker 0 of two, a client whose stream is at worker 1, and the call that goes there."""
    peer = Upstream()
    one = OneGateway(StreamSettings(heartbeat_s=None), peers={1: peer})
    client = Client(key, headers=FIELDS)
    await one.call(client)
    return one, peer, client


def test_the_answer_comes_byte_for_byte() -> None:
    """The other worker gets the caller's own headers and makes the record; no upstream is called."""

    async def story() -> None:
        one, peer, client = await passed_on()
        (request,) = peer.calls
        assert (request.method, request.path, request.body) == ("POST", "/v1/chat/completions", b"")
        names = {name for name, _ in request.headers}
        assert {b"authorization", b"last-event-id"} <= names
        assert not names & {b"host", b"connection"}
        peer.receiver.call_connected()
        peer.receiver.response_started(200, ((b"content-type", b"text/event-stream"), (b"transfer-encoding", b"chunked")))
        peer.send(b"id: x\n", b"data: a\n\n")
        client.receiver.write_paused()
        assert peer.is_paused()
        client.receiver.write_resumed()
        assert not peer.is_paused()
        peer.receiver.response_ended()
        assert (client.status, client.text, client.finished) == (200, b"id: x\ndata: a\n\n", True)
        assert b"transfer-encoding" not in client.headers
        assert one.upstream.calls == []
        assert one.records == []

    run(story)


def test_a_refusal_comes_whole() -> None:
    """With its status, so that the client's SDK knows it."""

    async def story() -> None:
        _, peer, client = await passed_on()
        peer.receiver.response_started(410, ((b"content-type", b"application/json"), (b"content-length", b"2")))
        peer.send(b"{", b"}")
        peer.receiver.response_ended()
        assert (client.status, client.text, client.finished) == (410, b"{}", True)
        assert client.headers == {b"content-type": b"application/json"}

    run(story)


def test_a_worker_that_died_has_lost_its_streams() -> None:
    """The client is told to begin anew, and this worker makes the record."""

    async def story() -> None:
        one, peer, client = await passed_on()
        peer.receiver.call_failed(CallFailure(CallFailureKind.CONNECT, "no such socket"))
        assert client.status == 404
        assert json.loads(client.text)["error"]["code"] == "stream_not_found"
        assert [(record.status, record.resumed) for record in one.records] == [(404, True)]

    run(story)


def test_a_worker_that_dies_in_the_middle_breaks_the_response() -> None:
    """The client sees that it is not complete, and may come back once more."""

    async def story() -> None:
        _, peer, client = await passed_on()
        peer.receiver.response_started(200, ())
        peer.send(b"data: a\n\n")
        peer.receiver.call_failed(CallFailure(CallFailureKind.RESET, "gone"))
        assert client.aborted

    run(story)


def test_a_worker_that_does_not_answer() -> None:
    """After a while the client hears that it is worth another try."""

    async def story() -> None:
        _, peer, client = await passed_on()
        await asyncio.sleep(10.1)
        assert peer.is_cancelled()
        assert client.status == 503
        assert client.headers[b"retry-after"] == b"1"

    run(story)


def test_a_worker_that_gets_stuck_in_the_middle_breaks_the_response() -> None:
    """Longer than any clock of the stream lets it be silent: the client sees that it is not complete, and may come back."""

    async def story() -> None:
        _, peer, client = await passed_on()
        peer.receiver.response_started(200, ())
        for _ in range(3):
            await asyncio.sleep(69.0)
            peer.send(b": still there\n\n")
        await asyncio.sleep(69.0)
        assert not client.over
        await asyncio.sleep(1.1)
        assert client.aborted
        assert peer.is_cancelled()

    run(story)


def test_a_worker_is_not_stuck_while_the_client_makes_it_wait() -> None:
    """Silence that the client asked for is none; from its end on the clock runs anew."""

    async def story() -> None:
        _, peer, client = await passed_on()
        peer.receiver.response_started(200, ())
        client.receiver.write_paused()
        await asyncio.sleep(500.0)
        client.receiver.write_resumed()
        await asyncio.sleep(69.0)
        assert not client.over
        client.receiver.write_paused()
        peer.receiver.response_ended()
        client.receiver.write_resumed()
        await asyncio.sleep(500.0)
        assert (client.finished, client.aborted) == (True, False)

    run(story)


def test_a_refusal_that_does_not_become_whole() -> None:
    """It has the time of a head in all; then the client hears that it is worth another try."""

    async def story() -> None:
        _, peer, client = await passed_on()
        peer.receiver.response_started(410, ())
        await asyncio.sleep(10.1)
        assert peer.is_cancelled()
        assert client.status == 503

    run(story)


@pytest.mark.parametrize("began", [True, False])
def test_a_client_that_leaves_again(*, began: bool) -> None:
    """The other worker hears of it by the end of the connection."""

    async def story() -> None:
        one, peer, client = await passed_on()
        if began:
            peer.receiver.response_started(200, ())
        client.leave()
        assert peer.is_cancelled()
        await asyncio.sleep(20.0)
        assert one.records == []

    run(story)


def test_a_stranger_is_not_passed_on() -> None:
    """The credential is looked at here first."""

    async def story() -> None:
        _, peer, client = await passed_on("stranger")
        assert client.status == 401
        assert peer.calls == []

    run(story)
