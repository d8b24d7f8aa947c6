"""Requests that only count: what they answer, what an estimate costs, and that no body makes a fault of ours."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.domain.error_object import encode_anthropic_error, encode_error, encode_error_for
from tidegate.domain.money import Price, PriceBook, PriceEntry, PriceTier
from tidegate.domain.outcome import Outcome
from tidegate.domain.principal import Principal
from tidegate.domain.request import Operation
from tidegate.domain.units import KeyId, ModelName, ReplicaId, Secret, TenantId, UpstreamName, UserId
from tidegate.domain.upstream import Replica, Route, Target
from tidegate.errors import (
    BodyTooLarge,
    Forbidden,
    InternalError,
    InvalidParameter,
    ModelNotFound,
    Overloaded,
    RateLimited,
    TidegateError,
    Unauthenticated,
)
from tidegate.flow.actions import Action, Answer, CountTokens, Finish, SendError
from tidegate.flow.events import Authenticated, BodyReceived, TokensCounted
from tidegate.flow.facts import Policies, RequestFacts
from tidegate.flow.request_flow import RequestFlow
from tidegate.policy.billing.pricing import Pricing
from tidegate.policy.caching.off import look_up
from tidegate.policy.metering.limiter import Limiter
from tidegate.policy.metering.local_counters import LocalCounters
from tidegate.policy.resilience.retry import RetryPolicy
from tidegate.policy.routing.fleet import Fleet
from tidegate.policy.routing.routes import RouteTable
from tidegate.policy.shaping.identity import shape
from tidegate.ports import TokenCount

PRINCIPAL = Principal(KeyId("k"), TenantId("t"), UserId("u"))
HTML = "<html><body><table><tr><td>Colour</td><td>Blue</td></tr></table></body></html>"
PRODUCT: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": HTML}],
    "max_completion_tokens": 300,
    "response_format": {"type": "json_object"},
}
COUNTS = [operation for operation in Operation if operation.is_count]
BOOK = PriceBook(
    "2026-01",
    "USD",
    (
        PriceEntry("hosted", "big", Price((PriceTier(400_000, 1_200_000),))),
        PriceEntry("hosted", "m", Price((PriceTier(100_000, 100_000),))),
    ),
)


def policies(target: Target | None = None, pricing: Pricing | None = None) -> Policies:
    return Policies(
        limits=Limiter(LocalCounters()),
        routes=RouteTable([Route("m", (target or Target(UpstreamName("hosted")),))], ["m"]),
        fleet=Fleet([Replica(ReplicaId("hosted/0"), UpstreamName("hosted"), "openai")]),
        retry=RetryPolicy(),
        rng=Random(1),
        shape=shape,
        look_up=look_up,
        pricing=pricing,
    )


def begun(operation: Operation, body: bytes, wanted: Policies | None = None) -> tuple[RequestFlow, list[Action]]:
    """Bring a request up to where its prompt is counted, or refused."""
    flow = RequestFlow(RequestFacts("r1", operation, Secret("s"), 0.0), wanted or policies())
    flow.begin(now=0.0)
    flow.receive(Authenticated(PRINCIPAL), now=0.0)
    return flow, flow.receive(BodyReceived(body), now=0.0)


def answered(operation: Operation, body: dict[str, Any], *, tokens: int, wanted: Policies | None = None) -> dict[str, Any]:
    flow, actions = begun(operation, json.dumps(body).encode(), wanted)
    assert actions == [CountTokens()]
    answer, finish = flow.receive(TokensCounted(TokenCount(tokens, "qwen3.6", exact=True)), now=1.0)
    assert isinstance(answer, Answer)
    assert isinstance(finish, Finish)
    assert (finish.record.outcome, finish.record.usage.total_tokens) == (Outcome.OK, 0)
    shown: dict[str, Any] = msgspec.json.decode(answer.body)
    return shown


def test_the_worked_example_from_body_to_answer() -> None:
    """1,280 tokens of HTML, 300 of JSON: 2,602, with every part of the sum."""
    assert answered(Operation.ESTIMATE, PRODUCT, tokens=1280) == {
        "object": "estimate",
        "model": "m",
        "content_type": "html",
        "input_tokens": 1280,
        "output_tokens": 300,
        "overhead_tokens": 2133,
        "alpha": 1.42,
        "beta": 1.05,
        "gamma": 0.22,
        "total_tokens": 2602,
        "learned_from": 0,
        "tokenizer": "qwen3.6",
        "exact": True,
    }


def test_an_estimate_is_priced_where_it_would_go_first() -> None:
    """The first target's model and upstream decide, and the overhead counts as input: 2,287 at 0.40 and 315 at 1.20 a million."""
    shown = answered(
        Operation.ESTIMATE, PRODUCT, tokens=1280, wanted=policies(Target(UpstreamName("hosted"), ModelName("big")), Pricing(BOOK))
    )
    assert (shown["cost_micro"], shown["currency"]) == (round(2287 * 0.4) + round(315 * 1.2), "USD")
    own_name = answered(Operation.ESTIMATE, PRODUCT, tokens=1280, wanted=policies(pricing=Pricing(BOOK)))
    assert own_name["cost_micro"] == 229 + 32
    unpriced = answered(Operation.ESTIMATE, PRODUCT, tokens=1280, wanted=policies(Target(UpstreamName("own")), Pricing(BOOK)))
    assert "cost_micro" not in unpriced
    assert "currency" not in unpriced


