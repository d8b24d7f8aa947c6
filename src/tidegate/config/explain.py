"""The effective configuration and its problems as text for a terminal. Secrets appear as `****`, and only to say that they are there."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import msgspec

from tidegate.config.environment import LOCAL
from tidegate.config.explain_prices import budgets_text, prices_text
from tidegate.config.problem import Problem, Severity
from tidegate.config.schema import Configuration, DialectName, UpstreamSection
from tidegate.config.schema_audit import AuditRuleSection
from tidegate.config.schema_limits import CeilingsSection, LimitedName, LimitRuleSection
from tidegate.config.schema_routing import OrderName, RouteSection, RuleSection, TargetSection, WhenSection
from tidegate.config.schema_sampling import GpuName
from tidegate.config.scopes import scope_words
from tidegate.domain.audit import AuditPolicy
from tidegate.domain.limits import LimitMode

MOST_PROBLEMS = 50
"""Problems shown: the first ones are mended first anyway."""


def explain(configuration: Configuration) -> str:
    """Say what the gateway will do with this configuration: where it listens, what it calls, which model goes where, what is limited."""
    money = (("Prices, first match counts", prices_text(configuration)), ("Budgets", budgets_text(configuration)))
    parts = [
        ("Listens on", _listening(configuration)),
        ("Upstreams", _upstreams(configuration)),
        ("Rules, the first that holds goes before the route", [_rule(rule) for rule in configuration.rules]),
        ("Routes, first match wins", _routes(configuration)),
        ("Limits of a key", _limits(configuration)),
        ("Limits over keys", [_limit_rule(rule) for rule in configuration.limits.rules]),
        *((title, lines) for title, lines in money if lines),
        ("Token issuers", [f"{issuer.issuer} for {issuer.audience} ({', '.join(issuer.algorithms)})" for issuer in configuration.jwt]),
        ("Keeps", _kept(configuration)),
    ]
    return "".join(f"{title}\n" + "".join(f"  {line}\n" for line in lines or ["none"]) for title, lines in parts)


def render_problem(problem: Problem, *, name: str) -> str:
    """Write one problem with its line and a caret; `name` is the file's."""
    where = f"{name}:{problem.line}:{problem.column}" if problem.line else (name or "configuration")
    hint = f" — {problem.hint}" if problem.hint else ""
    text = f"{where} {problem.severity}: {problem.message}{hint}\n"
    if not problem.excerpt:
        return text
    margin = f"{problem.line:>5} | "
    blank = " " * (len(margin) - 2) + "| "
    pointer = "".join(_blank(character) for character in problem.excerpt[: problem.caret])
    pointer += " " * (problem.caret - len(problem.excerpt))
    return f"{text}{margin}{problem.excerpt}\n{blank}{pointer}^\n"


def render_problems(problems: Sequence[Problem], *, name: str) -> str:
    """Write problems one after the other, with a line that counts them; nothing if there are none."""
    if not problems:
        return ""
    errors = sum(problem.severity is Severity.ERROR for problem in problems)
    warnings = len(problems) - errors
    shown = "".join(render_problem(problem, name=name) for problem in problems[:MOST_PROBLEMS])
    more = f"… and {len(problems) - MOST_PROBLEMS} more\n" if len(problems) > MOST_PROBLEMS else ""
    counts = [_counted(errors, "error")] * bool(errors) + [_counted(warnings, "warning")] * bool(warnings)
    return f"{shown}{more}{' and '.join(counts)}\n"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _blank(character: str) -> str:
    """Give the space that a character takes in a terminal: a tab stays one, Chinese characters take two columns."""
    if character == "\t":
        return "\t"
    return "  " if unicodedata.east_asian_width(character) in {"W", "F"} else " "


def _address(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port}" if port else f"{shown}, a free port"


def _listening(configuration: Configuration) -> list[str]:
    server, admin = configuration.server, configuration.admin
    scheme = "https" if server.tls is not None else "http"
    workers = f", {_counted(server.workers, 'worker')}"
    return [f"API    {scheme}://{_address(server.host, server.port)}{workers}", f"admin  http://{_address(admin.host, admin.port)}"]


def _upstreams(configuration: Configuration) -> list[str]:
    lines = [line for name, upstream in configuration.upstreams.items() for line in _upstream(name, upstream)]
    engine = configuration.local_engine
    if engine.enabled:
        model = engine.model_path or "packaged model"
        lines.append(f"{LOCAL}  {engine.model_name} ({model}), {_counted(engine.slots, 'slot')} of {engine.context_tokens:,} tokens")
    return lines


def _upstream(name: str, upstream: UpstreamSection) -> list[str]:
    key = "api_key ****" if upstream.api_key else "no api_key"
    headers = "".join(f", {header}: ****" for header in upstream.headers)
    unchecked = "" if upstream.verify_tls else ", certificate NOT checked"
    clocks = ", ".join(f"{clock.removesuffix('_s')} {value:g}s" for clock, value in msgspec.structs.asdict(upstream.timeouts).items())
    return [f"{name}  {upstream.dialect} at {upstream.base_url} ({key}{headers}{unchecked})", f"    {clocks}"]


def _rule(rule: RuleSection) -> str:
    models = "" if rule.model == "*" else f" for {rule.model}"
    return f"{rule.name}{models}  {_conditions(rule.when)} → {', then '.join(map(_target, rule.use))}"


