"""What wiring makes of each section of a configuration: replicas, pools, headers, routes, limits, and who checks tokens."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from tidegate.config.environment import LOCAL, is_pattern
from tidegate.config.schema import AffinityName, Configuration, ReplicaSection, TimeoutsSection, UpstreamSection
from tidegate.config.schema_limits import CeilingsSection
from tidegate.config.schema_routing import BudgetSection, OrderName, RouteSection, RuleSection, TargetSection
from tidegate.domain.principal import Limits
from tidegate.domain.units import Headers, ModelName, ReplicaId, Secret, UpstreamName
from tidegate.domain.upstream import (
    BreakerPhase,
    BreakerSettings,
    Pool,
    PoolStatus,
    Replica,
    ReplicaPhase,
    ReplicaStatus,
    Route,
    Target,
    Timeouts,
)
from tidegate.errors import ConfigurationError
from tidegate.gateway.authenticate import LimitsResolver, TokenVerifier
from tidegate.http.client import PoolSettings, UpstreamPool, fetch, proxy_from_environment
from tidegate.http.outbox import Outbox
from tidegate.policy.degradation.answers import Degradation, HeldAnswer
from tidegate.policy.degradation.class_health import ClassHealth, ClassSettings
from tidegate.policy.resilience.ladder import Ladder
from tidegate.policy.resilience.retry import RetryPolicy
from tidegate.policy.resilience.retry_budget import RetryBudget
from tidegate.policy.routing.budget import Budget
from tidegate.policy.routing.router import Router, RouteSettings
from tidegate.policy.routing.rules import Conditions, Rule
from tidegate.policy.routing.sla import Candidate
from tidegate.ports import RuleBook, UpstreamRequest
from tidegate.wire.dialects import DIALECTS
from tidegate.wire.features import read_features

LOCAL_REPLICA = ReplicaId(f"{LOCAL}/0")


class TokenKeys(TokenVerifier, Protocol):
    """A token verifier that fetches keys in the background."""

    async def close(self) -> None: ...


async def token_keys(configuration: Configuration, *, before: TokenKeys | None = None) -> TokenKeys | None:
    """Give the verifier of tokens, if there are issuers, with their keys fetched; where that fails, with those known `before`."""
    if not configuration.jwt:
        return None
    from tidegate.adapters.jwt.verifier import JwtVerifier  # imported only where JWT is configured: it brings cryptography

    verifier = JwtVerifier(configuration.jwt, fetch=fetch_key_set, before=before if isinstance(before, JwtVerifier) else None)
    try:
        await verifier.warm_up(now=asyncio.get_running_loop().time())
    except BaseException:  # also when nobody wants it any more
        await verifier.close()
        raise
    return verifier


def limits_resolver(configuration: Configuration) -> LimitsResolver:
    return LimitsResolver({name: limits_of(section) for name, section in configuration.tiers.items()}, limits_of(configuration.limits))


def degradation_of(configuration: Configuration, *, before: Degradation | None = None) -> Degradation | None:
    """Give the prepared answers, if there are any; `ConfigurationError` when the file of rules cannot be used."""
    section = configuration.degradation
    rules: RuleBook | None = None
    if section.rules_file is not None:
        from tidegate.adapters.rules.zen import open_rule_book  # imported only where rules are configured: it brings the engine

        rules = open_rule_book(section.rules_file)
    if rules is None and not section.holding:
        return None
    holding = {
        feature: HeldAnswer(held.sentence, tuple((link.title, link.url) for link in held.links))
        for feature, held in section.holding.items()
    }
    return Degradation(holding, section.hold_for_s, rules, section.hand_over, before=before)


def classes_of(configuration: Configuration, *, before: ClassHealth | None = None) -> ClassHealth | None:
    """Give the watch over kinds of prompts, if a route has one; routes whose settings stay keep what was learned `before`."""
    settings: dict[str, ClassSettings] = {}
    for route in configuration.routes:
        section = route.classes
        if section is not None:
            settings[route.model] = ClassSettings(
                target_of(section.fallback), section.failure_ratio, section.window_s, section.min_calls, section.recover_after_s
            )
    return ClassHealth(settings, before=before) if settings else None


def class_levels(classes: ClassHealth | None, *, now: float) -> dict[str, float]:
    """Give how many kinds of prompts are diverted."""
    return {"classes.diverted": float(sum(status.diverted for status in classes.statistics(now=now)))} if classes is not None else {}


def retry_policy_of(configuration: Configuration) -> RetryPolicy:
    section = configuration.retry
    return RetryPolicy(
        section.max_attempts, section.tries_per_replica, section.base_delay_s, section.max_delay_s, section.max_retry_after_s
    )


def retry_budget_of(configuration: Configuration) -> RetryBudget:
    return RetryBudget(ratio=configuration.retry.budget_ratio, floor=configuration.retry.budget_floor)


def ladders_of(configuration: Configuration) -> dict[str, Ladder]:
    """Give the ladders by route pattern; of equal patterns the first serves, as in the route table."""
    ladders: dict[str, Ladder] = {}
    for route in configuration.routes:
        section = route.ladder
        if section is not None:
            smaller, precise = (None if each is None else target_of(each) for each in (section.smaller, section.smaller_precise))
            ladders.setdefault(route.model, Ladder(section.output_ratio, section.temperature, smaller, precise))
    return ladders


def router_of(configuration: Configuration, routes: Sequence[Route]) -> Router:
    """Give what decides where requests go; `routes` are those of the route table, in the configuration's order."""
    promises = {name: tier.promised_ttft_s for name, tier in configuration.tiers.items() if tier.promised_ttft_s is not None}
    settings = [_route_settings(section) for section in configuration.routes]
    rules = [_rule_of(section) for section in configuration.rules]
    return Router(routes, settings=settings, rules=rules, promises=promises, read_features=read_features)


