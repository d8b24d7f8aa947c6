"""Posts spans to a collector by OTLP over HTTP, with OpenTelemetry's own exporter, and says what became of them. Needs the extra `otlp`.

One call has a deadline, repeats within it included. No environment variable of proxies or credentials is looked at, no redirect followed,
and of an answer no more is read than a refusal needs.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import requests
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # it ships no types
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from tidegate import __version__
from tidegate.adapters.otlp.span_feed import Reception, Rejected, Taken, Unavailable
from tidegate.analytics.spans import Kind, Span
from tidegate.domain.units import Secret

DEADLINE_S: Final = 5.0
"""Of one batch. Records wait in their files meanwhile, and nothing else does."""
MAX_ANSWER_BYTES: Final = 65_536
"""An answer says how many spans were refused, and why."""
_REFUSALS: Final = frozenset({400, 413, 415, 422})
"""Sent again, the same spans would be refused again. Everything else is not the fault of these spans."""
_KINDS: Final = {Kind.SERVER: SpanKind.SERVER, Kind.CLIENT: SpanKind.CLIENT, Kind.INTERNAL: SpanKind.INTERNAL}
_SCOPE: Final = InstrumentationScope("tidegate", __version__)
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_MAX_WISH_S: Final = 300.0


class _Answer(msgspec.Struct, frozen=True):
    status: int
    retry_after_s: float | None
    body: bytes


class _Session(requests.Session):
    """Counts what it is asked to send: what cannot be encoded never comes here."""

    calls = 0

    def request(self, *arguments: Any, **options: Any) -> requests.Response:
        self.calls += 1
        return super().request(*arguments, **options)


class Collector:
    """For one thread."""

    def __init__(
        self, endpoint: str, headers: Mapping[str, Secret], *, resource: Mapping[str, str], deadline_s: float = DEADLINE_S
    ) -> None:
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)  # what it has to say, the feed says once
        self._resource = Resource(resource)
        self._answers: list[_Answer] = []
        """To the tries of one batch."""
        session = self._session = _Session()
        session.trust_env = False
        session.stream = True
        session.hooks["response"] = [self._note]
        self._exporter = OTLPSpanExporter(
            endpoint=endpoint,
            headers={name: value.reveal() for name, value in headers.items()},
            timeout=deadline_s,
            compression=Compression.Gzip,
            session=session,
        )

    def __repr__(self) -> str:
        return "Collector()"

    def send(self, spans: Sequence[Span]) -> Reception:
        """Send them in one piece; it is not known whether they came there when it says `Unavailable`."""
        reception = self._sent(spans)
        if self._session.calls:
            return reception
        fit = [span for span in spans if self._can_be_encoded(span)]  # one that cannot must not take the others with it
        if not fit:
            return reception
        reception = self._sent(fit)
        return Taken(reception.refused + len(spans) - len(fit)) if isinstance(reception, Taken) else reception

    def _can_be_encoded(self, span: Span) -> bool:
        try:
            encode_spans([self._readable(span)])
        except (ValueError, OverflowError):
            return False
        return True

    def _sent(self, spans: Sequence[Span]) -> Reception:
        self._answers.clear()
        self._session.calls = 0
        with contextlib.suppress(ValueError, OverflowError):  # an id or a time that is none: nothing is sent
            self._exporter.export([self._readable(span) for span in spans])
        answer = self._answers[-1] if self._answers else None
        if not self._session.calls:
            return Rejected("They cannot be encoded.")
        if answer is None:
            return Unavailable("The collector cannot be reached, or does not answer in time.")
        if 200 <= answer.status < 300:  # noqa: PLR2004  RFC 9110, 15.3
            return _taken(answer.body)
        if answer.status in _REFUSALS:
            return Rejected(f"The collector answered with status {answer.status}.")
        return Unavailable(f"The collector answered with status {answer.status}.", answer.retry_after_s)

    def close(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # it says nothing of what it gives

    def _note(self, response: requests.Response, *_: object, **__: object) -> None:
        body = response.raw.read(MAX_ANSWER_BYTES, decode_content=True)
        response.close()
        self._answers.append(_Answer(response.status_code, _seconds(response.headers.get("retry-after", "")), body))

    def _readable(self, span: Span) -> ReadableSpan:
        trace_id = int(span.trace_id, 16)
        parent = SpanContext(trace_id, int(span.parent_id, 16), span.is_parent_remote, _SAMPLED) if span.parent_id else None
        return ReadableSpan(
            span.name,
            context=SpanContext(trace_id, int(span.span_id, 16), is_remote=False, trace_flags=_SAMPLED),
            parent=parent,
            resource=self._resource,
            attributes=span.attributes,
            events=[Event(event.name, event.attributes, _nanoseconds(event.at)) for event in span.events],
            kind=_KINDS[span.kind],
            status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error),
            start_time=_nanoseconds(span.began_at),
            end_time=_nanoseconds(span.ended_at),
            instrumentation_scope=_SCOPE,
        )


def _taken(body: bytes) -> Reception:
    """Read how many spans were refused of those that were taken; what cannot be read says nothing."""
    try:
        partial = ExportTraceServiceResponse.FromString(body).partial_success
    except DecodeError:
        return Taken()
    return Taken(max(0, partial.rejected_spans))


def _seconds(value: str) -> float | None:
    """Read `Retry-After` in seconds; a date is left to our own pauses."""
    return min(float(value), _MAX_WISH_S) if value.isdecimal() and value.isascii() else None


def _nanoseconds(at: float) -> int:
    return round(at * 1e6) * 1_000
