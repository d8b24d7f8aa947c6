"""Stories of streams that outgrow what is held for them, and of reservations that follow a failover."""

from __future__ import annotations

from msgspec.structs import replace
from tests.scenarios.resilience_stories import TINY
from tests.scenarios.stories import ANSWER, BOTH, CHAT, EMBEDDING, MAIN, REFUSED, RESET, STANDBY, STREAM, STREAMED, Story, world

from tidegate.domain.limits import CounterSpec, LimitRule, Meter, Resource
from tidegate.domain.money import Price, PriceBook, PriceEntry, PriceTier
from tidegate.domain.outcome import Outcome
from tidegate.domain.principal import Limits
from tidegate.domain.request import Operation
from tidegate.domain.units import ModelName
from tidegate.domain.upstream import Route, Target
from tidegate.policy.billing.pricing import Pricing
from tidegate.policy.metering.forecast import FixedForecast
from tidegate.policy.resilience.ladder import Ladder
from tidegate.policy.resilience.leave import LeavePolicy
from tidegate.simulator.scenario import Complete, Connect, HealthReport, Output, Resilience, Respond, Scenario, Script, ScriptedRequest

UNCAPPED = STREAM.replace(b'"max_tokens":100,', b"")
FORESEEN = FixedForecast(40, heeds_cap=False)
"""Held for an answer at first; the prompt is counted as 20 tokens."""
FIFTY = Output(text="x" * 400)
GATHERED: Script = (Connect(), Respond(), FIFTY, FIFTY, FIFTY, FIFTY, FIFTY, FIFTY, Complete())
"""An upstream that gathers some fifty tokens in each chunk, by the measure of their texts."""
PIECES: Script = (Connect(), Respond(), *(Output(0.001) for _ in range(200)), Complete())
"""One token in each chunk."""
DEAD = HealthReport(0.0, MAIN.replica, alive=False, reason="silent")
KEEP = Resilience(leave={MAIN.upstream: LeavePolicy(keep_for_s=60.0)})


def limited(tokens: int, *requests: ScriptedRequest, resilience: Resilience | None = None, drain_at_s: float | None = None) -> Scenario:
    """A world whose one key has a limit on tokens, and whose forecast is too short."""
    told = world(*requests, limits=Limits(tokens_per_minute=tokens), drain_at_s=drain_at_s)
    return replace(told, forecast=FORESEEN, resilience=resilience or Resilience())


def stream(*calls: Script, at_s: float = 0.0, body: bytes = UNCAPPED, leaves_after_s: float | None = None) -> ScriptedRequest:
    return ScriptedRequest(at_s, body, calls=calls, leaves_after_s=leaves_after_s)


def priced(budget_micro: int, *requests: ScriptedRequest, **rates: int) -> Scenario:
    """A world with a budget, and with a price per output token for each upstream."""
    entries = tuple(PriceEntry(upstream, "*", Price((PriceTier(0, rate * 1_000_000),))) for upstream, rate in rates.items())
    rule = LimitRule("acme-budget", Resource.COST, CounterSpec(Meter.CALENDAR, budget_micro))
    replicas = tuple(replica for replica in (MAIN, STANDBY, TINY) if replica.upstream in rates)
    return replace(
        world(*requests, replicas=replicas),
        routes=(Route("m", tuple(Target(replica.upstream) for replica in replicas)),),
        forecast=FORESEEN,
        limit_rules=(rule,),
        pricing=Pricing(PriceBook("1", "EUR", entries)),
    )


def embedded(budget_micro: int, request: ScriptedRequest, *, main: int, standby: int, others: str | None = None) -> Scenario:
    """A world with a budget and a price for each request, where the standby has the same model, or another."""
    scenario = priced(budget_micro, replace(request, operation=Operation.EMBEDDING), main=0, standby=0)
    prices = {"main": main, "standby": standby}
    entries = tuple(PriceEntry(upstream, "*", Price((PriceTier(0, 0),), request_micro=micro)) for upstream, micro in prices.items())
    targets = (Target(MAIN.upstream), Target(STANDBY.upstream, None if others is None else ModelName(others)))
    return replace(scenario, pricing=Pricing(PriceBook("1", "EUR", entries)), routes=(Route("m", targets),))


