"""What the driver makes of a client that left and of a stream that begins early: bytes, sockets and memory."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.gateway.one_gateway import BODY, END, REPLICA, Client, OneGateway, event, run

from tidegate.domain.outcome import Outcome
from tidegate.domain.upstream import Timeouts
from tidegate.domain.usage import Evidence
from tidegate.gateway.stream_settings import StreamSettings
from tidegate.policy.resilience.leave import LeavePolicy

QUIET = StreamSettings(heartbeat_s=None)
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}\n\n'
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n' + USAGE + b"data: [DONE]\n\n"
KEEP = LeavePolicy(keep_for_s=None)


@pytest.mark.parametrize("output", [True, False], ids=["in-the-middle", "before-the-first-token"])
def test_a_detached_stream_is_read_for_its_usage(*, output: bool) -> None:
    """The client is gone, the upstream is not stopped, nothing is sent or held, and what it reports is what is recorded."""

    async def story() -> None:
        one, client = OneGateway(QUIET, leave=KEEP), Client()
        await one.call(client)
        one.upstream.answer(event("a") if output else b": wait\n\n")
        sent = client.text
        client.leave()
        assert not one.upstream.is_cancelled()
        for _ in range(1000):
            one.upstream.send(event("b" * 1000))
        (driver,) = one.gateway._running
        assert driver._attempt is not None
        assert driver._attempt.held == b""
        one.upstream.send(FINISH)
        one.upstream.receiver.response_ended()
        assert client.text == sent
        (record,) = one.records
        assert (record.outcome, record.evidence, record.usage.total_tokens) == (Outcome.CLIENT_CANCELLED, Evidence.REPORTED, 7)
        assert one.gateway.statistics().running == 0

    run(story)


def test_a_detached_whole_answer_is_read_for_its_usage() -> None:
    """Its usage is inside it, so it is read to its end, and thrown away."""

    async def story() -> None:
        one, client = OneGateway(QUIET, leave=KEEP), Client(body=BODY.replace(b'"stream":true,', b""))
        await one.call(client)
        one.upstream.receiver.call_connected()
        one.upstream.receiver.response_started(200, ((b"content-type", b"application/json"),))
        client.leave()
        choice = b'{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}'
        one.upstream.send(b'{"choices":[%b],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}' % choice)
        one.upstream.receiver.response_ended()
        (record,) = one.records
        assert (record.outcome, record.usage.total_tokens) == (Outcome.CLIENT_CANCELLED, 7)

    run(story)


def test_a_slow_client_that_left_no_longer_holds_the_upstream_back() -> None:
    """The pause was for its sake."""

    async def story() -> None:
        one, client = OneGateway(QUIET, leave=KEEP), Client()
        client.slow_after = 1
        await one.call(client)
        one.upstream.answer(event("a"))
        assert one.upstream.is_paused()
        client.leave()
        assert not one.upstream.is_paused()
        one.upstream.end()

    run(story)


def test_a_drained_stream_has_a_limit() -> None:
    """When its time is up the upstream is stopped, and what was counted is what is recorded."""

    async def story() -> None:
        one, client = OneGateway(QUIET, leave=LeavePolicy(keep_for_s=5.0)), Client()
        await one.call(client)
        one.upstream.answer(event("a"))
        client.leave()
        await asyncio.sleep(4.9)
        assert not one.upstream.is_cancelled()
        await asyncio.sleep(0.2)
        assert one.upstream.is_cancelled()
        assert [record.outcome for record in one.records] == [Outcome.CLIENT_CANCELLED]

    run(story)


def test_a_detached_stream_gets_no_heartbeats() -> None:
    """There is nobody to keep awake."""

    async def story() -> None:
        one, client = OneGateway(StreamSettings(heartbeat_s=1.0), leave=KEEP), Client()
        await one.call(client)
        one.upstream.answer(event("a"))
        client.leave()
        await asyncio.sleep(20.0)
        one.upstream.end()
        assert client.text == event("a")
        assert one.gateway.statistics().streams.heartbeats == 0

    run(story)


def test_a_resumable_stream_whose_window_is_over_is_drained_too() -> None:
    """The two waits follow each other: first for the client, then for the usage."""

    async def story() -> None:
        one, client = OneGateway(QUIET, leave=KEEP), Client(headers=((b"x-tidegate-resumable", b"1"),))
        await one.call(client)
        one.upstream.answer(event("a"))
        client.leave()
        await asyncio.sleep(31.0)
        assert not one.upstream.is_cancelled()
        one.upstream.send(event("b"))
        assert one.gateway.statistics().streams.resume_buffer_bytes == 0
        one.upstream.send(FINISH)
        one.upstream.receiver.response_ended()
        assert [(record.outcome, record.usage.total_tokens) for record in one.records] == [(Outcome.CLIENT_CANCELLED, 7)]

    run(story)


def test_a_stream_may_begin_before_the_upstream_answers() -> None:
    """With `commit_after_s` the head and heartbeats come first, the upstream's bytes follow untouched."""

    async def story() -> None:
        one, client = OneGateway(StreamSettings(heartbeat_s=1.0), commit_after_s=2.0), Client()
        await one.call(client)
        await asyncio.sleep(2.0)
        assert client.status == 200
        assert client.headers[b"content-type"] == b"text/event-stream"
        assert b"x-request-id" in client.headers
        await asyncio.sleep(1.1)
        beats = client.text
        assert beats.count(b": heartbeat ") == len(beats.splitlines()) == 1
        one.upstream.answer(b": wait\n\n")
        one.upstream.send(event("a"), event("b"))
        one.upstream.end()
        assert client.text == beats + b": wait\n\n" + event("a") + event("b") + END
        (record,) = one.records
        assert record.outcome is Outcome.OK
        assert record.ttft_s is not None
        assert record.ttft_s > 3.0

    run(story)


