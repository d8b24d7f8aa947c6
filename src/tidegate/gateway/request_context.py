"""What follows from a request's head alone: who asks for what, and as part of what. Worked out once for heads that come again."""

from __future__ import annotations

import msgspec

from tidegate.domain.header_lines import field_lines
from tidegate.domain.units import HeaderLines, Headers, Secret
from tidegate.errors import TidegateError
from tidegate.gateway.authenticate import extract_credential
from tidegate.gateway.endpoints import Endpoint
from tidegate.wire.business_context import bounded_context, color_of, feature_of, session_of
from tidegate.wire.event_ids import ResumePoint, parse_resume_point
from tidegate.wire.headers import upstream_request_headers
from tidegate.wire.trace_context import TraceContext, clean_request_id, parse_traceparent

_LARGEST_RETRY_COUNT = 99


class RequestContext(msgspec.Struct, frozen=True):
    """A request's head in our terms. Of several header fields with one name the first counts."""

    endpoint: Endpoint | TidegateError
    """What is asked for, or why nothing is served there."""
    credential: Secret
    request_id: str
    """The client's own; empty without one."""
    parent: TraceContext | None
    client_retry: int
    feature: str
    session: str
    color: str
    business_context: str
    resume_point: ResumePoint | None
    """Where the client wants to go on with its stream."""
    resumable: bool
    """The client may want to return for its stream."""
    to_upstream: HeaderLines
    """The header fields that an upstream may see."""


def read_context(headers: Headers, endpoint: Endpoint | TidegateError) -> RequestContext:
    """Read the context of a request to `endpoint` from its header fields."""
    first = dict(reversed(headers))
    context = first.get(b"x-business-context")
    return RequestContext(
        endpoint=endpoint,
        credential=extract_credential(headers),
        request_id=clean_request_id(first.get(b"x-request-id")) or "",
        parent=parse_traceparent(first.get(b"traceparent")),
        client_retry=_retry_count(first.get(b"x-stainless-retry-count")),
        feature=feature_of(context),
        session=session_of(first.get(b"x-session-id")),
        color=color_of(first.get(b"x-tidegate-color")),
        business_context=bounded_context(context) if context is not None else "",
        resume_point=parse_resume_point(first.get(b"last-event-id", b"")),
        resumable=first.get(b"x-tidegate-resumable") == b"1",
        to_upstream=field_lines(upstream_request_headers(headers)),
    )


def _retry_count(value: bytes | None) -> int:
    return min(int(value), _LARGEST_RETRY_COUNT) if value is not None and value.isdigit() and len(value) <= 2 else 0  # noqa: PLR2004
