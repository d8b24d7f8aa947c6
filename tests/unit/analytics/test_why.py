"""Why the 99th percentile rose: planted causes are found, decoys are called what they are."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import ceil
from typing import Any

import pytest

from tidegate.analytics.why import FEWEST, Finding, Stratum, Sureness, Verdict, Window, why

DIMENSIONS = ("replica", "feature", "tenant", "prompt", "stream", "attempts")
REPLICAS = tuple(f"pool/{number}" for number in range(8))
FEATURES = ("chat", "code_completion", "summary", "translate", "search", "agent")
Row = tuple[float, tuple[str, ...]]
Change = Callable[[random.Random, list[str], float], float]
SEEDS = range(6)


def traffic(rng: random.Random, rows: int, *, long_ratio: float = 0.05, change: Change | None = None) -> list[Row]:
    """Draw requests: long prompts take longer, everything else is alike. `change` gives another duration, and may change traits."""
    drawn = []
    for _ in range(rows):
        is_long = rng.random() < long_ratio
        traits = [
            rng.choice(REPLICAS),
            rng.choice(FEATURES),
            f"tenant-{int(40 * rng.random() ** 2)}",
            "long" if is_long else "short",
            "yes" if rng.random() < 0.7 else "no",
            "several" if rng.random() < 0.01 else "one",
        ]
        duration = rng.lognormvariate(1.2 if is_long else 0.0, 0.5)
        drawn.append((change(rng, traits, duration) if change is not None else duration, tuple(traits)))
    return drawn


def windows(rng: random.Random, before: Sequence[Row], after: Sequence[Row], *, wanted: int = 3000) -> tuple[Window, Window]:
    """Sample both as the store does."""
    p90, p99 = _quantile(before, 0.9), _quantile(before, 0.99)

    def window(rows: Sequence[Row]) -> Window:
        strata = []
        for place in range(3):
            kept = [row for row in rows if (row[0] > p90) + (row[0] > p99) == place]
            some = rng.sample(kept, min(wanted, len(kept)))
            traits = [[row[1][index] for row in some] for index in range(len(DIMENSIONS))]
            strata.append(Stratum(len(kept), [row[0] for row in some], traits))
        return Window(_quantile(rows, 0.99), strata)

    return window(before), window(after)


@lru_cache(maxsize=len(SEEDS))
def ordinary(seed: int, rows: int) -> tuple[list[Row], tuple[Any, ...]]:
    """Draw what most of the tests have before the rise, once; and where the draws go on."""
    rng = random.Random(seed)
    return traffic(rng, rows), rng.getstate()


def found(seed: int, change: Change | None, *, rows: int = 20_000, long_ratio: float = 0.05) -> Finding:
    rng = random.Random()
    before, state = ordinary(seed, rows)
    rng.setstate(state)
    after = traffic(rng, rows, change=change, long_ratio=long_ratio)
    return why(*windows(rng, before, after), DIMENSIONS)


def _quantile(rows: Sequence[Row], level: float) -> float:
    return sorted(row[0] for row in rows)[ceil(level * len(rows)) - 1]


@pytest.mark.parametrize("seed", SEEDS)
def test_one_replica_that_is_slow_for_one_feature_is_found(seed: int) -> None:
    """Both traits are named, and what P99 would be without them is what it was before."""
    rng = random.Random(seed)
    replica, feature = rng.choice(REPLICAS), rng.choice(FEATURES)

    def change(_: random.Random, traits: list[str], duration: float) -> float:
        return duration * 4 if traits[:2] == [replica, feature] else duration

    finding = found(seed, change)
    assert finding.cause is not None
    assert {("replica", replica), ("feature", feature)} == set(finding.cause.traits)
    assert (Verdict.GROUP, Sureness.SURE) == (finding.verdict, finding.sureness)
    assert finding.cause == finding.groups[0]
    assert finding.without_s == pytest.approx(finding.before_s, rel=0.1)
    assert f"feature={feature}" in finding.sentence


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("index", "value"), [(0, "pool/3"), (1, "agent"), (5, "several")])
def test_a_cause_of_one_trait_is_not_narrowed(seed: int, index: int, value: str) -> None:
    """A replica that is slow for all, a feature that is slow everywhere, and requests that needed a second attempt."""

    def change(_: random.Random, traits: list[str], duration: float) -> float:
        return duration * 5 if traits[index] == value else duration

    finding = found(seed, change, rows=60_000 if value == "several" else 20_000)
    assert finding.cause is not None
    assert ((DIMENSIONS[index], value),) == finding.cause.traits
    assert Verdict.GROUP is finding.verdict


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shift_of_the_mix_is_no_regression(seed: int) -> None:
    """Three times as many long prompts, each as slow as ever: no replica is blamed."""
    finding = found(seed, None, long_ratio=0.15)
    assert Verdict.MIX is finding.verdict
    assert finding.cause is not None
    assert (("prompt", "long"),) == finding.cause.traits
    assert "the traffic is another" in finding.sentence


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("factor", [1.3, 2.0, 1000.0])
def test_a_general_slow_down_is_called_general(seed: int, factor: float) -> None:
    """Everything takes longer, so that most slow requests have long prompts, as most slow ones had before: nobody is blamed."""
    finding = found(seed, lambda _rng, _traits, duration: duration * factor)
    assert (Verdict.GENERAL, None) == (finding.verdict, finding.cause)
    assert "all became slower" in finding.sentence


@pytest.mark.parametrize("seed", SEEDS)
def test_no_rise_is_told_as_such(seed: int) -> None:
    """The same traffic again, and faster traffic."""
    assert Verdict.NO_RISE is found(seed, None).verdict
    assert "did not rise" in found(seed, lambda _rng, _traits, duration: duration / 2).sentence


def test_a_group_that_was_not_there_before_is_found() -> None:
    """A replica that was added and is slow."""

    def change(rng: random.Random, traits: list[str], duration: float) -> float:
        if rng.random() < 0.05:
            traits[0] = "pool/added"
            return duration * 6
        return duration

    finding = found(1, change)
    assert finding.cause is not None
    assert (("replica", "pool/added"),) == finding.cause.traits
    assert 0.0 == finding.cause.traffic_before == finding.cause.slow_before


@pytest.mark.parametrize("seed", SEEDS)
def test_several_causes_are_named_together(seed: int) -> None:
    """Three of eight replicas are slow: that is neither one of them nor all."""
    slow = {"pool/1", "pool/2", "pool/5"}
    finding = found(seed, lambda _rng, traits, duration: duration * 3 if traits[0] in slow else duration)
    assert Verdict.SEVERAL is finding.verdict
    assert all(f"replica={replica}" in finding.sentence for replica in slow)
    assert finding.cause is not None
    assert finding.cause.name.removeprefix("replica=") in slow


def test_few_requests_say_nothing() -> None:
    """The slowest hundredth of a few hundred is a handful."""
    finding = found(3, None, rows=FEWEST - 1)
    assert (Verdict.TOO_FEW, Sureness.UNSURE) == (finding.verdict, finding.sureness)
    assert Verdict.TOO_FEW is why(Window(0.0, ()), Window(0.0, ()), ()).verdict


def test_what_may_be_chance_is_not_explained() -> None:
    """A tenth more among sixty slow requests."""

    def change(_: random.Random, traits: list[str], duration: float) -> float:
        return duration * 2.2 if traits[:2] == ["pool/1", "chat"] else duration

    finding = found(0, change, rows=6000)
    assert (Verdict.NO_RISE, Sureness.UNSURE) == (finding.verdict, finding.sureness)
    assert "may be chance" in finding.sentence


def test_a_thin_sample_is_less_sure() -> None:
    """The same cause, seen through a handful of rows."""

    def change(_: random.Random, traits: list[str], duration: float) -> float:
        return duration * 4 if traits[:2] == ["pool/1", "chat"] else duration

    rng = random.Random(5)
    before, after = traffic(rng, 20_000), traffic(rng, 20_000, change=change)
    verdicts = [why(*windows(rng, before, after, wanted=wanted), DIMENSIONS).sureness for wanted in (3000, 25, 4)]
    assert Sureness.SURE is verdicts[0]
    assert Sureness.SURE is not verdicts[2]
