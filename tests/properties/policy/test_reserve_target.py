"""The reserve's target, on made-up traffic: a full limit is used almost whole, hardly exceeded, and better than without learning.

The same replay as `python -m benchmarks.reserve`, whose figures for a public trace are in docs/reserve.md.
"""

from __future__ import annotations

from random import Random

import pytest
from benchmarks.reserve import Arrival, Method, Replay, as_spent, methods, over, utilisation

CAP, CONSTANT, _, LEARNED = methods([0.95])


def _traffic(seed: int) -> list[Arrival]:
    """Ten minutes of five requests a second in random gaps: log-normal prompts and answers, as in public traces."""
    rng, now, arrivals = Random(seed), 0.0, []
    while now < 600:
        now += rng.expovariate(5)
        arrivals.append(Arrival(now, int(rng.lognormvariate(6.5, 0.9)), 1 + int(rng.lognormvariate(4.9, 0.9))))
    return arrivals


def _run(method: Method, seed: int) -> tuple[float, float, float]:
    """Give utilisation, the most that went through in 60 s above the limit, and the share of answers cut."""
    arrivals = _traffic(seed)
    offered = sum(each.prompt_tokens + each.completion_tokens for each in arrivals) / 10
    run = Replay(arrivals, int(offered / 2), method).finish()
    return utilisation(run), over(run, as_spent(run)), run.cut / len(run.answers)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_full_limit_is_used_almost_whole_and_hardly_exceeded(seed: int) -> None:
    """At half of what is offered: 95 % of the limit is really used, no 60 s are 1 % above it, fewer than one answer in 100 is cut."""
    used, above, cut = _run(LEARNED, seed)
    assert used >= 0.95
    assert above <= 0.01
    assert cut < 0.01


def test_learning_uses_more_than_holding_a_cap_or_a_constant() -> None:
    """What is held and not needed is refused to others."""
    cap, constant, learned = (_run(method, 1)[0] for method in (CAP, CONSTANT, LEARNED))
    assert cap < constant < learned