EXTENSION_STORIES: dict[str, Story] = {
    "a stream longer than was foreseen": Story(limited(1000, stream(GATHERED)), (Outcome.OK,)),
    "a stream that is extended twice and then has to end": Story(limited(200, stream(GATHERED)), (Outcome.TRUNCATED,)),
    "a stream that cannot be extended at all": Story(limited(65, stream(GATHERED)), (Outcome.TRUNCATED,)),
    "a stream of single tokens that cannot be extended": Story(limited(75, stream(PIECES)), (Outcome.TRUNCATED,)),
    "a stream whose answer is complete when its tokens are used up": Story(
        limited(65, stream((Connect(), Respond(), Output(), Complete()))), (Outcome.OK,)
    ),
    "a stream that stays below its cap": Story(limited(1000, stream(GATHERED, body=STREAM)), (Outcome.OK,)),
    "what an ended stream gives back serves the next": Story(
        limited(130, stream(STREAMED), stream(GATHERED, at_s=1.0)), (Outcome.OK, Outcome.TRUNCATED)
    ),
    "a client that leaves after its stream was extended": Story(
        limited(1000, stream(GATHERED, leaves_after_s=0.115)), (Outcome.CLIENT_CANCELLED,)
    ),
    "a kept call whose client left, and whose tokens run out": Story(
        limited(110, stream(GATHERED, leaves_after_s=0.085), resilience=KEEP), (Outcome.CLIENT_CANCELLED,)
    ),
    "a shutdown after a stream was extended": Story(limited(1000, stream(GATHERED), drain_at_s=0.115), (Outcome.FAILED_MID_STREAM,)),
    "a reservation that follows a ladder": Story(
        limited(130, stream(RESET, RESET, RESET, STREAMED, body=STREAM), resilience=Resilience(ladders={"m": Ladder()})),
        (Outcome.OK,),
    ),
    "a reservation that follows a failover": Story(limited(130, stream(REFUSED, GATHERED)), (Outcome.TRUNCATED,), (("", "next"),)),
    "a budget that ends a stream": Story(priced(1000, stream(GATHERED), main=10, standby=10), (Outcome.TRUNCATED,)),
    "a first target that costs more than is left, and a standby that does not": Story(
        priced(100, stream(STREAMED), main=10, standby=1), (Outcome.OK,), (("",),), ("L1; reason=standby; upstream=standby",)
    ),
    "two targets that cost more than is left, and a third that does not": Story(
        priced(100, stream(STREAMED), main=10, standby=100, tiny=1), (Outcome.OK,), (("",),), ("L1; reason=standby; upstream=tiny",)
    ),
    "targets that all cost more than is left": Story(priced(100, stream(), main=10, standby=5, tiny=50), (Outcome.REJECTED_BUDGET,), ((),)),
    "a first target that costs more than is left, and a standby that is dead": Story(
        replace(priced(100, stream(at_s=1.0), main=10, standby=1), reports=(replace(DEAD, replica=STANDBY.replica),)),
        (Outcome.REJECTED_BUDGET,),
        ((),),
    ),
    "a budget that pays for the first target once, and for the standby then": Story(
        priced(500, stream(ANSWER, body=CHAT), stream(ANSWER, body=CHAT), main=10, standby=1),
        (Outcome.OK, Outcome.OK),
        (("",), ("",)),
        (None, "L1; reason=standby; upstream=standby"),
    ),
    "an embedding whose only target of its model costs more than is left": Story(
        embedded(100, stream(body=EMBEDDING), main=150, standby=1, others="small"), (Outcome.REJECTED_BUDGET,), ((),)
    ),
    "an embedding whose first target costs more than is left, and the same model elsewhere does not": Story(
        embedded(100, stream(ANSWER, body=EMBEDDING), main=150, standby=1), (Outcome.OK,), (("",),)
    ),
    "a standby that costs more than is left, and one that does not": Story(
        priced(1000, stream(REFUSED, STREAMED), main=10, standby=100, tiny=10), (Outcome.OK,), (("", "next"),)
    ),
    "a first target that is dead, and one after it that costs more than is left": Story(
        replace(priced(1000, stream(STREAMED, at_s=1.0), main=10, standby=100, tiny=10), reports=(DEAD,)), (Outcome.OK,), (("",),)
    ),
    "a first target that is dead, and a standby that costs more than is left": Story(
        replace(priced(1000, stream(at_s=1.0), main=10, standby=100), reports=(DEAD,)), (Outcome.REJECTED_BUDGET,), ((),)
    ),
    "a ladder whose smaller model costs more than is left": Story(
        replace(
            priced(2000, stream(RESET, RESET, RESET, ANSWER, body=CHAT), main=10, standby=10, tiny=100),
            resilience=Resilience(ladders={"m": Ladder(smaller=Target(TINY.upstream))}),
            routes=(BOTH,),
        ),
        (Outcome.OK,),
        (("", "same", "shorter", "next"),),
    ),
    "a standby that costs more than is left": Story(
        priced(1000, stream(REFUSED), main=10, standby=100), (Outcome.REJECTED_BUDGET,), (("",),)
    ),
    "a whole answer longer than was foreseen": Story(
        limited(200, ScriptedRequest(0.0, CHAT, calls=((Connect(), Respond(), Complete()),))), (Outcome.OK,)
    ),
}