def test_a_stream_that_began_early_sends_what_was_held() -> None:
    """What came before the first output goes out with the head."""

    async def story() -> None:
        one, client = OneGateway(QUIET, commit_after_s=2.0), Client()
        await one.call(client)
        one.upstream.answer(b": wait\n\n")
        await asyncio.sleep(2.1)
        assert client.text == b": wait\n\n"
        one.upstream.send(event("a"))
        one.upstream.end()
        assert client.text == b": wait\n\n" + event("a") + END

    run(story)


@pytest.mark.parametrize("status", [400, 503])
def test_a_failure_after_an_early_beginning_is_an_error_event(status: int) -> None:
    """The status is spent: the error comes in the stream, which ends without `[DONE]`."""

    async def story() -> None:
        one, client = OneGateway(QUIET, commit_after_s=1.0), Client()
        await one.call(client)
        await asyncio.sleep(1.1)
        one.upstream.receiver.call_connected()
        one.upstream.receiver.response_started(status, ((b"content-type", b"application/json"),))
        one.upstream.send(b'{"error":{"message":"no","type":"x","param":null,"code":"no"}}')
        one.upstream.receiver.response_ended()
        assert client.status == 200
        assert client.finished
        assert b'data: {"error":' in client.text
        assert b"[DONE]" not in client.text
        assert len(one.upstream.calls) == 1

    run(story)


def test_a_lost_replica_is_left_before_its_first_output() -> None:
    """The driver passes on what health checks find; a stream that flows goes on."""

    async def story() -> None:
        one, waiting = OneGateway(QUIET), Client()
        await one.call(waiting)
        assert one.gateway.replica_lost(REPLICA, "it does not answer") == 1
        assert one.upstream.is_cancelled()
        assert waiting.status == 0
        flowing = Client()
        await one.call(flowing)
        one.upstream.answer(event("a"))
        one.gateway.replica_lost(REPLICA, "it does not answer")
        one.upstream.end()
        assert flowing.text == event("a") + END

    run(story)


def test_a_stream_that_stalls_before_its_first_output_ends_in_time() -> None:
    """A piece without output is no event, and the clock that begins with it is shorter than the alarm that was set before."""

    async def story() -> None:
        one, client = OneGateway(QUIET, timeouts=Timeouts(stall_s=2.0)), Client()
        await one.call(client)
        await asyncio.sleep(0.5)
        one.upstream.answer()
        await asyncio.sleep(0.1)
        one.upstream.send(b": wait\n\n")
        await asyncio.sleep(1.95)
        assert not one.upstream.is_cancelled()
        await asyncio.sleep(0.1)
        assert one.upstream.is_cancelled()
        client.leave()
        (record,) = one.records
        assert [attempt.result for attempt in record.attempts] == ["timeout_stall"]

    run(story)


def test_silence_before_the_body_is_not_a_stall() -> None:
    """The server computes a long prompt: also for a client that reads slowly only the first token's clock runs."""

    async def story() -> None:
        one, client = OneGateway(StreamSettings(heartbeat_s=1.0), timeouts=Timeouts(stall_s=2.0), commit_after_s=0.5), Client()
        client.slow_after = 1
        await one.call(client)
        one.upstream.answer()
        await asyncio.sleep(5.0)
        assert one.upstream.is_paused()
        client.slow_after = None
        client.receiver.write_resumed()
        await asyncio.sleep(10.0)
        assert not one.upstream.is_cancelled()
        one.upstream.send(event("a"))
        one.upstream.end()
        assert [record.outcome for record in one.records] == [Outcome.OK]

    run(story)
