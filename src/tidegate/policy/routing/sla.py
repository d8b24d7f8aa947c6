"""Order a route's targets by the promised time to first token: the cheapest that keeps it goes first.

What is known of a target's time: the one observed, once there are enough calls; before that the one its operator declared; else nothing.
The order is: those known to keep the promise, the cheapest first; those of which nothing is known, the cheapest first, so that they get
known when no better is there; those known to be too slow, the fastest first. Without a promise the cheapest goes first. Of equals the
one listed first goes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tidegate.domain.units import UpstreamName
from tidegate.domain.upstream import Target


class Observations(Protocol):
    """What has been seen of upstreams; `Fleet` has it."""

    def observed_ttft_s(self, upstream: UpstreamName) -> float | None: ...


class Candidate(msgspec.Struct, frozen=True):
    """A target with what its operator says of it."""

    target: Target
    typical_ttft_s: float | None = None
    relative_cost: float = 1.0


class RankedTarget(msgspec.Struct, frozen=True):
    """A candidate beside a promise. `keeps` None: nothing is known, or nothing was promised."""

    target: Target
    relative_cost: float
    ttft_s: float | None
    observed: bool
    """The time was measured, not declared."""
    keeps: bool | None


def order_by_promise(candidates: Sequence[Candidate], promised_ttft_s: float | None, observations: Observations) -> list[RankedTarget]:
    """Give the candidates in the order to try."""
    ranked = [_beside_promise(candidate, promised_ttft_s, observations) for candidate in candidates]
    ranked.sort(key=_cost if promised_ttft_s is None else _rank)
    return ranked


def _beside_promise(candidate: Candidate, promised_ttft_s: float | None, observations: Observations) -> RankedTarget:
    observed = observations.observed_ttft_s(candidate.target.upstream)
    ttft_s = observed if observed is not None else candidate.typical_ttft_s
    keeps = None if promised_ttft_s is None or ttft_s is None else ttft_s <= promised_ttft_s
    return RankedTarget(candidate.target, candidate.relative_cost, ttft_s, observed is not None, keeps)


def _cost(ranked: RankedTarget) -> float:
    return ranked.relative_cost


def _rank(ranked: RankedTarget) -> tuple[int, float]:
    if ranked.keeps is None:
        return 1, ranked.relative_cost
    if ranked.keeps:
        return 0, ranked.relative_cost
    assert ranked.ttft_s is not None, "only a known time can break a promise"
    return 2, ranked.ttft_s
