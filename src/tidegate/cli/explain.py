"""`tidegate explain`: where one request would go, and why, as text or JSON. `wiring.explain` decides."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from tidegate.cli.configured import effective
from tidegate.domain.principal import DEFAULT_TIER
from tidegate.domain.request import Operation
from tidegate.errors import ConfigurationError
from tidegate.node.exits import Exit
from tidegate.wiring.explain import Caller, Report, TargetReport, look

_STDIN = Path("-")


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
    ranked = report.explanation.standings
    if not ranked:
        return []
    promised = report.explanation.promised_ttft_s
    words = f"{promised:g} s to the first token" if promised is not None else f"nothing to tier {report.tier}: the cheapest goes first"
    lines = [f"promise  {words}"]
    for each in ranked:
        known = "not known" if each.ttft_s is None else f"{each.ttft_s:g} s {'observed' if each.observed else 'declared'}"
        kept = "" if each.keeps is None else ", keeps it" if each.keeps else ", does not keep it"
        name = each.target.upstream if each.target.model is None else f"{each.target.upstream} as {each.target.model}"
        lines.append(f"  {name}: first token {known}, relative cost {each.relative_cost:g}{kept}")
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