def test_an_estimate_has_the_price_of_its_pictures() -> None:
    """As the call itself would."""
    book = PriceBook("1", "USD", (PriceEntry("hosted", "m", Price((PriceTier(0, 0),), image_micro=1_500)),))
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    shown = answered(
        Operation.ESTIMATE,
        {"model": "m", "messages": [{"role": "user", "content": [picture, picture]}]},
        tokens=1280,
        wanted=policies(pricing=Pricing(book)),
    )
    assert 3_000 == shown["cost_micro"]


def test_counts_are_answered_in_their_dialect() -> None:
    """The same figure in three shapes."""
    chat = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    assert answered(Operation.COUNT_MESSAGES, chat, tokens=7) == {"input_tokens": 7}
    assert answered(Operation.COUNT_RESPONSES, {"model": "m", "input": "x"}, tokens=7) == {
        "object": "response.input_tokens",
        "input_tokens": 7,
    }
    assert answered(Operation.TOKENIZE, chat, tokens=7)["count"] == 7


def test_no_count_in_time_is_a_503() -> None:
    """The client is told to come back."""
    flow, _ = begun(Operation.ESTIMATE, json.dumps(PRODUCT).encode())
    send, finish = flow.receive(TokensCounted(None), now=1.0)
    assert isinstance(send, SendError)
    assert isinstance(send.error, Overloaded)
    assert isinstance(finish, Finish)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.sampled_from(["text", "image", "user", "tool_result"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["type", "text", "role", "content", "source", "data", "input", "output", "tools", "image_url", "url", "thinking"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)
NAMES = st.sampled_from(
    [
        "messages",
        "input",
        "system",
        "instructions",
        "tools",
        "thinking",
        "text",
        "reasoning",
        "prompt",
        "temperature",
        "response_format",
        "max_tokens",
        "n",
    ]
)


@given(
    operation=st.sampled_from(COUNTS),
    members=st.dictionaries(NAMES, VALUES, max_size=6),
    messages=st.none() | st.lists(VALUES, min_size=1, max_size=3),
)
def test_law_any_body_is_counted_or_refused(operation: Operation, members: dict[str, Any], messages: list[Any] | None) -> None:
    """Whatever JSON a client sends, it gets an answer or an error that is its own."""
    body = {"model": "m", **members}
    if messages is not None:
        body["messages"] = [
            entry if isinstance(entry, dict) and entry.get("role") else {"role": "user", "content": entry} for entry in messages
        ]
    flow, actions = begun(operation, msgspec.json.encode(body))
    if actions == [CountTokens()]:
        actions = flow.receive(TokensCounted(TokenCount(5, "qwen3.6", exact=True)), now=1.0)
        assert isinstance(actions[0], Answer)
    else:
        assert isinstance(actions[0], SendError)
        assert 400 <= actions[0].error.status < 500
    assert isinstance(actions[-1], Finish)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Unauthenticated("No."), "authentication_error"),
        (Forbidden("No."), "permission_error"),
        (ModelNotFound("No."), "not_found_error"),
        (BodyTooLarge("No."), "request_too_large"),
        (RateLimited("No."), "rate_limit_error"),
        (Overloaded("No."), "overloaded_error"),
        (InvalidParameter("No."), "invalid_request_error"),
        (InternalError("No."), "api_error"),
    ],
)
def test_errors_have_the_kinds_that_anthropics_sdk_knows(error: TidegateError, kind: str) -> None:
    """The kind follows the status; nothing but kind and message is said."""
    written = encode_anthropic_error(error)
    assert msgspec.json.decode(written) == {"type": "error", "error": {"type": kind, "message": "No."}}
    assert encode_error_for(Operation.COUNT_MESSAGES, error) == written
    assert encode_error_for(Operation.COUNT_RESPONSES, error) == encode_error(error)
