"""Stories of limits beyond a key's own: of whole tenants, in shadow mode, of output alone, and what leases do not cover."""

from __future__ import annotations

import msgspec
from tests.scenarios.stories import ANSWER, CHAT, Story, world

from tidegate.domain.limits import CounterSpec, LimitMode, LimitRule, Meter, Resource, Scope, ScopeMatch
from tidegate.domain.money import Price, PriceBook, PriceEntry, PriceTier, UnbilledColor
from tidegate.domain.outcome import Outcome
from tidegate.domain.request import Operation
from tidegate.domain.units import KeyId, TenantId
from tidegate.policy.billing.pricing import Pricing
from tidegate.simulator.scenario import Scenario, ScriptedRequest


def limit(
    resource: Resource, ceiling: int, *, scope: Scope = Scope.TENANT, mode: LimitMode = LimitMode.ENFORCE, meter: Meter = Meter.SLIDING
) -> LimitRule:
    return LimitRule("limit", resource, CounterSpec(meter, ceiling, burst=ceiling), (ScopeMatch(scope),), mode)


def limited(*requests: ScriptedRequest, rules: tuple[LimitRule, ...]) -> Scenario:
    """Give a world of two keys, `key` and `second`, of one tenant."""
    scenario = world(*requests)
    (principal,) = scenario.principals.values()
    principals = scenario.principals | {"second": msgspec.structs.replace(principal, key_id="k2")}
    return msgspec.structs.replace(scenario, principals=principals, limit_rules=rules)


def tested(*requests: ScriptedRequest) -> Scenario:
    """Give a world with a budget worth one call for each tenant, three requests a minute for each, and a tenant that may test unbilled."""
    scenario = limited(*requests, rules=(limit(Resource.COST, 200, meter=Meter.CALENDAR), limit(Resource.REQUESTS, 3)))
    (principal, _) = scenario.principals.values()
    tester = msgspec.structs.replace(principal, key_id=KeyId("tester"), tenant=TenantId("load-test"))
    price = Price((PriceTier(0, 0),), request_micro=150)
    return msgspec.structs.replace(
        scenario,
        principals=scenario.principals | {"tester": tester},
        pricing=Pricing(PriceBook("1", "EUR", (PriceEntry("*", "*", price),))),
        unbilled=(UnbilledColor("bench", "load-*"),),
    )


UNCAPPED = b'{"model":"m","messages":[{"role":"user","content":"hello"}]}'

LIMIT_STORIES: dict[str, Story] = {
    "two keys of a tenant that has one request a minute": Story(
        limited(
            ScriptedRequest(0.0, CHAT, calls=(ANSWER,)),
            ScriptedRequest(1.0, CHAT, credential="second"),
            ScriptedRequest(60.5, CHAT, credential="second", calls=(ANSWER,)),
            rules=(limit(Resource.REQUESTS, 1),),
        ),
        (Outcome.OK, Outcome.REJECTED_RATE_LIMIT, Outcome.OK),
    ),
    "a list of models is under no model's limit": Story(
        limited(
            ScriptedRequest(0.0, CHAT, calls=(ANSWER,)),
            ScriptedRequest(1.0, b"", Operation.MODELS),
            ScriptedRequest(2.0, CHAT),
            rules=(limit(Resource.REQUESTS, 1, scope=Scope.MODEL),),
        ),
        (Outcome.OK, Outcome.OK, Outcome.REJECTED_RATE_LIMIT),
    ),
    "a limit that only watches": Story(
        limited(
            ScriptedRequest(0.0, CHAT, calls=(ANSWER,)),
            ScriptedRequest(1.0, CHAT, calls=(ANSWER,)),
            rules=(limit(Resource.REQUESTS, 1, mode=LimitMode.SHADOW),),
        ),
        (Outcome.OK, Outcome.OK),
    ),
    "an answer without a cap under a limit on output": Story(
        limited(ScriptedRequest(0.0, UNCAPPED, calls=(ANSWER,)), rules=(limit(Resource.OUTPUT_TOKENS, 200, meter=Meter.GCRA),)),
        (Outcome.OK,),
    ),
    "a cap above a limit on output": Story(
        limited(ScriptedRequest(0.0, CHAT), rules=(limit(Resource.OUTPUT_TOKENS, 99),)), (Outcome.REJECTED_RATE_LIMIT,)
    ),
    "a load test of a tenant that may test unbilled: no budget ends it, and the limit on requests does": Story(
        tested(
            ScriptedRequest(0.0, CHAT, credential="tester", color="bench", calls=(ANSWER,)),
            ScriptedRequest(1.0, CHAT, credential="tester", color="bench", calls=(ANSWER,)),
            ScriptedRequest(2.0, CHAT, credential="tester", color="bench", calls=(ANSWER,)),
            ScriptedRequest(3.0, CHAT, credential="tester", color="bench"),
            ScriptedRequest(70.0, CHAT, credential="tester", calls=(ANSWER,)),
            ScriptedRequest(71.0, CHAT, credential="tester", color="other"),
        ),
        (Outcome.OK, Outcome.OK, Outcome.OK, Outcome.REJECTED_RATE_LIMIT, Outcome.OK, Outcome.REJECTED_BUDGET),
    ),
    "customers who colour their traffic are billed": Story(
        tested(ScriptedRequest(0.0, CHAT, color="bench", calls=(ANSWER,)), ScriptedRequest(1.0, CHAT, color="bench")),
        (Outcome.OK, Outcome.REJECTED_BUDGET),
    ),
    "a tenant whose tokens of the day are used up": Story(
        limited(
            ScriptedRequest(0.0, CHAT, calls=(ANSWER,)),
            ScriptedRequest(1.0, CHAT, credential="second"),
            ScriptedRequest(86_400.0, CHAT, credential="second", calls=(ANSWER,)),
            rules=(limit(Resource.TOKENS, 120, meter=Meter.CALENDAR),),
        ),
        (Outcome.OK, Outcome.REJECTED_RATE_LIMIT, Outcome.OK),
    ),
}
