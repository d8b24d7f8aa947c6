"""Two runs side by side."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import msgspec
import pytest
from tests.unit.bench.runs import HEALTHY, LENIENT, answer, planned, report, steady_report

from tidegate.bench.compare import HEADLINES, Change, Comparison, Measured, compare, noise_of, row
from tidegate.bench.measures import find
from tidegate.bench.outcome import Criteria, judge
from tidegate.bench.run_report import Report


def changes(comparison: Comparison) -> dict[str, Change]:
    return {one.path: one.change for one in comparison.rows}


def noise(path: str, of: Report | None = None) -> float:
    found = noise_of(find(path), steady_report() if of is None else of)
    assert found is not None
    return found


def test_a_run_is_the_same_as_itself() -> None:
    """Nothing changed, and nothing stands in the way."""
    run = steady_report()
    comparison = compare(run, run)
    assert ((), {Change.SAME}) == (comparison.obstacles, set(changes(comparison).values()))
    assert [path for path in HEADLINES if path in changes(comparison)] == [one.path for one in comparison.rows]


def test_a_slower_run_is_worse_and_a_faster_one_better() -> None:
    """A third more, far beyond the spread."""
    fast, slow = steady_report(), steady_report(ttft_s=0.3)
    found = {one.path: one for one in compare(fast, slow).rows}["ttft.p99"]
    assert [pytest.approx(0.1, rel=0.05), pytest.approx(0.46, rel=0.05)] == [found.difference, found.change_ratio]
    assert Change.WORSE is found.change
    assert Change.BETTER is changes(compare(slow, fast))["ttft.p99"]


def test_a_change_within_the_spread_is_noise() -> None:
    """Ten milliseconds of two hundred, where requests differ by as much."""
    found = {one.path: one for one in compare(steady_report(spread_s=0.3), steady_report(ttft_s=0.21, spread_s=0.3)).rows}["ttft.mean"]
    assert found.difference is not None
    assert found.noise is not None
    assert (Change.SAME, True) == (found.change, 0.0 < found.difference < found.noise)


def test_success_is_judged_as_a_share() -> None:
    """One failure in a hundred may be chance, thirty are not."""
    assert Change.SAME is changes(compare(steady_report(), steady_report(failures=1)))["success"]
    assert Change.WORSE is changes(compare(steady_report(), steady_report(failures=30)))["success"]


def test_a_rate_that_changes_is_only_different() -> None:
    """More load is neither better nor worse."""
    assert Change.DIFFERENT is row(find("rate"), Measured(10.0, 0.1), Measured(20.0, 0.1)).change


def test_below_the_resolution_nothing_changes() -> None:
    """However little the noise; a share has no such floor."""
    assert Change.SAME is row(find("e2e.p50"), Measured(1.0, 0.0), Measured(1.009, 0.0)).change
    assert Change.WORSE is row(find("e2e.p50"), Measured(1.0), Measured(1.011)).change
    assert Change.BETTER is row(find("success"), Measured(0.990, 0.001), Measured(0.999, 0.001)).change


def test_what_one_of_them_has_not_measured_is_unknown() -> None:
    """It is shown all the same, for the reader to see that it is gone."""
    without = report([judge(answer(tokens=None), planned(), LENIENT)])
    found = {one.path: one for one in compare(steady_report(), without).rows}["tpot.mean"]
    assert (Change.UNKNOWN, None, None, None, None) == (found.change, found.after, found.noise, found.difference, found.change_ratio)
    gained = row(find("tpot.mean"), None, Measured(1.0))
    assert (None, 1.0, Change.UNKNOWN) == (gained.before, gained.after, gained.change)


def test_nothing_before_has_no_ratio() -> None:
    """From nought, any change is without measure."""
    found = row(find("outcome.semantic"), Measured(0.0, 0.01), Measured(0.5, 0.01))
    assert (Change.WORSE, None) == (found.change, found.change_ratio)


def test_runs_that_cannot_be_compared_are_said_to_be_so() -> None:
    """Each difference in words."""
    run = steady_report()
    target = msgspec.structs.replace(run.target, endpoint="completions", stream=False)
    other = msgspec.structs.replace(
        run, load="poisson, 5/s", target=target, warm_up_s=3.0, criteria=Criteria(), interrupted_s=4.0, invalid=("x",)
    )
    found = compare(run, other).obstacles
    words = (
        "the loads differ: constant, 10/s for 10 s and poisson, 5/s",
        "the endpoints differ: chat and completions",
        "one run asked for streams and the other did not",
        "the warm-ups differ: 0 s and 3 s",
        "the runs judged answers by different limits",
        "the second run is invalid: x",
        "the second run was interrupted",
    )
    assert words == found


def test_another_target_or_seed_is_what_one_compares() -> None:
    """Neither stands in the way."""
    run = steady_report()
    other = msgspec.structs.replace(run, seed=8, target=msgspec.structs.replace(run.target, base_url="http://other/v1", model="n"))
    assert () == compare(run, other).obstacles


def test_the_noise_of_a_figure_shrinks_with_the_number_of_requests() -> None:
    """By the root: half of it for four times as many."""
    few, many = (
        report([judge(answer(due_at=i % 100 / 10, ttft_s=0.2 + i * 37 % 100 / 500), planned(), LENIENT) for i in range(n)])
        for n in (100, 400)
    )
    ratios = [noise(path, few) / noise(path, many) for path in ("ttft.mean", "ttft.sd", "ttft.p50")]
    assert [pytest.approx(2.0, rel=0.1)] * 3 == ratios


def test_every_kind_of_figure_has_its_noise_or_none() -> None:
    """Least and most have no spread that one run could show; nor has what is not counted by second."""
    run = steady_report(failures=2)
    assert [None] * 4 == [noise_of(find(path), run) for path in ("ttft.max", "tokens_in", "cost.mean", "usage_missing")]
    assert [True] * 5 == [noise(path, run) >= 0.0 for path in ("goodput", "ok_rate", "tokens_out", "success", "outcome.transport")]
    assert pytest.approx(0.0) == noise("rate", run)


def test_a_run_of_one_second_has_no_spread_of_rates() -> None:
    """One bin says nothing of others."""
    assert None is noise_of(find("rate"), msgspec.structs.replace(steady_report(), length_s=1.5))
    assert None is noise_of(find("success"), report([], health=HEALTHY))


def _noisy(rng: Random, *, second_sd_s: float) -> Report:
    """Give a run of 200 requests whose latencies differ one by one, and by the second they were due in."""
    seconds = [rng.gauss(0.0, second_sd_s) for _ in range(10)]
    e2e_s = [0.8 + seconds[index // 20] + rng.expovariate(10.0) for index in range(200)]
    return report([judge(answer(due_at=index / 20, ttft_s=took / 4, e2e_s=took), planned(), LENIENT) for index, took in enumerate(e2e_s)])


def test_runs_of_the_same_server_seldom_seem_to_differ() -> None:
    """At 95 %, some do by chance, and no more of them where whole seconds were bad."""
    rng = Random(5)
    runs = [_noisy(rng, second_sd_s=0.05) for _ in range(9)]
    pairs = [changes(compare(before, after)) for before, after in pairwise(runs)]
    seen = [path for pair in pairs for path in ("e2e.mean", "e2e.p50", "e2e.p95", "ttft.mean") if pair[path] is not Change.SAME]
    assert len(seen) <= 0.15 * 4 * len(pairs), seen
