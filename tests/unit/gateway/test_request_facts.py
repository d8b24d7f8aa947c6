"""What the gateway tells a flow of a request's head: the feature, the session and the colour that the client names."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, cast

import pytest

from tidegate.domain.units import Headers
from tidegate.flow.facts import Policies, RequestFacts
from tidegate.flow.request_flow import RequestFlow
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.services import Services
from tidegate.ports import Exchange, HeadNotes, RequestHead
from tidegate.wire.trace_context import NO_SHARE


class _FactsSeenError(Exception):
    """Ends the request once its facts are known."""


class _Services:
    policies = None
    trace_threshold = NO_SHARE

    def wall_clock(self) -> float:
        return 1_700_000_000.0


class _Exchange:
    def __init__(self, headers: Headers, notes: HeadNotes) -> None:
        self.head = RequestHead("POST", "/v1/chat/completions", "", headers, "127.0.0.1:1", notes)


def _facts(*headers: tuple[bytes, bytes]) -> RequestFacts:
    return _facts_of_each([headers], [HeadNotes()])[0]


def _facts_of_each(heads: Sequence[Headers], notes: Sequence[HeadNotes]) -> list[RequestFacts]:
    """Give the facts of requests to one gateway, one after the other."""
    seen: list[RequestFacts] = []

    def flow(facts: RequestFacts, policies: Policies) -> RequestFlow:
        del policies
        seen.append(facts)
        raise _FactsSeenError

    gateway = Gateway(cast("Services", _Services()), clock=lambda: 0.0, rng=Random(1), flow_factory=flow)
    for headers, noted in zip(heads, notes, strict=True):
        with pytest.raises(_FactsSeenError):
            gateway.application(cast("Exchange", _Exchange(headers, noted)))
    return seen


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((), ("", "")),
        (((b"x-business-context", b"feature=faq; tier=vip"), (b"x-session-id", b"order-7")), ("faq", "order-7")),
        (((b"x-business-context", b'{"feature":"faq"}'), (b"x-business-context", b"feature=other")), ("faq", "")),
        (((b"x-business-context", b"{broken"),), ("", "")),
    ],
)
def test_feature_and_session_come_from_the_head(headers: Any, expected: tuple[str, str]) -> None:
    """The first header of each name counts, and a context that cannot be read is no error."""
    facts = _facts(*headers)
    assert expected == (facts.feature, facts.session)


def test_the_color_of_the_traffic_comes_from_the_head() -> None:
    """The first of several counts, and without one there is none."""
    assert ("", "bench") == (_facts().color, _facts((b"x-tidegate-color", b"bench"), (b"x-tidegate-color", b"other")).color)


def test_a_head_that_comes_again_makes_another_request() -> None:
    """What follows from the head is the same; its ids are its own, unless the client gave them."""
    headers = ((b"authorization", b"Bearer k"), (b"x-business-context", b"feature=faq"), (b"x-stainless-retry-count", b"2"))
    shared, own = HeadNotes(), HeadNotes()

    first, again, apart = _facts_of_each([headers] * 3, [shared, shared, own])

    for other in (again, apart):
        assert (first.credential, first.feature, first.client_retry) == (other.credential, other.feature, other.client_retry)
        assert first.business_context == other.business_context == "feature=faq"
    assert 3 == len({facts.request_id for facts in (first, again, apart)})
    assert 3 == len({facts.trace_id for facts in (first, again, apart)})
    assert 3 == len({facts.span_id for facts in (first, again, apart)})


def test_a_trace_that_is_continued_twice_has_two_spans() -> None:
    """A client's trace and request id stay, and each request is a span of its own."""
    parent = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    notes = HeadNotes()

    first, again = _facts_of_each([((b"traceparent", parent), (b"x-request-id", b"mine"))] * 2, [notes, notes])

    assert ("mine", "00f067aa0ba902b7", True) == (first.request_id, first.parent_span_id, first.sampled)
    assert (first.request_id, first.trace_id, first.parent_span_id) == (again.request_id, again.trace_id, again.parent_span_id)
    assert first.span_id != again.span_id
