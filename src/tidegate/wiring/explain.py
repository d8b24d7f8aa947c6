"""Where one request would go, and why: decided with the gateway's own code, and nothing is sent.

What a running gateway has seen (slow or failing replicas, times to first token) is not known here: replicas are as after a start.
"""

from __future__ import annotations

import os
from random import Random
from typing import Final

import msgspec

from tidegate.config.schema import Configuration
from tidegate.domain.principal import Principal
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import KeyId, TenantId, UserId
from tidegate.domain.upstream import TargetView
from tidegate.errors import ClientError
from tidegate.flow.refusals import model_forbidden, model_unknown
from tidegate.policy.routing.fleet import Fleet
from tidegate.policy.routing.router import Explanation
from tidegate.policy.routing.routes import RouteTable
from tidegate.wire.dialects import DIALECTS
from tidegate.wire.openai import parse_request, rewrite_body
from tidegate.wiring.parts import fleet_pools, listed_models, route_of, router_of

_LONGEST_VALUE: Final = 100
"""Characters shown of a value that is sent instead of another."""


class Caller(msgspec.Struct, frozen=True):
    """On whose behalf the request is looked at."""

    tier: str
    feature: str
    models: tuple[str, ...]
    """Patterns of the models that the key may use."""


class BodyChange(msgspec.Struct, frozen=True):
    """One member of the body that a target gets otherwise than the client sent it, both as JSON; None: it is not there."""

    member: str
    sent: str | None
    instead_of: str | None


class TargetReport(msgspec.Struct, frozen=True):
    """One target, in the order to try."""

    view: TargetView
    changes: tuple[BodyChange, ...]


class Report(msgspec.Struct, frozen=True):
    """Everything that is known of it."""

    operation: Operation
    model: str
    stream: bool
    max_completion_tokens: int | None
    choices: int
    body_bytes: int
    prompt_tokens_bound: int
    tier: str
    feature: str
    route: str
    explanation: Explanation
    other_rules: int
    """Rules that do not look at this model."""
    first_replica: str | None
    targets: tuple[TargetReport, ...]


def look(configuration: Configuration, body: bytes, caller: Caller) -> Report:
    """Decide as the gateway would; raise what it would refuse the request with."""
    parsed = parse_request(_operation(body), body)
    if isinstance(parsed, ClientError):
        raise parsed
    routes = [route_of(each) for each in configuration.routes]
    table = RouteTable(routes, listed_models(configuration))
    route = table.match(parsed.model)
    if route is None:
        raise model_unknown(parsed.model, table.listed_models)
    if not table.allows(caller.models, parsed.model):
        raise model_forbidden(parsed.model)
    fleet = Fleet(fleet_pools(configuration), rng=Random(os.urandom(32)))  # noqa: S311  a draw between replicas
    principal = Principal(KeyId("explain"), TenantId("explain"), UserId("explain"), tier=caller.tier)
    explanation = router_of(configuration, routes).explain(parsed, route, principal, caller.feature, fleet, now=0.0)
    planned = explanation.plan.route
    choice = fleet.choose(planned, parsed.model, (), now=0.0)
    views = fleet.explain(planned, parsed.model, now=0.0)
    if parsed.operation is Operation.EMBEDDING:  # only the same model elsewhere stands by for it
        same = planned.targets[0].model
        views = tuple(view for target, view in zip(planned.targets, views, strict=True) if target.model == same)
    return Report(
        operation=parsed.operation,
        model=parsed.model,
        stream=parsed.stream,
        max_completion_tokens=parsed.max_completion_tokens,
        choices=parsed.choices,
        body_bytes=len(body),
        prompt_tokens_bound=parsed.prompt_tokens_bound,
        tier=caller.tier,
        feature=caller.feature,
        route=route.pattern,
        explanation=explanation,
        other_rules=len(configuration.rules) - len(explanation.rules),
        first_replica=choice.replica.replica if choice is not None else None,
        targets=tuple(TargetReport(view, _changes(parsed, view, fleet, explanation)) for view in views),
    )


def _operation(body: bytes) -> Operation:
    """Tell by its members what a body asks for; a chat when in doubt, so that its refusal says what is missing."""
    try:
        members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError:
        return Operation.CHAT
    if "messages" not in members:
        if "prompt" in members:
            return Operation.COMPLETION
        if "input" in members:
            return Operation.EMBEDDING
    return Operation.CHAT


def _changes(parsed: ParsedRequest, view: TargetView, fleet: Fleet, explanation: Explanation) -> tuple[BodyChange, ...]:
    dialect = DIALECTS[fleet.replicas[view.replicas[0].replica].dialect]
    changed = rewrite_body(parsed, model=view.model, dialect=dialect, ask_usage=True, changes=explanation.plan.changes)
    before = msgspec.json.decode(parsed.body, type=dict[str, msgspec.Raw])
    after = msgspec.json.decode(changed, type=dict[str, msgspec.Raw])
    return tuple(
        BodyChange(name, _shown(after.get(name)), _shown(before.get(name)))
        for name in dict.fromkeys((*before, *after))
        if after.get(name) != before.get(name)
    )


def _shown(raw: msgspec.Raw | None) -> str | None:
    if raw is None:
        return None
    text = bytes(raw).decode("utf-8", "replace")
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
