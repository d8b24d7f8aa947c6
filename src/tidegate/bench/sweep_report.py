"""The steps of a sweep as one run: each is a stage, and they follow each other without the pauses that there were between them.

Pure. What the clients say of themselves is the worst of all steps; whether the sweep counts is decided by the step that ended it: a client
that could not follow only at a rate which the target would not have held either says nothing against the rates below.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from tidegate.bench import shown
from tidegate.bench.plan import CurvePoint, Plan, PlannedRequest, Stage
from tidegate.bench.run_report import Report
from tidegate.bench.sample import Buckets, ClientHealth, ClientReport, Sample
from tidegate.bench.sweep import StepResult, SweepEnd, next_step

_INSTANTS = (
    *("due_at", "sent_at", "ended_at", "connected_at", "headers_at", "first_event_at"),
    *("first_reasoning_at", "first_content_at", "last_output_at", "usage_at"),
)


class SweepStep(msgspec.Struct, frozen=True):
    """One rate that was tried."""

    rate_per_s: float
    plan: Plan
    samples: list[Sample]
    client_reports: tuple[ClientReport, ...]
    began_at: float


def next_rate(
    history: Sequence[StepResult], *, first_per_s: float, highest_per_s: float | None, ttft_p99_s: float | None
) -> float | SweepEnd:
    """Give the rate to try next, none above `highest_per_s`."""
    chosen = next_step(history, start_per_s=first_per_s, ttft_p99_s=ttft_p99_s)
    if highest_per_s is None or isinstance(chosen, SweepEnd) or chosen <= highest_per_s:
        return chosen
    if all(step.rate_per_s < highest_per_s for step in history):
        return highest_per_s
    return SweepEnd(highest_per_s, f"Every rate held up to {highest_per_s:g}/s, where the sweep was to end: the target may take more.")


def joined(steps: Sequence[SweepStep]) -> tuple[Plan, Iterator[Sample], tuple[ClientReport, ...]]:
    """Make one plan of all, give its samples in their new places, and what the clients said."""
    begins = [0.0]
    for step in steps:
        begins.append(begins[-1] + step.plan.length_s)
    requests: list[PlannedRequest] = []
    stages: list[Stage] = []
    curve: list[CurvePoint] = []
    for number, (step, (begin, end)) in enumerate(zip(steps, pairwise(begins), strict=True)):
        first = len(requests)
        requests += (_moved(request, number, begin, first) for request in step.plan.requests)
        stages.append(Stage(f"{step.rate_per_s:.3g}/s", begin, step.plan.length_s, step.rate_per_s))
        curve += (CurvePoint(begin, step.rate_per_s), CurvePoint(end, step.rate_per_s))
    load = f"sweep, {len(steps)} rates for {steps[0].plan.length_s:g} s each"
    plan = Plan(seed=steps[0].plan.seed, load=load, requests=tuple(requests), stages=tuple(stages), length_s=begins[-1], curve=tuple(curve))
    return plan, _samples(steps, begins), _client_reports(steps)


def sweep_report(report: Report, history: Sequence[StepResult], end: SweepEnd) -> Report:
    """Say what the sweep found, and let it count when the step that ended it does."""
    over = [step for step in history if end.saturation_per_s is None or step.rate_per_s > end.saturation_per_s]
    deciding = min(over, key=lambda step: step.rate_per_s, default=None)
    counts = deciding is None or deciding.valid
    pauses = "a sweep: each stage is a run of its own, and the pauses between them are left out"
    return msgspec.structs.replace(
        report, invalid=() if counts else report.invalid or (end.reason,), remarks=(end.reason, pauses, *report.remarks)
    )


def told(result: StepResult) -> str:
    """Say in a line what a step gave."""
    return (
        f"{result.rate_per_s:.3g}/s: sent {shown.per_s(result.achieved_per_s)}, good {shown.per_s(result.goodput_per_s)}, "
        f"success {shown.share(result.success_ratio)}, ttft p99 {shown.time_s(result.ttft_p99_s)}"
        + ("" if result.valid else "; the client could not follow")
    )


def _moved(request: PlannedRequest, stage: int, by_s: float, first: int) -> PlannedRequest:
    return msgspec.structs.replace(request, index=first + request.index, due_s=by_s + request.due_s, stage=stage)


def _samples(steps: Sequence[SweepStep], begins: Sequence[float]) -> Iterator[Sample]:
    first = 0
    for step, begin in zip(steps, begins, strict=False):
        for sample in step.samples:
            yield _later(sample, first + sample.index, begin)
        first += len(step.plan.requests)


def _later(sample: Sample, index: int, by_s: float) -> Sample:
    marks = {name: None if (at := getattr(sample, name)) is None else at + by_s for name in _INSTANTS}
    return msgspec.structs.replace(sample, index=index, **marks)


def _client_reports(steps: Sequence[SweepStep]) -> tuple[ClientReport, ...]:
    reports: dict[int, list[ClientReport]] = {}
    for number, step in enumerate(steps):
        for report in step.client_reports:
            moved = ClientReport(report.health, _at(number, report.chunk_gaps), _at(number, report.token_gaps))
            reports.setdefault(report.health.client, []).append(moved)
    return tuple(_one(reports[client]) for client in sorted(reports))


def _at(stage: int, gaps: dict[int, Buckets]) -> dict[int, Buckets]:
    """Move the gaps of a step, which is one stage, to its place."""
    return {stage: gaps[0]} if 0 in gaps else {}


def _one(reports: Sequence[ClientReport]) -> ClientReport:
    """Make one report of a client's, with the worst of each."""
    healths = [report.health for report in reports]
    health = ClientHealth(
        client=healths[0].client,
        loop_lag_p99_s=max(health.loop_lag_p99_s for health in healths),
        loop_lag_max_s=max(health.loop_lag_max_s for health in healths),
        cpu_ratio=max(health.cpu_ratio for health in healths),
        cap_reached=sum(health.cap_reached for health in healths),
        connections_opened=sum(health.connections_opened for health in healths),
    )
    return ClientReport(
        health,
        {stage: gaps for report in reports for stage, gaps in report.chunk_gaps.items()},
        {stage: gaps for report in reports for stage, gaps in report.token_gaps.items()},
    )
