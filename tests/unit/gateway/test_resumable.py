"""Resumable streams: what a client that comes back is sent, and what it is told when that cannot be."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.unit.gateway.one_gateway import BODY, END, Client, OneGateway, event, run

from tidegate.domain.outcome import Outcome
from tidegate.gateway.statistics import StreamStatistics
from tidegate.gateway.stream_settings import StreamSettings
from tidegate.wire.event_ids import EventNumbering

PLAIN = StreamSettings(heartbeat_s=None)
ASKS = (b"x-tidegate-resumable", b"1")


def asking(key: str = "key") -> Client:
    return Client(key, headers=(ASKS,))


def returning(last: str, key: str = "key", *, path: str = "/v1/chat/completions") -> Client:
    return Client(key, path=path, body=b"", headers=((b"last-event-id", last.encode()),))


async def begun(settings: StreamSettings, *chunks: bytes) -> tuple[OneGateway, Client, str]:
    """A resumable stream that has sent its first pieces; the last member is its id."""
    one, client = OneGateway(settings), asking()
    await one.call(client)
    one.upstream.answer(*(chunks or (event("a"), event("b"))))
    return one, client, client.headers[b"x-tidegate-stream-id"].decode()


def numbered(stream_id: str, *chunks: bytes) -> list[bytes]:
    numbering = EventNumbering(stream_id)
    return [piece for chunk in chunks for _, piece in numbering.apply(chunk)]


def error_of(client: Client) -> dict[str, object]:
    error: dict[str, object] = json.loads(client.text)["error"]
    return error


def test_every_event_has_an_id() -> None:
    """The response names the stream, and each event, `[DONE]` included, its place in it."""

    async def story() -> None:
        one, client, stream_id = await begun(PLAIN)
        one.upstream.end()
        assert client.text == b"".join(numbered(stream_id, event("a"), event("b"), END))
        assert client.text.count(b"id: ") == 4
        assert client.finished

    run(story)


def test_a_client_that_did_not_ask_gets_the_plain_stream() -> None:
    """No header, no ids."""

    async def story() -> None:
        one, client = OneGateway(PLAIN), Client()
        await one.call(client)
        one.upstream.answer(event("a"))
        one.upstream.end()
        assert client.text == event("a") + END
        assert b"x-tidegate-stream-id" not in client.headers
        assert one.gateway.statistics().streams.resumable == 0

    run(story)


def test_the_operator_can_turn_it_off() -> None:
    """Then the wish is ignored, and so is an id."""

    async def story() -> None:
        one, client = OneGateway(StreamSettings(heartbeat_s=None, resumable=False)), asking()
        await one.call(client)
        one.upstream.answer(event("a"))
        one.upstream.end()
        assert client.text == event("a") + END

    run(story)


def test_a_client_that_returns_gets_the_rest_byte_for_byte() -> None:
    """What it missed while it was away, then what comes; together the bytes of a stream that never broke."""

    async def story() -> None:
        one, client, stream_id = await begun(PLAIN)
        client.leave()
        one.upstream.send(event("c"), event("d"))
        await asyncio.sleep(5.0)
        assert not one.upstream.is_cancelled(), "the answer goes on being read"
        back = returning(f"{stream_id}-1")
        await one.call(back)
        one.upstream.send(event("e"))
        one.upstream.end()
        whole = numbered(stream_id, *(event(text) for text in "abcde"), END)
        assert back.status == 200
        assert back.headers[b"content-type"] == b"text/event-stream"
        assert back.headers[b"x-tidegate-stream-id"].decode() == stream_id
        assert back.text == b"".join(whole[1:])
        assert back.finished
        assert len(one.upstream.calls) == 1
        assert sorted((record.outcome, record.resumed) for record in one.records) == [(Outcome.OK, False), (Outcome.OK, True)]
        assert one.limits.statistics(now=0.0).outstanding == 0

    run(story)


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4])
def test_a_finished_stream_can_be_replayed_for_the_window(number: int) -> None:
    """From any event on, and from the start with the stream's id alone; as often as wanted."""

    async def story() -> None:
        one, _, stream_id = await begun(PLAIN)
        one.upstream.end()
        await asyncio.sleep(29.0)
        whole = numbered(stream_id, event("a"), event("b"), END)
        for _ in range(2):
            back = returning(f"{stream_id}-{number}" if number else stream_id)
            await one.call(back)
            assert (back.status, back.text, back.finished) == (200, b"".join(whole[number:]), True)
        await asyncio.sleep(2.0)
        late = returning(stream_id)
        await one.call(late)
        assert late.status == 404
        assert one.gateway.statistics().streams == StreamStatistics(
            resumable=0, resume_buffer_bytes=0, resumed=2, resume_missed=1, heartbeats=0
        )

    run(story)


