"""What the gateway tells a flow of a request's head: the feature, the session and the colour that the client names."""

from __future__ import annotations

from random import Random
from typing import Any, cast

import pytest

from tidegate.flow.facts import Policies, RequestFacts
from tidegate.flow.request_flow import RequestFlow
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.services import Services
from tidegate.ports import Exchange, RequestHead
from tidegate.wire.trace_context import NO_SHARE


class _FactsSeenError(Exception):
    """Ends the request once its facts are known."""


class _Services:
    policies = None
    trace_threshold = NO_SHARE

    def wall_clock(self) -> float:
        return 1_700_000_000.0


class _Exchange:
    def __init__(self, *headers: tuple[bytes, bytes]) -> None:
        self.head = RequestHead("POST", "/v1/chat/completions", "", headers, "127.0.0.1:1")


def _facts(*headers: tuple[bytes, bytes]) -> RequestFacts:
    seen: list[RequestFacts] = []

    def flow(facts: RequestFacts, policies: Policies) -> RequestFlow:
        del policies
        seen.append(facts)
        raise _FactsSeenError

    gateway = Gateway(cast("Services", _Services()), clock=lambda: 0.0, rng=Random(1), flow_factory=flow)
    with pytest.raises(_FactsSeenError):
        gateway.application(cast("Exchange", _Exchange(*headers)))
    return seen[0]


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