def _route_settings(section: RouteSection) -> RouteSettings:
    candidates: tuple[Candidate, ...] | None = None
    if section.order is OrderName.SLA:
        candidates = tuple(Candidate(target_of(each), each.typical_ttft_s, each.relative_cost) for each in section.targets)
    return RouteSettings(section.model, candidates, _budget_of(section.budget) if section.budget is not None else None)


def _budget_of(section: BudgetSection) -> Budget:
    smaller = target_of(section.smaller) if section.smaller is not None else None
    precise = target_of(section.smaller_precise) if section.smaller_precise is not None else None
    return Budget(section.tokens, section.shortest_answer_tokens, smaller, precise)


def _rule_of(section: RuleSection) -> Rule:
    when = msgspec.convert(section.when, Conditions, from_attributes=True)
    return Rule(section.name, when, tuple(target_of(each) for each in section.use), section.model)


def target_of(section: TargetSection) -> Target:
    return Target(UpstreamName(section.upstream), ModelName(section.model) if section.model is not None else None)


def members_of(name: str, section: UpstreamSection) -> list[tuple[ReplicaId, ReplicaSection]]:
    """List the addresses of an upstream, `base_url` first."""
    first = ReplicaSection(base_url=section.base_url, weight=section.weight, priority=section.priority)
    return [(ReplicaId(f"{name}/{index}"), each) for index, each in enumerate((first, *section.replicas))]


def fleet_pools(configuration: Configuration) -> list[Pool]:
    """Give what the fleet knows of each upstream; the local engine is one of a single replica."""
    pools = []
    for name, section in configuration.upstreams.items():
        clocks = timeouts_of(section.timeouts)
        replicas = tuple(
            Replica(replica, UpstreamName(name), section.dialect, clocks, each.weight, each.priority, each.base_url)
            for replica, each in members_of(name, section)
        )
        breaker = msgspec.convert(section.breaker, BreakerSettings, from_attributes=True)
        keeps_sessions = section.affinity is AffinityName.SESSION
        pools.append(Pool(UpstreamName(name), replicas, section.pick, keeps_sessions, breaker))
    if configuration.local_engine.enabled:
        engine = Replica(LOCAL_REPLICA, UpstreamName(LOCAL), "llamacpp", timeouts_of(TimeoutsSection()))
        calm = BreakerSettings(ttft_s=None)  # slow is what a CPU is
        pools.append(Pool(UpstreamName(LOCAL), (engine,), breaker=calm, last_resort=True))
    return pools


