"""What flows through the node now: rates and quantiles out of two looks at counters that only grow.

Pure: the same two looks give the same figures. A quantile is read out of a histogram, so it is as exact as that one's buckets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from tidegate.admin.view import NodeSnapshot
from tidegate.domain.outcome import Outcome
from tidegate.domain.statistics import Histogram, RouteHistograms

REFUSED_FOR_US: Final = (Outcome.MODEL_ERROR, Outcome.REJECTED_NO_REPLICA, Outcome.REJECTED_OVERLOAD)
"""Errors that no name with `failed_` says: the client did nothing wrong, and got no answer."""


class Totals(msgspec.Struct, frozen=True):
    """The counters of one look. `at` is seconds since the epoch."""

    at: float
    requests: dict[str, int]
    """By outcome."""
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost_micro: int
    duration: Histogram | None
    """Of requests that were served."""
    ttft: Histogram | None
    per_token: Histogram | None


class Spread(msgspec.Struct, frozen=True):
    """How some durations were spread, in seconds."""

    count: int
    p50_s: float
    p95_s: float
    p99_s: float


class Flow(msgspec.Struct, frozen=True):
    """What flowed in the `span_s` before `at`; rates are by the second. Figures of requests count when those end."""

    at: float
    span_s: float
    requests_per_s: float = 0.0
    errors_per_s: float = 0.0
    """Upstreams or the gateway failed, or had no room; what limits and checks refused is not in it."""
    refused_per_s: float = 0.0
    tokens_in_per_s: float = 0.0
    tokens_cached_per_s: float = 0.0
    """A part of those in."""
    tokens_out_per_s: float = 0.0
    cost_micro_per_s: float = 0.0
    outcomes: dict[str, int] = {}
    duration: Spread | None = None
    """Of whole requests that were served: what was refused in no time, or failed, says nothing of how fast answers are. None without."""
    ttft: Spread | None = None
    """Of streams, to the first output."""
    per_token: Spread | None = None
    """Of streams, between two output tokens: what came after the first output, by the tokens in it."""


def totals_of(node: NodeSnapshot, *, at: float) -> Totals:
    """Sum one look over routes, upstreams and operations."""
    counted = node.statistics.requests
    requests: dict[str, int] = {}
    for tally in counted.requests:
        requests[tally.outcome] = requests.get(tally.outcome, 0) + tally.count
    tokens: dict[str, int] = {}
    for each in counted.tokens:
        tokens[each.token_class] = tokens.get(each.token_class, 0) + each.tokens
    return Totals(
        at=at,
        requests=requests,
        prompt_tokens=tokens.get("prompt", 0),
        cached_tokens=tokens.get("cached", 0),
        completion_tokens=tokens.get("completion", 0),
        cost_micro=sum(each.cost_micro for each in counted.costs),
        duration=_joined(counted.histograms, lambda route: route.served),
        ttft=_joined(counted.histograms, lambda route: route.ttft),
        per_token=_joined(counted.histograms, lambda route: route.tpot),
    )


def flow_between(before: Totals, after: Totals) -> Flow:
    """Give what flowed between two looks."""
    span_s = after.at - before.at
    if span_s <= 0:
        return Flow(after.at, 0.0)
    ended = {outcome: count - before.requests.get(outcome, 0) for outcome, count in after.requests.items()}
    outcomes = {outcome: count for outcome, count in ended.items() if count > 0}
    return Flow(
        at=after.at,
        span_s=span_s,
        requests_per_s=sum(outcomes.values()) / span_s,
        errors_per_s=sum(count for outcome, count in outcomes.items() if is_error(outcome)) / span_s,
        refused_per_s=sum(count for outcome, count in outcomes.items() if is_refusal(outcome)) / span_s,
        tokens_in_per_s=max(0, after.prompt_tokens - before.prompt_tokens) / span_s,
        tokens_cached_per_s=max(0, after.cached_tokens - before.cached_tokens) / span_s,
        tokens_out_per_s=max(0, after.completion_tokens - before.completion_tokens) / span_s,
        cost_micro_per_s=max(0, after.cost_micro - before.cost_micro) / span_s,
        outcomes=outcomes,
        duration=_spread(before.duration, after.duration),
        ttft=_spread(before.ttft, after.ttft),
        per_token=_spread(before.per_token, after.per_token),
    )


def is_error(outcome: str) -> bool:
    """Tell whether it is a fault of ours or of an upstream, as a 5xx is."""
    return outcome.startswith("failed_") or outcome in REFUSED_FOR_US


def is_refusal(outcome: str) -> bool:
    """Tell whether a limit or a check said no."""
    return outcome.startswith("rejected_") and not is_error(outcome)


def _joined(routes: tuple[RouteHistograms, ...], choose: Callable[[RouteHistograms], Histogram]) -> Histogram | None:
    joined: Histogram | None = None
    for route in routes:
        joined = choose(route) if joined is None else joined.plus(choose(route))
    return joined


def _spread(before: Histogram | None, after: Histogram | None) -> Spread | None:
    if after is None:
        return None
    known = before.counts if before is not None else (0,) * len(after.counts)
    counts = [max(0, now - then) for now, then in zip(after.counts, known, strict=True)]
    total = sum(counts)
    if total == 0:
        return None
    return Spread(total, *(_quantile(after.bounds, counts, share) for share in (0.5, 0.95, 0.99)))


def _quantile(bounds: tuple[float, ...], counts: list[int], share: float) -> float:
    """Read a quantile, as if values lay evenly within their bucket; what is above the last bound counts as that bound."""
    wanted = share * sum(counts)
    passed = 0
    lower = 0.0
    for bound, count in zip(bounds, counts[: len(bounds)], strict=True):
        if passed + count >= wanted:
            return lower + (bound - lower) * (wanted - passed) / count if count else bound
        passed += count
        lower = bound
    return lower
