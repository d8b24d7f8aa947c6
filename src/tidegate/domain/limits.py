"""What a limit limits: whose use of what, how it is counted, and what one request asks of it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tidegate.domain.principal import DEFAULT_TIER
from tidegate.domain.units import KeyId, ModelName, TenantId, UserId


class Scope(StrEnum):
    """Whose use is counted."""

    KEY = "key"
    USER = "user"
    TENANT = "tenant"
    TIER = "tier"
    FEATURE = "feature"
    MODEL = "model"
    ROUTE = "route"


class Resource(StrEnum):
    """What is counted."""

    TOKENS = "tokens"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    REQUESTS = "requests"
    CONCURRENCY = "concurrency"
    COST = "cost_micro"


class Meter(StrEnum):
    """How use is counted over time."""

    SLIDING = "sliding"
    """At most `ceiling` in any `span_s`."""
    GCRA = "gcra"
    """A steady rate of `ceiling` per `span_s`, and `burst` at once."""
    CALENDAR = "calendar"
    """At most `ceiling` from one boundary of the calendar to the next."""
    PLACES = "places"
    """At most `ceiling` at the same time."""


class Period(StrEnum):
    """The calendar's units, in UTC."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


PERIOD_S = {Period.HOUR: 3600, Period.DAY: 86_400, Period.MONTH: 31 * 86_400}
"""How long each lasts, at most."""


class LimitMode(StrEnum):
    ENFORCE = "enforce"
    SHADOW = "shadow"
    """Counted and reported, never refused."""


class StoreDown(StrEnum):
    """What a worker does while it cannot reach the store that it shares a limit with."""

    LOCAL_SHARE = "local_share"
    """Use its part: the ceiling divided by the workers that were alive."""
    DENY = "deny"
    ALLOW = "allow"


class CounterSpec(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How one counter counts. Amounts are whole units of its resource."""

    meter: Meter
    ceiling: int
    span_s: float = 60.0
    """Of `sliding` and `gcra`."""
    burst: int = 0
    """Of `gcra`: units that may be used at once; at least 1."""
    period: Period = Period.DAY
    """Of `calendar`."""


def most_at_once(spec: CounterSpec) -> int:
    """Give the most units that an empty counter could give."""
    return max(1, spec.burst) if spec.meter is Meter.GCRA else spec.ceiling


class ScopeMatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One condition of a rule: requests whose `scope` matches the shell-style pattern; `each` value counted apart, or all in `total`."""

    scope: Scope
    pattern: str = "*"
    each: bool = True


KEY_TOKENS = "key-tokens"
KEY_REQUESTS = "key-requests"
KEY_CONCURRENCY = "key-concurrency"
OWN_RULES = frozenset({KEY_TOKENS, KEY_REQUESTS, KEY_CONCURRENCY})
"""Names of a key's own ceilings, which no rule of a configuration may have."""


class LimitRule(msgspec.Struct, frozen=True):
    """One limit of the configuration. A request is under it when all its scopes match."""

    name: str
    resource: Resource
    spec: CounterSpec
    scopes: tuple[ScopeMatch, ...] = ()
    mode: LimitMode = LimitMode.ENFORCE
    on_store_down: StoreDown = StoreDown.LOCAL_SHARE


class LimitSubject(msgspec.Struct, frozen=True, gc=False):
    """Who asks for what, as far as limits know. `model` and `route` are empty for a request that names none."""

    key: KeyId
    tenant: TenantId
    user: UserId
    tier: str = DEFAULT_TIER
    feature: str = ""
    model: ModelName = ModelName("")
    route: str = ""