def pool_of(section: UpstreamSection, base_url: str, outbox: Outbox | None = None) -> UpstreamPool:
    return UpstreamPool(
        PoolSettings(
            base_url=base_url,
            max_connections=section.max_connections,
            idle_timeout_s=section.idle_timeout_s,
            connect_timeout_s=section.timeouts.connect_s,
            verify_tls=section.verify_tls,
            proxy=proxy_from_environment(base_url, os.environ),
        ),
        outbox,
    )


def upstream_figures(replicas: Sequence[ReplicaStatus], pool: PoolStatus) -> tuple[dict[str, float], dict[str, float]]:
    """Give an upstream's levels and counters out of the fleet; each worker has breakers of its own, so sums count worker by worker."""
    phases = [status.breaker for status in replicas]
    levels = {
        "in_flight": float(sum(status.in_flight for status in replicas)),
        "replicas": float(len(replicas)),
        "replicas_drained": float(sum(status.phase is ReplicaPhase.DRAINED for status in replicas)),
        "replicas_available": float(sum(status.available for status in replicas)),
        "breaker_open": float(phases.count(BreakerPhase.OPEN)),
        "breaker_soft_open": float(phases.count(BreakerPhase.SOFT_OPEN)),
        "breaker_half_open": float(phases.count(BreakerPhase.HALF_OPEN) + phases.count(BreakerPhase.SOFT_HALF_OPEN)),
    }
    return levels, {"trips": float(pool.trips + sum(status.trips for status in replicas))}


def upstream_detail(replicas: Sequence[ReplicaStatus]) -> str:
    """Say how an upstream is, each replica by its number where it has several."""
    words = []
    for status in replicas:
        causes = ", ".join(cause for cause in (status.why, status.last_error) if cause)
        name = f"{status.replica.rpartition('/')[2]} " if len(replicas) > 1 else ""
        words.append(f"{name}{status.phase}{f': {causes}' if causes else ''}")
    return "; ".join(words)


def upstream_headers(section: UpstreamSection) -> Headers:
    """Give the dialect's headers, the key, and the operator's own, which win over both."""
    headers = dict((*DIALECTS[section.dialect].request_headers, *bearer(section.api_key)))
    headers |= {name.lower().encode(): value.reveal().encode() for name, value in section.headers.items()}
    return tuple(headers.items())


def bearer(key: Secret | None) -> Headers:
    return ((b"authorization", b"Bearer " + key.reveal().encode()),) if key is not None else ()


def route_of(section: RouteSection) -> Route:
    return Route(section.model, tuple(target_of(each) for each in section.targets))


def timeouts_of(section: TimeoutsSection) -> Timeouts:
    return Timeouts(section.connect_s, section.first_byte_s, section.first_token_s, section.stall_s, section.total_s)


def limits_of(section: CeilingsSection) -> Limits:
    return Limits(section.tokens_per_minute, section.requests_per_minute, section.concurrency)


def listed_models(configuration: Configuration) -> tuple[str, ...]:
    """Names for `/v1/models`: those of the routes and of the upstreams, patterns left out, each once and in order."""
    names = [route.model for route in configuration.routes]
    for section in configuration.upstreams.values():
        names += section.models
    return tuple(dict.fromkeys(name for name in names if not is_pattern(name)))


async def fetch_key_set(url: str) -> bytes:
    """Get a JSON Web Key Set."""
    from tidegate.adapters.jwt.key_set import MAX_DOCUMENT_BYTES
    from tidegate.adapters.jwt.key_source import FETCH_DEADLINE_S

    parts = urlsplit(url)
    base = f"{parts.scheme}://{parts.netloc}"
    path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    pool = UpstreamPool(PoolSettings(base_url=base, max_connections=1, proxy=proxy_from_environment(base, os.environ)))
    try:
        answer = await fetch(pool, UpstreamRequest("GET", path, (), b""), deadline_s=FETCH_DEADLINE_S, max_bytes=MAX_DOCUMENT_BYTES)
    finally:
        await pool.aclose()
    if answer.status != 200:  # noqa: PLR2004  HTTP's OK
        raise ConfigurationError(f"the key set at {base} answered with status {answer.status}")
    return answer.body
