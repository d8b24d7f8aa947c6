"""A request's place in a trace: what its record says of it, what its upstream is told, and what the model server says of its own work."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.gateway.one_gateway import BODY, END, REPLICA, Client, OneGateway, event, run

from tidegate.domain.record import AttemptRecord, RequestRecord
from tidegate.domain.units import Headers
from tidegate.gateway.services import UpstreamEndpoint
from tidegate.gateway.stream_settings import StreamSettings
from tidegate.testing.header_fields import fields_of
from tidegate.wire.dialects import DIALECTS
from tidegate.wire.trace_context import NO_SHARE, attempt_span_id, share_threshold

QUIET = StreamSettings(heartbeat_s=None)
TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
STREAM: Headers = ((b"content-type", b"text/event-stream"),)
USAGE = b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7},"timings":%b}'
LAST = b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"timings":%b}'
TIMINGS = b'{"prompt_n":3,"prompt_ms":250.0,"predicted_n":4,"predicted_ms":1000}'


def told(
    *headers: tuple[bytes, bytes],
    threshold: str = NO_SHARE,
    dialect: str = "llamacpp",
    answer: Headers = STREAM,
    chunks: tuple[bytes, ...] = (event("x"), END),
    body: bytes = BODY,
) -> tuple[RequestRecord, bytes | None, Client]:
    """Have one request answered; give its record, the `traceparent` that went to the upstream, and the client."""
    client = Client(headers=headers, body=body)
    seen: list[Any] = []

    async def story() -> None:
        one = OneGateway(QUIET)
        endpoint = UpstreamEndpoint(one.upstream, DIALECTS[dialect], b"", continues_trace=dialect in {"llamacpp", "vllm"})
        one.gateway.replace_services(replace(one.gateway.services, endpoints={REPLICA: endpoint}, trace_threshold=threshold))
        await one.call(client)
        one.upstream.receiver.call_connected()
        one.upstream.receiver.response_started(200, answer)
        one.upstream.send(*chunks)
        one.upstream.receiver.response_ended()
        seen.extend((one.records[0], dict(fields_of(one.upstream.calls[0].lines)).get(b"traceparent")))

    run(story)
    return seen[0], seen[1], client


# ── the trace ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("03", True)])
def test_the_caller_s_trace_is_continued(flags: str, sampled: bool) -> None:
    """The client is told of the request's span and the upstream of the attempt's, with the caller's flags."""
    record, sent, client = told((b"traceparent", f"00-{TRACE}-{CALLER}-{flags}".encode()), threshold=share_threshold(1.0))
    assert (TRACE, CALLER, sampled) == (record.trace_id, record.parent_span_id, record.sampled)
    assert f"00-{TRACE}-{record.span_id}-{flags}".encode() == client.headers[b"traceparent"]
    assert f"00-{TRACE}-{attempt_span_id(record.span_id, 1)}-{flags}".encode() == sent


@pytest.mark.parametrize("headers", [(), ((b"x-request-id", b"mine"), (b"traceparent", f"00-{TRACE}-{CALLER}-01".encode()))])
def test_what_is_not_served_has_its_place_in_a_trace_too(headers: Headers) -> None:
    """A wrong path gets the same ids as a right one, made or taken over, and its record has them."""

    async def story() -> None:
        one, client = OneGateway(QUIET), Client(path="/v1/nothing", headers=(*headers, (b"x-tidegate-color", b"red")))
        await one.call(client)
        (record,) = one.records
        assert ("none", 404, "red") == (record.operation, record.status, record.color)
        flags = "01" if headers else "00"
        assert f"00-{record.trace_id}-{record.span_id}-{flags}".encode() == client.headers[b"traceparent"]
        assert record.request_id.encode() == client.headers[b"x-request-id"]
        assert (record.sampled, record.parent_span_id) == ((True, CALLER) if headers else (False, ""))
        if headers:
            assert ("mine", TRACE) == (record.request_id, record.trace_id)
        else:
            assert (28, 32) == (len(record.request_id), len(record.trace_id))

    run(story)


