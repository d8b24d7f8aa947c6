"""A baseline in a file, and what falls behind it."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.bench.runs import LENIENT, answer, planned, report, steady_report

from tidegate.bench.baseline import Regressions, baseline_json, baseline_of, parse_tolerance, read_baseline, regressions
from tidegate.bench.compare import Change
from tidegate.bench.outcome import judge
from tidegate.errors import ConfigurationError

BASELINE = baseline_of(steady_report())


def regressed(found: Regressions) -> list[str]:
    return [one.row.path for one in found.regressed]


def test_a_run_does_not_fall_behind_itself() -> None:
    """All that is watched and measured was held."""
    found = regressions(BASELINE, steady_report())
    assert ((), ()) == (found.obstacles, found.regressed)
    assert {"success", "goodput", "tokens_out", "ttft.p50", "ttft.p99", "tpot.mean", "e2e.p50", "e2e.p99", "outcome.semantic"} == {
        one.row.path for one in found.held
    }


def test_a_slower_run_has_regressed() -> None:
    """Half as slow again; what is still as it was is not named."""
    assert ["ttft.p50", "ttft.p99"] == [
        path for path in regressed(regressions(BASELINE, steady_report(ttft_s=0.3))) if path.startswith("ttft")
    ]


def test_a_faster_run_has_not() -> None:
    """Better is no regression."""
    found = regressions(BASELINE, steady_report(ttft_s=0.1, e2e_s=0.5))
    assert [] == [path for path in regressed(found) if path.startswith(("ttft", "e2e"))]


def test_failures_regress_by_points() -> None:
    """Thirty of a hundred are; one of a hundred is more than the tolerance, but not more than chance."""
    assert "success" in regressed(regressions(BASELINE, steady_report(failures=30)))
    assert "success" not in regressed(regressions(BASELINE, steady_report(failures=1)))


def test_a_tolerance_can_be_wider() -> None:
    """Then half as slow again is allowed."""
    wide = dict(map(parse_tolerance, ("ttft.p50=60%", " ttft.p99=60% ")))
    assert {"ttft.p50": 0.6, "ttft.p99": 0.6} == wide
    found = regressions(BASELINE, steady_report(ttft_s=0.3), wide)
    assert [] == [path for path in regressed(found) if path.startswith("ttft.")]


def test_further_figures_can_be_watched() -> None:
    """If the baseline has them; what it has not cannot fall behind it."""
    found = {one.row.path: one for one in regressions(BASELINE, steady_report(ttft_s=0.3), {"ttft.sent.p99": 0.1, "ttft.max": 0.1}).held}
    assert [True, False] == [found["ttft.sent.p99"].regressed, found["ttft.max"].regressed]
    assert (Change.UNKNOWN, None) == (found["ttft.max"].row.change, found["ttft.max"].row.before)


def test_what_is_no_longer_measured_has_regressed() -> None:
    """A server that stopped to report usage has no TPOT any more."""
    silent = report([judge(answer(i, due_at=i / 10, tokens=None), planned(i), LENIENT) for i in range(100)])
    assert "tpot.mean" in regressed(regressions(BASELINE, silent))


def test_what_cannot_be_compared_is_not() -> None:
    """Another load, an invalid or an interrupted run: the obstacles, and nothing held."""
    other = msgspec.structs.replace(steady_report(), load="poisson, 5/s", invalid=("x",), interrupted_s=1.0)
    found = regressions(BASELINE, other)
    assert (3, ()) == (len(found.obstacles), found.held)


@pytest.mark.parametrize(
    ("members", "words"), [({"invalid": ("x",)}, "invalid run is no baseline: x"), ({"interrupted_s": 1.0}, "interrupted run")]
)
def test_only_a_whole_valid_run_becomes_a_baseline(members: dict[str, object], words: str) -> None:
    """Others say too little to be held to."""
    with pytest.raises(ConfigurationError, match=words):
        baseline_of(msgspec.structs.replace(steady_report(), **members))


def test_a_baseline_is_read_back_as_it_was() -> None:
    """Law of the file."""
    assert BASELINE == read_baseline(baseline_json(BASELINE), "b.json")


@pytest.mark.parametrize(
    ("text", "words"),
    [(b"{}", "b.json is no baseline"), (baseline_json(msgspec.structs.replace(BASELINE, version=9)), "b.json is a baseline of version 9")],
)
def test_what_is_no_baseline_is_refused_in_words(text: bytes, words: str) -> None:
    """The file is named, and what to do."""
    with pytest.raises(ConfigurationError, match=f"{words}.*keep a fresh one"):
        read_baseline(text, "b.json")


@pytest.mark.parametrize("text", ["ttft.p99", "ttft.p99=15", "tfft.p99=15%", "ttft.p99=-1%"])
def test_a_tolerance_that_cannot_be_meant_is_refused(text: str) -> None:
    """With the nearest name, or the form."""
    with pytest.raises(ConfigurationError):
        parse_tolerance(text)
