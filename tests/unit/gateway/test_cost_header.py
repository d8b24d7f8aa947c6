"""What a client is told of the cost of its answer."""

from __future__ import annotations

from msgspec.structs import replace
from tests.unit.gateway.one_gateway import BODY, Client, OneGateway, run

from tidegate.domain.money import Price, PriceBook, PriceEntry, PriceTier
from tidegate.flow.facts import Policies, RequestFacts
from tidegate.flow.request_flow import RequestFlow
from tidegate.gateway.stream_settings import StreamSettings
from tidegate.policy.billing.pricing import Pricing

QUIET = StreamSettings(heartbeat_s=None)
WHOLE = BODY.replace(b'"stream":true,', b"")
CHOICE = b'{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}'
ANSWER = b'{"choices":[%b],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}' % CHOICE


def answered(model: str) -> Client:
    """Have a whole answer given by a gateway that has a price for a model of that name."""
    client = Client(body=WHOLE)
    book = PriceBook("1", "USD", (PriceEntry("up", model, Price((PriceTier(2_000_000, 12_000_000),))),))

    def flow(facts: RequestFacts, policies: Policies) -> RequestFlow:
        return RequestFlow(facts, replace(policies, pricing=Pricing(book)))

    async def story() -> None:
        one = OneGateway(QUIET, flow_factory=flow)
        await one.call(client)
        one.upstream.receiver.call_connected()
        one.upstream.receiver.response_started(200, ((b"content-type", b"application/json"),))
        one.upstream.send(ANSWER)
        one.upstream.receiver.response_ended()
        assert (0 if model != "m" else 54) == one.records[0].cost_micro

    run(story)
    return client


def test_a_whole_answer_says_what_it_cost() -> None:
    """Three tokens at 2 and four at 12 per million, in millionths."""
    assert b"54" == answered("m").headers[b"x-tidegate-cost-micro"]


def test_an_answer_of_a_model_without_a_price_says_nothing() -> None:
    """A zero would look like a gift."""
    assert b"x-tidegate-cost-micro" not in answered("other").headers