@pytest.mark.parametrize(("threshold", "flags"), [(NO_SHARE, "00"), (share_threshold(1.0), "01")])
def test_a_trace_that_begins_here_is_sampled_where_it_is_in_the_share(threshold: str, flags: str) -> None:
    """Without a caller, or with one that cannot be read."""
    record, sent, _ = told((b"traceparent", b"garbage"), threshold=threshold)
    assert ("", flags == "01") == (record.parent_span_id, record.sampled)
    assert f"00-{record.trace_id}-{attempt_span_id(record.span_id, 1)}-{flags}".encode() == sent


def test_a_vendor_is_not_told_of_the_trace() -> None:
    """It goes to servers of our own only."""
    assert told(dialect="dashscope")[1] is None


def test_the_business_context_is_kept_as_it_came_and_bounded() -> None:
    """It is read later, by whoever wants it."""
    assert "feature=faq; order=17" == told((b"x-business-context", b"feature=faq; order=17"))[0].business_context
    assert "" == told()[0].business_context
    assert 4096 == len(told((b"x-business-context", b"x" * 9000))[0].business_context)


# ── the model server's own times ───────────────────────────────────────────────


def _times(record: RequestRecord) -> tuple[float | None, float | None, float | None]:
    (attempt,) = record.attempts
    return attempt.queue_s, attempt.prefill_s, attempt.decode_s


@pytest.mark.parametrize("last", [LAST, USAGE])
def test_a_stream_s_timings_are_taken_from_its_last_chunk(last: bytes) -> None:
    """Where usage comes it is that one, else the one with the finish reason."""
    chunks = (event("x"), b"data: " + last % TIMINGS + b"\n\n", END)
    assert (None, 0.25, 1.0) == _times(told(chunks=chunks)[0])


def test_a_whole_answer_has_them_beside_its_usage() -> None:
    """In the same body."""
    choice = b'{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}'
    chunk = b'{"choices":[%b],"timings":%b}' % (choice, TIMINGS)
    whole = BODY.replace(b'"stream":true,', b"")
    assert (None, 0.25, 1.0) == _times(told(answer=((b"content-type", b"application/json"),), chunks=(chunk,), body=whole)[0])


@pytest.mark.parametrize(
    ("timings", "expected"),
    [
        (b"[]", (None, None, None)),
        (b"{}", (None, None, None)),
        (b'{"prompt_ms":true,"predicted_ms":"5"}', (None, None, None)),
        (b'{"prompt_ms":-1,"predicted_ms":20}', (None, None, 0.02)),
        (b'{"prompt_ms":1e300,"predicted_ms":20}', (None, None, 0.02)),
    ],
)
def test_timings_of_odd_kinds_are_not_believed(timings: bytes, expected: object) -> None:
    """A duration is a number, not below zero, and at most a day."""
    assert expected == _times(told(chunks=(event("x"), b"data: " + LAST % timings + b"\n\n", END))[0])


@pytest.mark.parametrize(("value", "expected"), [(b"350", 0.35), (b"", None), (b"-5", None), (b"9" * 10, None), (b"999999999", None)])
def test_dashscope_says_when_its_first_output_was_ready(value: bytes, expected: float | None) -> None:
    """In a header of a stream, in milliseconds."""
    answer = (*STREAM, (b"req-cost-time", value))
    assert (None, expected, None) == _times(told(dialect="dashscope", answer=answer)[0])
    assert (None, None, None) == _times(told(dialect="openai", answer=answer)[0])


def test_an_attempt_s_start_is_known() -> None:
    """Since the request was received; what is not known is not written."""
    (attempt,) = told()[0].attempts
    assert 0.0 <= attempt.began_s < 0.1
    assert AttemptRecord(1, "r", "ok").began_s == 0.0
