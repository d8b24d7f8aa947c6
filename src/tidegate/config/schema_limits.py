"""Settings of limits: the ceilings of a key, and rules over keys, users, tenants, tiers, features, models and routes."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from tidegate.config.section import AtLeastOne, Positive, Section
from tidegate.domain.limits import LimitMode, Period, StoreDown
from tidegate.domain.units import Secret

EACH = "each"
"""In the place of a pattern: every value counts apart."""


class LimitedName(StrEnum):
    """What a rule limits; money has `budgets`."""

    TOKENS = "tokens"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    REQUESTS = "requests"
    CONCURRENCY = "concurrency"


class ScopeSection(Section, frozen=True, kw_only=True):
    """Whose use counts: all that are given must match. `each` counts every one apart, a shell-style pattern all that match together."""

    key: Annotated[str | None, Meta(description="Id of the key.")] = None
    user: Annotated[str | None, Meta(description="The user.")] = None
    tenant: Annotated[str | None, Meta(description="The tenant.")] = None
    tier: Annotated[str | None, Meta(description="The tier.")] = None
    feature: Annotated[str | None, Meta(description="The business feature (`X-Business-Context`).")] = None
    model: Annotated[str | None, Meta(description="The model that the client asks for.")] = None
    route: Annotated[str | None, Meta(description="The pattern of the route.")] = None


class LimitRuleSection(Section, frozen=True, kw_only=True):
    """One limit. A request must fit under every rule that its scope puts it under, and under its key's own ceilings."""

    name: Annotated[str, Meta(description="For refusals, headers and metrics.")]
    of: Annotated[LimitedName, Meta(description="What is counted; `concurrency`: requests at the same time.")] = LimitedName.TOKENS
    scope: Annotated[ScopeSection, Meta(description="Whose use counts; empty: everybody's together.")] = ScopeSection()
    ceiling: Annotated[AtLeastOne, Meta(description="The most of it, in any `window_s`, from one `per` to the next, or at once.")]
    window_s: Annotated[Positive | None, Meta(description="The window slides: at most the ceiling in any such time. Default: 60 s.")] = None
    burst: Annotated[
        AtLeastOne | None,
        Meta(description="A steady rate of `ceiling` per `window_s` instead, of which this much may be used at once."),
    ] = None
    per: Annotated[Period | None, Meta(description="Count from one full hour, day or month (UTC) to the next instead.")] = None
    mode: Annotated[LimitMode, Meta(description="`shadow`: counted and reported, never refused.")] = LimitMode.ENFORCE
    on_store_down: Annotated[
        StoreDown,
        Meta(
            description="While the store that processes share is away: go on with a `local_share` (the ceiling divided by the workers "
            "that were alive), `deny` or `allow`."
        ),
    ] = StoreDown.LOCAL_SHARE


class CeilingsSection(Section, frozen=True, kw_only=True):
    """Ceilings of one key. Windows slide: "in any 60 s", not per calendar minute."""

    tokens_per_minute: Annotated[
        AtLeastOne | None, Meta(description="Tokens (prompt and completion) in any 60 s; without it, no ceiling.")
    ] = None
    requests_per_minute: Annotated[AtLeastOne | None, Meta(description="Requests in any 60 s; without it, no ceiling.")] = None
    concurrency: Annotated[AtLeastOne | None, Meta(description="Requests at the same time; without it, no ceiling.")] = None


class LimitsSection(CeilingsSection, frozen=True, kw_only=True):
    """Ceilings of every key that has none of its own, and rules. Windows slide: "in any 60 s", not per calendar minute."""

    rules: Annotated[tuple[LimitRuleSection, ...], Meta(description="Further limits, of whole tenants, models and the like.")] = ()
    store: Annotated[
        Secret | None,
        Meta(
            description="Where several nodes share their limits: the address of a Redis or Valkey, like `redis://10.0.0.7:6379/0` "
            "(`rediss://` with TLS; needs the package `redis`). Without it, the workers of one node share theirs, and nodes know nothing "
            "of each other."
        ),
    ] = None


class TierSection(CeilingsSection, frozen=True, kw_only=True):
    """What callers of one tier get."""

    promised_ttft_s: Annotated[
        Positive | None,
        Meta(description="Time to first token promised to this tier: routes ordered by `sla` pick the cheapest target that keeps it."),
    ] = None
