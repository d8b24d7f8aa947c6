"""Less than what was asked for, instead of nothing: a fallback model for a kind of prompt that keeps failing, a prepared answer at the end.

In order: L1, another model, while one can answer; L2, a sentence that asks for patience; L3, fixed rules and a person. What the request
itself is to blame for (its contents, its length, its parameters) is never covered up by an answer.
"""

from __future__ import annotations

from msgspec.structs import replace

from tidegate.domain.outcome import Outcome
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.upstream import Route
from tidegate.flow.actions import Answer
from tidegate.flow.facts import Policies, RequestFacts
from tidegate.policy.degradation.class_health import ClassHealth
from tidegate.policy.routing.router import Plan, Router
from tidegate.wire.own_answers import encode_prepared, question_of, takes_words

_WORDED = frozenset({Operation.CHAT, Operation.COMPLETION})
_NOT_ITS_FAULT = frozenset({Outcome.FAILED_UPSTREAM, Outcome.FAILED_TIMEOUT, Outcome.MODEL_ERROR, Outcome.REJECTED_NO_REPLICA})
LOW_CONFIDENCE = "; confidence=low"


def diverted(plan: Plan, classes: ClassHealth, router: Router, request: ParsedRequest, route: Route, *, now: float) -> Plan:
    """Put the fallback of a failing kind of prompts in front; a plan that stays knows the prompt's features, to be told how it went."""
    if request.operation not in _WORDED:
        return plan
    features = plan.features if plan.features is not None else router.features(request)
    diversion = classes.diverted(route.pattern, features, now=now)
    if diversion is None:
        return replace(plan, features=features)
    targets = (diversion.target, *(target for target in plan.route.targets if target != diversion.target))
    return replace(
        plan,
        route=Route(plan.route.pattern, targets),
        degraded=f"L1; reason=prompt_class; class={diversion.prompt_class}{LOW_CONFIDENCE}",
        features=features,
    )


def is_low_confidence(degraded: str | None) -> bool:
    return degraded is not None and LOW_CONFIDENCE in degraded


def prepared_answer(
    policies: Policies, facts: RequestFacts, request: ParsedRequest, route: Route, outcome: Outcome, *, now: float
) -> Answer | None:
    """Answer in the model's place; None when nothing is prepared, or when the request itself is to blame."""
    degradation = policies.degradation
    if degradation is None or outcome not in _NOT_ITS_FAULT or request.operation not in _WORDED:
        return None
    degradation.route_failed(route.pattern, now=now)
    if not takes_words(request):
        return None  # a client that reads JSON or calls of tools is better served by an error
    prepared = degradation.answer(question_of(request), facts.feature, route.pattern, now=now)
    if prepared is None:
        return None
    body = encode_prepared(request, prepared.text, request_id=facts.request_id, created=int(facts.started_at))
    return Answer(body, f"{prepared.level}; reason={prepared.reason}", stream=request.stream)