def _conditions(when: WhenSection) -> str:
    words = [f"tier {' or '.join(when.tiers)}"] * bool(when.tiers)
    words += [f"feature {' or '.join(when.features)}"] * bool(when.features)
    if when.stream is not None:
        words.append("a stream" if when.stream else "no stream")
    words += [f"prompt ≥ {when.min_prompt_tokens:,} tokens"] if when.min_prompt_tokens is not None else []
    words += [f"prompt ≤ {when.max_prompt_tokens:,} tokens"] if when.max_prompt_tokens is not None else []
    words += [f"has {trait}" for trait in when.has]
    words += [f"lacks {trait}" for trait in when.lacks]
    words += [f"{when.language} ≥ {when.language_share:.0%} of the letters"] if when.language is not None else []
    return " and ".join(words) or "always"


def _routes(configuration: Configuration) -> list[str]:
    width = max((len(route.model) for route in configuration.routes), default=0)
    return [
        f"{route.model:<{width}}  → {', then '.join(map(_target, route.targets))}{_route_settings(route)}" for route in configuration.routes
    ]


def _route_settings(route: RouteSection) -> str:
    words = ["ordered by promise"] * (route.order is OrderName.SLA)
    words += [f"budget {route.budget.tokens:,} tokens"] if route.budget is not None else []
    words += ["ladder"] * (route.ladder is not None)
    words += [f"failing kinds to {_target(route.classes.fallback)}"] if route.classes is not None else []
    return f" ({', '.join(words)})" if words else ""


def _target(target: TargetSection) -> str:
    return target.upstream if target.model is None else f"{target.upstream} as {target.model}"


def _limits(configuration: Configuration) -> list[str]:
    lines = [f"by default  {_ceilings(configuration.limits)}"]
    return lines + [f"tier {name}  {_ceilings(limits)}" for name, limits in configuration.tiers.items()]


def _limit_rule(rule: LimitRuleSection) -> str:
    unit = "requests" if rule.of is LimitedName.CONCURRENCY else rule.of.replace("_", " ")
    window = 60.0 if rule.window_s is None else rule.window_s
    if rule.of is LimitedName.CONCURRENCY:
        counted = "at once"
    elif rule.per is not None:
        counted = f"per {rule.per}"
    else:
        counted = f"in {window:g} s" if rule.burst is None else f"per {window:g} s, {rule.burst:,} at once"
    shadow = ", only counted" if rule.mode is LimitMode.SHADOW else ""
    return f"{rule.name}  {rule.ceiling:,} {unit} {counted} for {scope_words(rule.scope)}{shadow}"


def _ceilings(limits: CeilingsSection) -> str:
    ceilings = [
        (limits.tokens_per_minute, "tokens in 60 s"),
        (limits.requests_per_minute, "requests in 60 s"),
        (limits.concurrency, "requests at once"),
    ]
    return ", ".join(f"{ceiling:,} {unit}" for ceiling, unit in ceilings if ceiling is not None) or "none"


def _kept(configuration: Configuration) -> list[str]:
    records = configuration.records
    directory = records.directory or f"{configuration.state_directory}/records"
    files = f"{records.keep_files} files of {records.max_file_bytes:,} bytes per worker"
    further = [*_bodies(configuration), *_tables(configuration), *_samples(configuration), *_traces(configuration)]
    return [f"keys     in {configuration.state_directory}", f"records  in {directory}, {files}", *further]


def _bodies(configuration: Configuration) -> list[str]:
    audit = configuration.audit
    if not audit.rules and audit.policy is AuditPolicy.OFF:
        return []
    rules = [f"{rule.policy} for {_whose(rule)}" for rule in audit.rules]
    return [f"bodies   {', '.join([*rules, f'{audit.policy} else' if rules else audit.policy])}"]


def _whose(rule: AuditRuleSection) -> str:
    given = (("tenant", rule.tenant), ("route", rule.route))
    return " and ".join([f"{name} {pattern}" for name, pattern in given if pattern is not None]) or "everybody"


def _tables(configuration: Configuration) -> list[str]:
    analytics = configuration.analytics
    if analytics.enabled is False:
        return []
    where = "a ClickHouse server" if analytics.clickhouse is not None else f"{configuration.state_directory}/analytics (chDB)"
    installed = ", where chDB is installed" if analytics.enabled is None and analytics.clickhouse is None else ""
    return [f"tables   in {where}, {_counted(analytics.keep_days, 'day')}{installed}"]


def _samples(configuration: Configuration) -> list[str]:
    sampling = configuration.sampling
    if configuration.analytics.enabled is False or not sampling.enabled:
        return []
    scraped = sampling.scrape
    if scraped is None:
        scraped = tuple(name for name, upstream in configuration.upstreams.items() if upstream.dialect is DialectName.VLLM)
    words = [f"GPUs ({sampling.gpu})"] * (sampling.gpu is not GpuName.OFF) + [f"/metrics of {name}" for name in scraped]
    words += [*sampling.dcgm, *(triton.path for triton in sampling.triton)]
    words += ["the local engine"] * (sampling.local_engine and configuration.local_engine.enabled)
    return [f"samples  every {sampling.every_s:g} s: {', '.join(words) or 'nothing'}"]


def _traces(configuration: Configuration) -> list[str]:
    tracing = configuration.tracing
    if tracing.otlp is None:
        return []
    kept = f"{tracing.keep_ratio:.4g} of all, and what failed, retried, was degraded or took {tracing.slow_s:g} s"
    return [f"spans    to {tracing.otlp.endpoint} as {tracing.service_name}: {kept}"]