def test_nobody_returns() -> None:
    """After the window the upstream is stopped, the request ends as one whose client left, and nothing is kept."""

    async def story() -> None:
        one, client, _ = await begun(PLAIN)
        client.leave()
        await asyncio.sleep(29.9)
        assert not one.upstream.is_cancelled()
        await asyncio.sleep(0.2)
        assert one.upstream.is_cancelled()
        assert [record.outcome for record in one.records] == [Outcome.CLIENT_CANCELLED]
        statistics = one.gateway.statistics()
        assert (statistics.running, statistics.streams.resumable, statistics.streams.resume_buffer_bytes) == (0, 0, 0)

    run(story)


def test_leaving_before_the_stream_began_ends_the_call_at_once() -> None:
    """There is no id yet by which anybody could return."""

    async def story() -> None:
        one, client = OneGateway(PLAIN), asking()
        await one.call(client)
        client.leave()
        assert one.upstream.is_cancelled()
        assert [record.outcome for record in one.records] == [Outcome.CLIENT_CANCELLED]

    run(story)


def test_a_later_client_takes_over() -> None:
    """The earlier connection is closed without an end, and nothing more goes there."""

    async def story() -> None:
        one, client, stream_id = await begun(PLAIN)
        second = returning(f"{stream_id}-1")
        await one.call(second)
        assert client.aborted
        third = returning(f"{stream_id}-2")
        await one.call(third)
        assert second.aborted
        one.upstream.end()
        whole = numbered(stream_id, event("a"), event("b"), END)
        assert second.text == whole[1]
        assert third.text == b"".join(whole[2:])
        client.leave()  # late news: another has subscribed since
        assert sorted(record.outcome for record in one.records if record.resumed) == [Outcome.CLIENT_CANCELLED, Outcome.OK]

    run(story)


@pytest.mark.parametrize(
    ("last", "key", "path"),
    [
        ("{id}-1", "other", "/v1/chat/completions"),
        ("{id}-9", "key", "/v1/chat/completions"),
        ("{id}-1", "key", "/v1/completions"),
        ("0." + "f" * 24, "key", "/v1/chat/completions"),
        ("7." + "f" * 24, "key", "/v1/chat/completions"),
    ],
    ids=["another-key", "an-event-to-come", "another-path", "unknown", "no-such-worker"],
)
def test_what_cannot_be_resumed_is_not_found(last: str, key: str, path: str) -> None:
    """One answer for all causes, that says what to do; the stream itself goes on."""

    async def story() -> None:
        one, client, stream_id = await begun(PLAIN)
        back = returning(last.format(id=stream_id), key, path=path)
        await one.call(back)
        assert back.status == 404
        assert error_of(back)["code"] == "stream_not_found"
        assert "again, without last-event-id" in str(error_of(back)["message"])
        assert not client.aborted
        one.upstream.end()
        assert client.finished
        assert one.gateway.statistics().streams.resume_missed == 1
        assert [record.outcome for record in one.records if record.resumed] == [Outcome.REJECTED_INVALID]

    run(story)


def test_a_key_that_is_not_known_is_refused() -> None:
    """Authentication comes first, from memory or not; a wrong key learns nothing."""

    async def story() -> None:
        one, _, stream_id = await begun(PLAIN)
        one._slow_verdicts = True
        stranger, owner = returning(f"{stream_id}-1", "stranger"), returning(f"{stream_id}-1")
        await one.call(stranger)
        assert stranger.status == 401
        assert stranger.headers[b"www-authenticate"] == b"Bearer"
        await one.call(owner)
        assert owner.status == 200
        one.upstream.end()

    run(story)


@pytest.mark.parametrize("foreign", ["evt_17", "0.123", ""])
def test_an_id_of_somebody_else_is_ignored(foreign: str) -> None:
    """A client that sends ids of the upstream's own makes an ordinary request."""

    async def story() -> None:
        one, client = OneGateway(PLAIN), Client(headers=((b"last-event-id", foreign.encode()),))
        await one.call(client)
        one.upstream.answer(event("a"))
        one.upstream.end()
        assert client.text == event("a") + END

    run(story)


def test_a_tail_that_is_lost_is_gone() -> None:
    """A stream keeps what its bound allows; who asks for older events is told so with a 410, and newer ones are there."""

    async def story() -> None:
        texts = [f"{number:0300}" for number in range(10)]
        one, client, stream_id = await begun(StreamSettings(heartbeat_s=None, resume_buffer_bytes=1500), *map(event, texts))
        client.leave()
        early, late = returning(f"{stream_id}-1"), returning(f"{stream_id}-8")
        await one.call(early)
        assert early.status == 410
        assert error_of(early)["code"] == "stream_tail_lost"
        await one.call(late)
        assert late.text == b"".join(numbered(stream_id, *map(event, texts))[8:])
        assert 0 < one.gateway.statistics().streams.resume_buffer_bytes <= 1500
        one.upstream.end()

    run(story)


