"""What the driver sends when a limit has nothing left for a stream: its own end, at once, and nothing of the upstream's after it."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace
from tests.unit.gateway.one_gateway import END, Client, OneGateway, event, run

from tidegate.domain.outcome import Outcome
from tidegate.domain.principal import Limits
from tidegate.domain.usage import Evidence
from tidegate.gateway.stream_settings import StreamSettings
from tidegate.policy.resilience.leave import LeavePolicy
from tidegate.wire.event_ids import EventNumbering

QUIET = StreamSettings(heartbeat_s=None)
LONG = event("x" * 8192)
"""A thousand tokens, by the measure of its text: as much as is held for an answer without a cap."""
ENDING = (
    b'data: {"object":"chat.completion.chunk","tidegate":{"reason":"token_limit","rule":"key-tokens"},'
    b'"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}]}\n\n'
    b"data: [DONE]\n\n"
)


def limited(settings: StreamSettings = QUIET, *, tokens: int = 1700, leave: LeavePolicy | None = None) -> OneGateway:
    """A gateway whose client has enough for a thousand tokens, and a slice more."""
    one = OneGateway(settings, leave=leave)
    one.principals["key"] = replace(one.principals["key"], limits=Limits(tokens_per_minute=tokens))
    return one


def test_a_stream_ends_well_formed_and_its_upstream_at_once() -> None:
    """What came is sent as it came, then the end; what the upstream still sends is for nobody."""

    async def story() -> None:
        one, client = limited(), Client()
        await one.call(client)
        one.upstream.answer(event("a"), LONG)
        assert not one.upstream.is_cancelled()
        one.upstream.send(LONG)
        assert one.upstream.is_cancelled()
        assert client.finished
        one.upstream.send(LONG)
        one.upstream.end()
        assert client.text == event("a") + LONG * 2 + ENDING
        (record,) = one.records
        assert (Outcome.TRUNCATED, Evidence.ESTIMATED, "length") == (record.outcome, record.evidence, record.finish_reason)
        assert record.usage.completion_tokens == 2048
        assert one.gateway.statistics().running == 0
        assert one.limits.statistics(now=0.0).held_tokens == 0

    run(story)


def test_a_stream_with_enough_goes_on() -> None:
    """It holds more and more, and nobody notices."""

    async def story() -> None:
        one, client = limited(tokens=100_000), Client()
        await one.call(client)
        one.upstream.answer(*[LONG] * 5)
        one.upstream.end()
        assert client.text == LONG * 5 + END
        assert [Outcome.OK] == [record.outcome for record in one.records]

    run(story)


@pytest.mark.parametrize(
    "last",
    [LONG.replace(b'"finish_reason":null', b'"finish_reason":"stop"'), LONG + END],
    ids=["in-the-last-chunk", "with-the-end"],
)
def test_an_answer_that_is_complete_is_not_cut(last: bytes) -> None:
    """Nothing more will come, so that nothing is saved by ending it; what it used is settled."""

    async def story() -> None:
        one, client = limited(), Client()
        await one.call(client)
        one.upstream.answer(LONG, last)
        one.upstream.receiver.response_ended()
        assert client.text == LONG + last
        assert [Outcome.OK] == [record.outcome for record in one.records]

    run(story)


def test_a_first_chunk_may_be_more_than_there_is() -> None:
    """The response begins, and ends with it."""

    async def story() -> None:
        one, client = limited(), Client()
        await one.call(client)
        one.upstream.answer(event("x" * 16384))
        assert client.text == event("x" * 16384) + ENDING

    run(story)


def test_a_stream_that_began_early_is_cut_like_any_other() -> None:
    """With `commit_after_s` its head was out before the first output."""

    async def story() -> None:
        one = OneGateway(QUIET, commit_after_s=1.0)
        one.principals["key"] = replace(one.principals["key"], limits=Limits(tokens_per_minute=1700))
        client = Client()
        await one.call(client)
        await asyncio.sleep(1.1)
        one.upstream.answer(LONG, LONG)
        assert client.text == LONG * 2 + ENDING

    run(story)


def test_a_kept_call_is_stopped_when_its_tokens_are_used_up() -> None:
    """Its client is gone: nothing is sent, and the record is that of a client that left."""

    async def story() -> None:
        one, client = limited(leave=LeavePolicy(keep_for_s=None)), Client()
        await one.call(client)
        one.upstream.answer(LONG)
        client.leave()
        assert not one.upstream.is_cancelled()
        one.upstream.send(LONG)
        assert one.upstream.is_cancelled()
        assert client.text == LONG
        (record,) = one.records
        assert (Outcome.CLIENT_CANCELLED, 2048) == (record.outcome, record.usage.completion_tokens)

    run(story)


@pytest.mark.parametrize("away", [True, False], ids=["while-its-client-is-away", "before-its-client-left"])
def test_a_resumable_stream_replays_its_true_end(*, away: bool) -> None:
    """The end is numbered and kept like everything before it, and comes once."""

    async def story() -> None:
        one, client = limited(), Client(headers=((b"x-tidegate-resumable", b"1"),))
        await one.call(client)
        one.upstream.answer(LONG)
        stream_id = client.headers[b"x-tidegate-stream-id"].decode()
        if away:
            client.leave()
        one.upstream.send(LONG)
        assert one.upstream.is_cancelled()
        back = Client(body=b"", headers=((b"last-event-id", f"{stream_id}-1".encode()),))
        await one.call(back)
        numbering = EventNumbering(stream_id)
        whole = [piece for chunk in (LONG, LONG, ENDING) for _, piece in numbering.apply(chunk)]
        assert back.text == b"".join(whole[1:])
        assert back.finished
        assert away is (client.text != b"".join(whole))
        assert [Outcome.TRUNCATED, Outcome.OK] == [record.outcome for record in one.records]

    run(story)
