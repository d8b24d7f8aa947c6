"""Spans posted to a collector that takes them, refuses them, asks for a pause, is silent, or is not there."""

from __future__ import annotations

import socket
from typing import Any

import msgspec
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTracePartialSuccess, ExportTraceServiceResponse
from opentelemetry.proto.trace.v1 import trace_pb2
from tests.unit.tracing.receiver import Instead, Receiver, attributes_of

from tidegate.adapters.otlp.collector import Collector
from tidegate.adapters.otlp.span_feed import Rejected, Taken, Unavailable
from tidegate.analytics.spans import Kind, Span, SpanEvent
from tidegate.domain.units import Secret

SPAN = Span(
    trace_id="0af7651916cd43dd8448eb211c80319c",
    span_id="b7ad6b7169203331",
    parent_id="00f067aa0ba902b7",
    name="chat fast",
    kind=Kind.SERVER,
    began_at=1_793_780_000.25,
    ended_at=1_793_780_001.5,
    attributes={"gen_ai.usage.input_tokens": 7, "gen_ai.response.finish_reasons": ("stop",), "gen_ai.request.stream": True},
    events=(SpanEvent("tidegate.committed", 1_793_780_000.5, {"a": "b"}),),
    error="failed_upstream",
    is_parent_remote=True,
)


def _collector(receiver: Receiver, *, deadline_s: float = 5.0) -> Collector:
    headers = {"authorization": Secret("Bearer collector-token")}
    return Collector(receiver.endpoint, headers, resource={"service.name": "gate"}, deadline_s=deadline_s)


def test_a_span_arrives_as_it_is() -> None:
    """Ids, times to the microsecond, kind, status, attributes, events, the resource and the headers."""
    with Receiver() as receiver:
        collector = _collector(receiver)
        assert Taken() == collector.send([SPAN])
        collector.close()
    (span,) = receiver.spans()
    ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
    assert (SPAN.trace_id, SPAN.span_id, SPAN.parent_id) == ids
    assert (1_793_780_000_250_000_000, 1_793_780_001_500_000_000) == (span.start_time_unix_nano, span.end_time_unix_nano)
    assert trace_pb2.Span.SPAN_KIND_SERVER == span.kind
    assert (trace_pb2.Status.STATUS_CODE_ERROR, "failed_upstream") == (span.status.code, span.status.message)
    expected = {"gen_ai.usage.input_tokens": 7, "gen_ai.response.finish_reasons": ["stop"], "gen_ai.request.stream": True}
    assert expected == attributes_of(span)
    (event,) = span.events
    assert ("tidegate.committed", 1_793_780_000_500_000_000, {"a": "b"}) == (event.name, event.time_unix_nano, attributes_of(event))
    (resource,) = receiver.requests[0].resource_spans
    assert ["service.name"] == [each.key for each in resource.resource.attributes]
    assert "tidegate" == resource.scope_spans[0].scope.name
    assert "Bearer collector-token" == receiver.headers[0]["authorization"]


def test_a_first_span_has_no_parent_and_one_that_went_well_no_status() -> None:
    """What is not known is not sent."""
    with Receiver() as receiver:
        collector = _collector(receiver)
        collector.send([Span(SPAN.trace_id, SPAN.span_id, "", "chat", Kind.INTERNAL, 1.0, 2.0)])
        collector.close()
    (span,) = receiver.spans()
    assert (b"", trace_pb2.Status.STATUS_CODE_UNSET) == (span.parent_span_id, span.status.code)


@pytest.mark.parametrize("status", [400, 413])
def test_what_can_never_be_taken_is_refused(status: int) -> None:
    """Such a batch is not tried again."""
    with Receiver() as receiver:
        receiver.instead = [Instead(status)]
        collector = _collector(receiver)
        assert Rejected(f"The collector answered with status {status}.") == collector.send([SPAN])
        collector.close()
    assert 1 == receiver.tries


@pytest.mark.parametrize("status", [302, 401, 404, 500])
def test_a_collector_that_answers_with_something_else_is_away(status: int) -> None:
    """A wrong token or path is no fault of the spans, and a redirect takes nothing."""
    with Receiver() as receiver:
        receiver.instead = [Instead(status, {"location": receiver.endpoint})]
        collector = _collector(receiver)
        assert Unavailable(f"The collector answered with status {status}.") == collector.send([SPAN])
        collector.close()
    assert [] == receiver.requests


@pytest.mark.parametrize(("wish", "expected"), [("30", 30.0), ("86400", 300.0), ("Wed, 21 Oct 2126 07:28:00 GMT", None)])
def test_a_wish_for_a_pause_is_passed_on(wish: str, expected: float | None) -> None:
    """Within reason; and while it is longer than the deadline nothing is tried again."""
    with Receiver() as receiver:
        receiver.instead = [Instead(503, {"retry-after": wish})]
        collector = _collector(receiver)
        assert Unavailable("The collector answered with status 503.", expected) == collector.send([SPAN])
        collector.close()
    assert 1 == receiver.tries


def test_a_short_pause_is_made_within_the_deadline() -> None:
    """The exporter itself tries again."""
    with Receiver() as receiver:
        receiver.instead = [Instead(503, {"retry-after": "0"})]
        collector = _collector(receiver)
        assert Taken() == collector.send([SPAN])
        collector.close()
    assert (2, 1) == (receiver.tries, len(receiver.requests))


@pytest.mark.parametrize("odd", [{"name": "\ud800"}, {"trace_id": "none"}, {"ended_at": 1e308}])
def test_what_cannot_be_encoded_is_refused(odd: dict[str, Any]) -> None:
    """It would hold up all that comes after it for ever."""
    with Receiver() as receiver:
        collector = _collector(receiver)
        strange = msgspec.structs.replace(SPAN, **odd)
        assert Rejected("They cannot be encoded.") == collector.send([strange])
        assert 0 == receiver.tries
        assert Taken(refused=1) == collector.send([SPAN, strange])
        assert Taken() == collector.send([SPAN])
        collector.close()
    assert 2 == receiver.tries


def test_a_silent_collector_is_given_up_on() -> None:
    """A call has a deadline."""
    with Receiver() as receiver:
        receiver.instead = [Instead(silent=True)] * 10
        collector = _collector(receiver, deadline_s=0.2)
        assert Unavailable("The collector cannot be reached, or does not answer in time.") == collector.send([SPAN])
        collector.close()


def test_nobody_there() -> None:
    """A refused connection is the same."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}/v1/traces"
        collector = Collector(endpoint, {}, resource={}, deadline_s=0.2)
        assert Unavailable("The collector cannot be reached, or does not answer in time.") == collector.send([SPAN])
        collector.close()
    assert "Collector()" == repr(collector)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (ExportTraceServiceResponse(partial_success=ExportTracePartialSuccess(rejected_spans=3)).SerializeToString(), Taken(3)),
        (b"\xff\xff not protobuf", Taken()),
        (b"x" * 200_000, Taken()),
    ],
)
def test_spans_refused_among_those_taken_are_counted(body: bytes, expected: Taken) -> None:
    """An answer that cannot be read, or is too long to be one, says nothing."""
    with Receiver() as receiver:
        receiver.instead = [Instead(body=body)]
        collector = _collector(receiver)
        assert expected == collector.send([SPAN])
        collector.close()
