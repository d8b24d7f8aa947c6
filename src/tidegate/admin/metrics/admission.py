"""Metrics of who is let in: limits, what is held for answers, credentials, and the counting of prompts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidegate.admin.metrics.spec import Kind, MetricSpec, Sample, counter, level, several
from tidegate.admin.view import NodeSnapshot

_LIMIT_MODES = {"denied": "enforce", "would_deny": "shadow"}


def _limit_refusals(node: NodeSnapshot) -> Iterator[Sample]:
    for key, count in node.statistics.counters.items():
        part, _, rest = key.partition(".")
        told, _, rule = rest.partition(".")
        if part == "limits" and told in _LIMIT_MODES:
            yield (rule, _LIMIT_MODES[told]), count


ADMISSION: Final[tuple[MetricSpec, ...]] = (
    level("tidegate_limit_counters", "limits.counters", "Counters of limits that have something in use or were asked for lately."),
    counter("tidegate_limit_shared_total", "limits.shared", "Times a name had to share a counter, because its rule had too many."),
    MetricSpec(
        "tidegate_limit_refusals_total",
        Kind.COUNTER,
        ("rule", "mode"),
        "Requests that a limit refused (`mode` is `enforce`) or, in shadow mode, would have refused (`shadow`).",
        _limit_refusals,
    ),
    level("tidegate_limit_lease_units", "limits.lease_units", "Units of all shared limits that workers may use without asking."),
    level("tidegate_limit_store_away", "limits.store_away", "Workers that cannot reach the store of limits: `on_store_down` decides."),
    level("tidegate_limit_store_settling", "limits.store_settling", "Workers whose store came up empty a moment ago."),
    counter("tidegate_limit_exchanges_total", "limits.exchanges", "Exchanges of leases with the store of the limits."),
    counter("tidegate_limit_exchange_failures_total", "limits.exchange_failures", "Exchanges of leases that failed."),
    level("tidegate_permits", "limits.permits_outstanding", "Requests admitted and not yet settled."),
    level("tidegate_reservation_tokens", "limits.tokens_held", "Tokens reserved for running requests.", ("state", "held")),
    several(
        "tidegate_forecasts_total",
        Kind.COUNTER,
        "result",
        {"kept": "reserve.kept", "exceeded": "reserve.exceeded"},
        "Answers whose length was forecast from those before them, and whether they stayed within it (see `reserve.quantile`).",
    ),
    level("tidegate_forecast_groups", "reserve.groups", "Kinds of requests whose lengths are remembered, added up over the workers."),
    several(
        "tidegate_authentication_cache_total",
        Kind.COUNTER,
        "result",
        {"hit": "authentication.hits", "miss": "authentication.misses"},
        "Credentials answered from memory, or verified.",
    ),
    counter("tidegate_authentication_refused_total", "authentication.refused", "Credentials refused."),
    level(
        "tidegate_keys_unreadable", "keys.unreadable", "Workers that cannot read the key database; the keys known until then stay in force."
    ),
    counter("tidegate_prompt_counts_total", "counting.counts", "Prompts counted with a tokenizer."),
    counter("tidegate_prompt_count_fallbacks_total", "counting.fallbacks", "Prompts whose count became an estimate."),
)
