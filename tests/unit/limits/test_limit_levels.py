"""How full limits are, as an operator is shown it."""

from __future__ import annotations

from tidegate.domain.demand import Demand
from tidegate.domain.limits import CounterSpec, LimitMode, LimitRule, LimitSubject, Meter, Resource, Scope, ScopeMatch
from tidegate.domain.principal import Limits
from tidegate.domain.statistics import LimitLevel, fullness
from tidegate.domain.units import KeyId, TenantId, UserId
from tidegate.policy.metering.limiter import Limiter
from tidegate.policy.metering.local_counters import LocalCounters
from tidegate.ports import Denied, Short

TENANT_TOKENS = LimitRule("tenant-tokens", Resource.TOKENS, CounterSpec(Meter.SLIDING, 1000), (ScopeMatch(Scope.TENANT),))
WATCHED = LimitRule("all-requests", Resource.REQUESTS, CounterSpec(Meter.SLIDING, 100), (), mode=LimitMode.SHADOW)


def _subject(key: str, tenant: str) -> LimitSubject:
    return LimitSubject(KeyId(key), TenantId(tenant), UserId(key))


def _use(limiter: Limiter, subject: LimitSubject, tokens: int, *, limits: Limits = Limits()) -> None:  # noqa: B008  frozen
    permit = limiter.admit(subject, limits, now=0.0)
    assert not isinstance(permit, Denied | Short)
    assert permit.reserve(Demand(tokens, 0), now=0.0) is None


def test_the_fullest_limit_comes_first() -> None:
    """Each counter once, with whose it is, what is left of it, and over which window."""
    limiter = Limiter(LocalCounters(), [TENANT_TOKENS, WATCHED])
    _use(limiter, _subject("k1", "acme"), 900)
    _use(limiter, _subject("k2", "acme"), 50, limits=Limits(concurrency=4))
    levels = limiter.levels(now=0.0)
    assert [("tenant-tokens", 50, 1000), ("key-concurrency", 3, 4), ("all-requests", 98, 100)] == [
        (level.rule.replace("_", "-"), level.left, level.ceiling) for level in levels
    ]
    assert ("tenant=acme", "tokens", 60, False) == (levels[0].whose, levels[0].resource, levels[0].span_s, levels[0].is_shadow)
    assert (0, True) == (levels[1].span_s, levels[2].is_shadow)
    assert "everybody together" == levels[2].whose


def test_only_the_latest_subjects_are_looked_at() -> None:
    """The look is bounded, whatever the number of subjects."""
    limiter = Limiter(LocalCounters(), [TENANT_TOKENS])
    for number in range(5):
        _use(limiter, _subject(f"k{number}", f"t{number}"), 10)
    assert {"tenant=t4", "tenant=t3"} == {level.whose for level in limiter.levels(now=0.0, most_subjects=2)}


def test_a_ceiling_of_nothing_is_full() -> None:
    """Nothing is divided by it."""
    level = LimitLevel("c", "r", "w", "tokens", "sliding", 0, 0, 60, is_shadow=False)
    assert 1.0 == fullness(level)
