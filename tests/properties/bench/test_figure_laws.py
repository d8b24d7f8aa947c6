"""Laws of figures: nothing is lost, nothing depends on the order, and a report is read back as it was."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.bench.runs import MACHINE, TARGET, judged_requests, plan, report

from tidegate.bench.baseline import baseline_json, baseline_of, read_baseline, regressions
from tidegate.bench.compare import Change, compare
from tidegate.bench.figures import Figures, GroupFigures
from tidegate.bench.measures import MEASURES
from tidegate.bench.outcome import Criteria, Judged, Outcome
from tidegate.bench.plan import Stage
from tidegate.bench.run_report import Report, csv_heading, csv_line, make_report, read_report, report_json
from tidegate.bench.series import MOST_BINS, TimeSeries

STAGES = (Stage("low", 0.0, 6.0), Stage("high", 6.0, 4.0))
BRIEF = settings(max_examples=40)
"""Each example is a run of up to 25 requests."""


def figures_of(judged: Iterable[Judged], warm_up_s: float = 0.0) -> Figures:
    figures = Figures(plan(stages=STAGES), warm_up_s=warm_up_s)
    for one in judged:
        figures.add(one)
    return figures


def report_of(judged: Iterable[Judged]) -> Report:
    return make_report(plan(stages=STAGES), TARGET, figures_of(judged), [], machine=MACHINE, began_at=0.0, criteria=Criteria())


def alike(left: object, right: object) -> bool:
    """Compare what is built of parts; sums of floats may differ in their last digits."""
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-6, abs_tol=1e-6)
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(alike(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(alike, left, right))
    return left == right


def added(parts: Sequence[GroupFigures], whole: GroupFigures) -> bool:
    """Tell whether the counts of the parts are the whole's."""
    names = {name for part in (*parts, whole) for name in (*part.outcomes, *part.reasons)}
    return all(
        sum(part.outcomes.get(name, 0) + part.reasons.get(name, 0) for part in parts)
        == whole.outcomes.get(name, 0) + whole.reasons.get(name, 0)
        for name in names
    ) and whole.requests == sum(part.requests for part in parts)


@BRIEF
@given(judged_requests, st.floats(0.0, 10.0))
def test_every_request_is_counted_once(judged: list[Judged], warm_up_s: float) -> None:
    """Law: a request is in one outcome, or not sent, or of the warm-up, or was never asked for."""
    figures = figures_of(judged, warm_up_s)
    whole = figures.whole.figures()
    assert len(judged) == whole.requests + whole.not_sent + figures.warmed_up + figures.not_asked
    assert whole.requests == sum(whole.outcomes.values())


@BRIEF
@given(judged_requests)
def test_the_parts_make_the_whole(judged: list[Judged]) -> None:
    """Law: outcomes and reasons of all stages, and of all scenarios, add up."""
    figures = figures_of(judged)
    whole = figures.whole.figures()
    assert added(figures.stages(), whole)
    assert added(figures.scenarios(), whole)


@BRIEF
@given(judged_requests)
def test_latencies_are_of_answers_or_of_failures(judged: list[Judged]) -> None:
    """Law: each request that was sent has its time in one distribution, and success is the share of ok."""
    whole = figures_of(judged).whole.figures()
    measured = sum(latencies.due.n for latencies in (whole.e2e, whole.failed_e2e) if latencies is not None)
    assert whole.requests == measured
    if whole.success_ratio is not None and whole.http_success_ratio is not None:
        assert whole.success_ratio == whole.outcomes[Outcome.OK.value] / whole.requests


@BRIEF
@given(judged_requests, st.integers())
def test_the_order_changes_nothing(judged: list[Judged], seed: int) -> None:
    """Law: samples of several clients come in any order."""
    other = list(judged)
    Random(seed).shuffle(other)
    left, right = (msgspec.to_builtins(report_of(one)) for one in (judged, other))
    for one in (left, right):
        for group in (one["whole"], *one["stages"], *one["scenarios"]):
            group["reasons"] = dict(sorted(group["reasons"].items()))
    assert alike(left, right)


@BRIEF
@given(judged_requests)
def test_a_report_is_read_back_as_it_was(judged: list[Judged]) -> None:
    """Law: writing and reading lose nothing, and what is written never holds the key."""
    made = report_of(judged)
    text = report_json(made)
    assert made == read_report(text, "a.json")
    assert TARGET.key.encode() not in text


@BRIEF
@given(judged_requests)
def test_nothing_falls_behind_itself(judged: list[Judged]) -> None:
    """Law: a run compared with itself has changed in nothing, and has not regressed."""
    made = msgspec.structs.replace(report_of(judged), invalid=())
    comparison = compare(made, made)
    assert ((), set()) == (comparison.obstacles, {row.change for row in comparison.rows} - {Change.SAME})
    baseline = baseline_of(made)
    assert baseline == read_baseline(baseline_json(baseline), "b.json")
    assert () == regressions(baseline, made).regressed


@BRIEF
@given(judged_requests)
def test_every_figure_is_a_finite_number_or_nothing(judged: list[Judged]) -> None:
    """Law: no report divides by nought."""
    made = report_of(judged)
    values = [measure.of(group) for group in (made.whole, *made.stages, *made.scenarios) for measure in MEASURES.values()]
    assert [] == [value for value in values if value is not None and not math.isfinite(value)]


@BRIEF
@given(judged_requests)
def test_a_csv_line_has_a_cell_for_each_column(judged: list[Judged]) -> None:
    """Law: whatever is known or not."""
    columns = csv_heading().count(",")
    assert {columns} >= {csv_line(one).count(",") for one in judged}


@BRIEF
@given(judged_requests, st.floats(0.0, 1e6))
def test_the_series_is_bounded_and_loses_nothing(judged: list[Judged], length_s: float) -> None:
    """Law: however long the run, there are so many bins, and all that was sent has ended in the last of them."""
    series = TimeSeries()
    for index, one in enumerate(judged):
        sample, later_s = one.sample, length_s * index / len(judged)
        moved = msgspec.structs.replace(
            sample, due_at=sample.due_at + later_s, sent_at=sample.sent_at + later_s, ended_at=sample.ended_at + later_s
        )
        series.add(msgspec.structs.replace(one, sample=moved))
    found = series.series()
    assert len(found.points) <= MOST_BINS
    assert len(judged) == round(sum(point.due_per_s for point in found.points) * found.width_s)
    assert found.points == () or 0 == found.points[-1].in_flight


def test_an_empty_run_has_a_report() -> None:
    """It is invalid, and it is read back."""
    made = report([])
    assert made == read_report(report_json(made), "a.json")
