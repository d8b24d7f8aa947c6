"""`tidegate explain`: where one request would go, and why. Decides with the gateway's own code, and sends nothing.

What a running gateway has seen (slow or failing replicas, times to first token) is not known here: replicas are as after a start.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

import msgspec

from tidegate.cli.configured import effective
from tidegate.config.schema import Configuration
from tidegate.domain.principal import DEFAULT_TIER, Principal
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import KeyId, TenantId, UserId
from tidegate.domain.upstream import TargetView
from tidegate.errors import ClientError, ConfigurationError
from tidegate.flow.refusals import model_forbidden, model_unknown
from tidegate.node.exits import Exit
from tidegate.policy.routing.fleet import Fleet
from tidegate.policy.routing.router import Explanation
from tidegate.policy.routing.routes import RouteTable
from tidegate.wire.dialects import DIALECTS
from tidegate.wire.openai import parse_request, rewrite_body
from tidegate.wiring.parts import fleet_pools, listed_models, route_of, router_of

_LONGEST_VALUE = 100
"""Characters shown of a value that is sent instead of another."""
_STDIN = Path("-")


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
    """Everything that `--json` prints."""

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


def explain(request_file: Path, config: Path | None, caller: Caller, *, as_json: bool) -> int:
    """Print where the request goes; errors that the gateway would answer with are raised."""
    configuration = effective(config)
    if caller.tier not in configuration.tiers and caller.tier != DEFAULT_TIER:
        known = ", ".join(sorted(configuration.tiers)) or "none"
        sys.stderr.write(f"note: the configuration has no tier {caller.tier!r} (it has: {known}): nothing is promised to it.\n")
    report = look(configuration, _read(request_file, configuration.server.max_body_bytes), caller)
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(report, order="deterministic"), indent=2).decode())
    else:
        print(render(report), end="")
    return Exit.OK


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


def _read(file: Path, limit: int) -> bytes:
    try:
        if file == _STDIN:
            body = sys.stdin.buffer.read(limit + 1)
        else:
            with file.open("rb") as source:
                body = source.read(limit + 1)
    except OSError as error:
        raise ConfigurationError(
            f"The request {file} cannot be read: {error.strerror or error}. Name a file with the JSON body of a request, or - for standard "
            "input."
        ) from error
    if len(body) > limit:
        raise ConfigurationError(f"The request {file} is larger than server.max_body_bytes ({limit:,}): the gateway would answer 413.")
    return body


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


# ── for people ────────────────────────────────────────────────────────────────


def render(report: Report) -> str:
    """Lay out a report for a terminal."""
    plan = report.explanation.plan
    cap = f"at most {report.max_completion_tokens:,} tokens" if report.max_completion_tokens is not None else "no cap"
    kind = f"{report.operation} for {report.model}, {'a stream' if report.stream else 'no stream'}"
    lines = [
        f"request  {kind}, answer of {cap}, {report.body_bytes:,} bytes",
        f"caller   tier {report.tier}, feature {report.feature or 'none'}",
        f"route    {report.route}",
        f"prompt   {_prompt_words(report)}",
        *_rule_lines(report),
        *_promise_lines(report),
        *_budget_lines(report),
        f"plan     {plan.reason or 'as the route lists its targets'}",
    ]
    if plan.rule:
        lines.append(f"         decided by {plan.rule}")
    if plan.degraded is not None:
        lines.append(f"         the client sees X-Tidegate-Degraded: {plan.degraded}")
    lines.append("targets  in the order they are tried; replicas as after a start")
    for target in report.targets:
        lines += _target_lines(target, report.first_replica)
    return "".join(f"{line}\n" for line in lines)


def _prompt_words(report: Report) -> str:
    features = report.explanation.features
    scripts = ", ".join(f"{script} {share:.0%}" for script, share in features.scripts) or "no letters"
    traits = ", ".join(sorted(features.traits)) or "nothing special"
    return f"about {features.prompt_tokens:,} tokens (surely at most {report.prompt_tokens_bound:,}); has {traits}; {scripts}"


def _rule_lines(report: Report) -> list[str]:
    if report.operation is Operation.EMBEDDING:
        return ["rules    embeddings take the route as it is: vectors of two models must not meet in one index"]
    verdicts = report.explanation.rules
    lines = []
    won = False
    for verdict in verdicts:
        outcome = "does not hold"
        if verdict.held:
            outcome = "holds too, but the first wins" if won else "holds"
        won = won or verdict.held
        lines.append(f"  {verdict.name}: {outcome}")
        lines += [f"    {'yes' if check.held else 'no ':<3}  {check.wanted} — {check.found}" for check in verdict.checks]
    if report.other_rules:
        lines.append(f"  {report.other_rules} more look at other models only")
    return [f"rules    {'the first that holds goes before the route' if lines else 'none'}", *lines]


def _promise_lines(report: Report) -> list[str]:
    standings = report.explanation.standings
    if not standings:
        return []
    promised = report.explanation.promised_ttft_s
    words = f"{promised:g} s to the first token" if promised is not None else f"nothing to tier {report.tier}: the cheapest goes first"
    lines = [f"promise  {words}"]
    for standing in standings:
        known = "not known" if standing.ttft_s is None else f"{standing.ttft_s:g} s {'observed' if standing.observed else 'declared'}"
        kept = "" if standing.keeps is None else ", keeps it" if standing.keeps else ", does not keep it"
        name = standing.target.upstream if standing.target.model is None else f"{standing.target.upstream} as {standing.target.model}"
        lines.append(f"  {name}: first token {known}, relative cost {standing.relative_cost:g}{kept}")
    return lines


def _budget_lines(report: Report) -> list[str]:
    fitted = report.explanation.fit
    if fitted is None:
        return []
    answer = f"{fitted.answer_tokens:,}" + (f" × {fitted.choices}" if fitted.choices > 1 else "")
    verdict = "fits" if fitted.fits else "is over"
    lines = [f"budget   {fitted.prompt_tokens:,} + {answer} = {fitted.estimate:,} tokens {verdict} {fitted.budget_tokens:,}"]
    if fitted.cap is not None:
        verdict = "fits" if fitted.shortened_estimate <= fitted.budget_tokens else "is still over"
        lines.append(f"  answer capped at {fitted.cap:,}: {fitted.shortened_estimate:,} {verdict}")
    if fitted.smaller is not None:
        lines.append(f"  a smaller model goes first: {fitted.smaller.upstream} as {fitted.smaller.model or report.model}")
    elif fitted.shortened_estimate > fitted.budget_tokens:
        lines.append("  no smaller model is configured for it")
    return lines


def _target_lines(target: TargetReport, first_replica: str | None) -> list[str]:
    view = target.view
    lines = [f"  {view.rank + 1}. {view.upstream} as {view.model}{f' — {view.why}' if view.why else ''}"]
    for status in view.replicas:
        state = "available" if status.available else "not available"
        why = f" ({status.why})" if status.why else ""
        first = ", would get this request" if view.rank == 0 and status.replica == first_replica else ""
        lines.append(f"       {status.replica}  {state}{why}{first}")
    for change in target.changes:
        before = "absent" if change.instead_of is None else change.instead_of
        lines.append(f"       body: {change.member} {before} → {'left out' if change.sent is None else change.sent}")
    return lines