def test_all_streams_together_have_a_bound() -> None:
    """A finished stream goes first; then the one that grows loses its own oldest events."""

    async def story() -> None:
        settings = StreamSettings(heartbeat_s=None, resume_total_bytes=2048)
        one, _, first_id = await begun(settings, event("x" * 1000))
        one.upstream.end()
        second = asking()
        await one.call(second)
        one.upstream.answer(event("y" * 900), event("z" * 900))
        back = returning(first_id)
        await one.call(back)
        assert back.status == 404
        one.upstream.send(event("w" * 900))
        second_id = second.headers[b"x-tidegate-stream-id"].decode()
        lost, kept = returning(second_id), returning(f"{second_id}-2")
        await one.call(lost)
        assert lost.status == 410
        await one.call(kept)
        assert kept.text == numbered(second_id, event("y" * 900), event("z" * 900), event("w" * 900))[2]
        one.upstream.end()

    run(story)


def test_pauses_follow_whoever_sits_there() -> None:
    """A slow client pauses the upstream until it leaves or is replaced; a slow one that returns pauses it too."""

    async def story() -> None:
        one, client = OneGateway(PLAIN), asking()
        client.slow_after = 1
        await one.call(client)
        one.upstream.answer(event("a"))
        assert one.upstream.is_paused()
        client.leave()
        assert not one.upstream.is_paused()
        stream_id = client.headers[b"x-tidegate-stream-id"].decode()
        slow = returning(stream_id)
        slow.slow_after = 1
        await one.call(slow)
        assert one.upstream.is_paused()
        slow.receiver.write_resumed()
        assert not one.upstream.is_paused()
        slow.receiver.write_paused()
        quick = returning(stream_id)
        await one.call(quick)
        assert not one.upstream.is_paused()
        one.upstream.end()
        assert quick.finished

    run(story)


def test_an_error_has_nothing_to_resume() -> None:
    """A refused request is answered as ever, and no stream is kept."""

    async def story() -> None:
        one, client = OneGateway(PLAIN), asking()
        client._body = b"{"
        await one.call(client)
        assert client.status == 400
        assert one.gateway.statistics().streams.resumable == 0

    run(story)


def test_a_whole_answer_has_nothing_to_resume() -> None:
    """The wish concerns streams only."""

    async def story() -> None:
        one, client = OneGateway(PLAIN), asking()
        client._body = BODY.replace(b'"stream":true,', b"")
        await one.call(client)
        one.upstream.receiver.call_connected()
        one.upstream.receiver.response_started(200, ((b"content-type", b"application/json"),))
        one.upstream.send(b'{"choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}]}')
        one.upstream.receiver.response_ended()
        assert client.status == 200
        assert b"x-tidegate-stream-id" not in client.headers

    run(story)


def test_heartbeats_are_not_replayed() -> None:
    """They go to whoever is there when they are due, have no id, and are not kept."""

    async def story() -> None:
        one, client, stream_id = await begun(StreamSettings(heartbeat_s=10.0))
        await asyncio.sleep(11.0)
        assert client.sent[-1].startswith(b": heartbeat ")
        client.leave()
        await asyncio.sleep(11.0)
        back = returning(stream_id)
        await one.call(back)
        one.upstream.end()
        assert back.text == b"".join(numbered(stream_id, event("a"), event("b"), END))

    run(story)


def test_a_drain_ends_those_who_wait_for_nobody() -> None:
    """No connection is accepted any more, so nobody can return: such streams end at once, those with a client go on."""

    async def story() -> None:
        one, left, _ = await begun(PLAIN)
        alone = one.upstream.receiver
        stays = asking()
        await one.call(stays)
        one.upstream.answer(event("c"))
        assert alone is not one.upstream.receiver
        left.leave()
        one.gateway.begin_drain()
        assert [record.outcome for record in one.records] == [Outcome.CLIENT_CANCELLED]
        one.upstream.end()
        assert stays.finished
        assert not stays.aborted

    run(story)


def test_a_stream_that_ends_after_the_drain_is_not_kept() -> None:
    """Nobody can come back for it: no tail, no timer that outlives the gateway."""

    async def story() -> None:
        one, _, _ = await begun(PLAIN)
        one.gateway.begin_drain()
        one.upstream.end()
        left = one.gateway.statistics().streams
        assert (0, 0) == (left.resumable, left.resume_buffer_bytes)

    run(story)


def test_a_broken_stream_says_so_to_the_client_that_returns() -> None:
    """The in-band error is an event like any other: numbered, kept and replayed, without a forged `[DONE]`."""

    async def story() -> None:
        one, client, stream_id = await begun(PLAIN)
        client.leave()
        one.upstream.receiver.response_ended()
        back = returning(f"{stream_id}-2")
        await one.call(back)
        assert back.text.startswith(f"id: {stream_id}-3\n".encode())
        assert b"stream_interrupted" in back.text
        assert b"[DONE]" not in back.text
        assert back.finished

    run(story)
