"""The order of targets by promised time to first token."""

from __future__ import annotations

from tidegate.domain.units import UpstreamName
from tidegate.domain.upstream import Target
from tidegate.policy.routing.sla import Candidate, RankedTarget, order_by_promise

FAST, CHEAP, SLOW, NEW = (Target(UpstreamName(name)) for name in ("fast", "cheap", "slow", "new"))


class Seen:
    """What was observed of upstreams."""

    def __init__(self, **ttft_s: float) -> None:
        self._ttft_s = ttft_s

    def observed_ttft_s(self, upstream: UpstreamName) -> float | None:
        return self._ttft_s.get(upstream)


def order(candidates: list[Candidate], promised: float | None, seen: Seen | None = None) -> list[str]:
    return [each.target.upstream for each in order_by_promise(candidates, promised, seen or Seen())]


def test_the_cheapest_that_keeps_the_promise_goes_first() -> None:
    """A strict promise takes the fast pool, a lax one the cheap pool (the article's A100 and L40)."""
    candidates = [Candidate(FAST, 0.15, 1.9), Candidate(CHEAP, 1.5, 1.0)]
    assert ["fast", "cheap"] == order(candidates, 0.2)
    assert ["cheap", "fast"] == order(candidates, 3.0)


def test_without_a_promise_the_cheapest_goes_first() -> None:
    """Of equals the one listed first."""
    assert ["cheap", "new", "fast"] == order([Candidate(FAST, 0.1, 2.0), Candidate(CHEAP, 9.0, 1.0), Candidate(NEW, None, 1.0)], None)


def test_what_was_observed_is_believed_before_what_was_declared() -> None:
    """A pool that became slow loses the requests it was declared for, and gets them back."""
    candidates = [Candidate(CHEAP, 0.1, 1.0), Candidate(FAST, 0.1, 2.0)]
    assert ["cheap", "fast"] == order(candidates, 0.2)
    assert ["fast", "cheap"] == order(candidates, 0.2, Seen(cheap=0.9))
    assert ["cheap", "fast"] == order(candidates, 0.2, Seen(cheap=0.2))


def test_the_unknown_goes_after_those_that_keep_and_before_those_that_do_not() -> None:
    """It is not risked while a known one keeps the promise, and found out about when none does."""
    candidates = [Candidate(SLOW, 2.0, 0.1), Candidate(NEW, None, 0.5), Candidate(FAST, 0.1, 9.0)]
    assert ["fast", "new", "slow"] == order(candidates, 0.2)


def test_where_none_keeps_the_promise_the_fastest_goes_first() -> None:
    """Whatever it costs."""
    candidates = [Candidate(SLOW, 2.0, 0.1), Candidate(CHEAP, 1.0, 0.2), Candidate(FAST, 0.5, 9.0)]
    assert ["fast", "cheap", "slow"] == order(candidates, 0.2)


def test_the_ranking_says_what_is_known() -> None:
    """For people: the time, where it comes from, and what it means for the promise."""
    candidates = [Candidate(FAST, 0.1, 2.0), Candidate(CHEAP, 0.1, 1.0), Candidate(NEW)]
    assert order_by_promise(candidates, 0.2, Seen(cheap=0.5)) == [
        RankedTarget(FAST, 2.0, 0.1, observed=False, keeps=True),
        RankedTarget(NEW, 1.0, None, observed=False, keeps=None),
        RankedTarget(CHEAP, 1.0, 0.5, observed=True, keeps=False),
    ]
