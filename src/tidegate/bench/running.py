"""Carries a run out: a probe, the plan, the client processes, and the report of what came; of a sweep, several plans one after the other.

Invariants: nothing is sent before everything that can be checked was checked; a run that is interrupted has a report of what there was; no
process is left behind (`fleet` sees to it). Ctrl-C once ends what is under way and reports; twice ends at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import signal
from collections.abc import Iterator, Sequence

import msgspec

from tidegate.adapters.wall_clock import wall_clock
from tidegate.bench.costs import Prices
from tidegate.bench.figures import Figures
from tidegate.bench.fleet import ClientFleet
from tidegate.bench.live_view import LiveView, RunProgress
from tidegate.bench.load_options import Load, LoadOptions
from tidegate.bench.outcome import Criteria, judge
from tidegate.bench.outputs import Outputs
from tidegate.bench.plan import Plan, Target
from tidegate.bench.planning import make_plan
from tidegate.bench.probing import finding
from tidegate.bench.run_report import Machine, Report, make_report
from tidegate.bench.sample import ClientReport, Sample
from tidegate.bench.scenarios import built_in
from tidegate.bench.sweep import StepResult, SweepEnd
from tidegate.bench.sweep_report import SweepStep, joined, next_rate, sweep_report, told
from tidegate.bench.validity import LEAST_TO_DOUBT, RunConditions, check
from tidegate.errors import ConfigurationError
from tidegate.policy.billing.pricing import Pricing

_TICK_S = 0.25
"""How often the view is offered another look while no sample comes."""
MOST_SWEPT = 500_000
"""Requests of a whole sweep, which are held until its end: some 300 MB. By then its last rates have said enough."""


class BenchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """All that a run needs to be told."""

    target: Target
    key_from: str
    """Where the key came from, in a sentence, for whoever has to correct it."""
    load: LoadOptions
    """Of a sweep: its first rate, and the length of each."""
    sweep: bool = False
    clients: int = 1
    warm_up_s: float = 0.0
    criteria: Criteria = Criteria()
    pricing: Pricing | None = None
    probe: bool = True
    given: dict[str, str] = msgspec.field(default_factory=dict)
    """The options as they were given, for the report."""


class Measured(msgspec.Struct, frozen=True):
    """One plan, carried out."""

    plan: Plan
    figures: Figures
    client_reports: tuple[ClientReport, ...]
    began_at: float


class Run:
    """One run. `run` is called once."""

    def __init__(self, options: BenchOptions, view: LiveView, outputs: Outputs) -> None:
        self._options = options
        self._view = view
        self._outputs = outputs
        self._scenarios = built_in() | {scenario.name: scenario for scenario, _ in options.load.mix}
        self._fleet: ClientFleet | None = None
        self._figures: Figures | None = None
        self._interrupted_s: float | None = None

    async def run(self) -> Report:
        """Measure, and report. Raise what a person must change first."""
        options = self._options
        plan = None if options.sweep else make_plan(options.load)
        with self._interruptible():
            if options.probe:
                await self._probe()
            if plan is None:
                return await self._sweep()
            measured = await self._carry_out(plan, plan.load)
        return self._report(measured)

    # ── one plan ─────────────────────────────────────────────────────────────

    async def _carry_out(self, plan: Plan, title: str, keep: list[Sample] | None = None) -> Measured:
        """Send a plan, and judge what comes. Requests are written as they come, or kept."""
        options = self._options
        async with ClientFleet(options.target, plan, self._scenarios, clients=min(options.clients, len(plan.requests))) as fleet:
            figures = Figures(plan, warm_up_s=options.warm_up_s, prices=self._prices())
            self._fleet, self._figures = fleet, figures
            showing = asyncio.ensure_future(self._keep_showing(plan, title))
            try:
                async for batch in fleet.samples():
                    for sample in batch:
                        judged = judge(sample, plan.requests[sample.index], options.criteria)
                        figures.add(judged)
                        if keep is None:
                            self._outputs.add(judged)
                        else:
                            keep.append(sample)
            finally:
                showing.cancel()
                self._fleet = None
        return Measured(plan, figures, fleet.reports, fleet.began_at)

    def _stop(self) -> None:
        """End what is under way; between two steps of a sweep there is nothing, and the next one is ended when it begins."""
        if self._interrupted_s is not None and self._fleet is not None and self._figures is not None:
            self._figures.end_at(self._interrupted_s)
            self._fleet.stop()

    async def _keep_showing(self, plan: Plan, title: str) -> None:
        self._stop()
        while True:
            if self._view.is_due:
                self._view.show(self._progress(plan, title))
            await asyncio.sleep(_TICK_S)

    def _progress(self, plan: Plan, title: str) -> RunProgress:
        assert self._figures is not None
        assert self._fleet is not None
        snapshot = self._figures.snapshot()
        waits = snapshot.ttft or snapshot.e2e
        conditions = RunConditions(
            closed_loop=plan.concurrency is not None,
            requests=snapshot.requests,
            lag_p99_s=snapshot.lag_p99_s,
            ttft_p50_s=waits.p50 if waits else None,
            sent_ratio=None,
            clients=(),
        )
        is_endless = plan.concurrency is not None and self._options.load.requests is None
        return RunProgress(
            title=f"{title} · {self._options.target.model} at {self._options.target.base_url}",
            elapsed_s=self._elapsed_s(self._fleet),
            length_s=plan.length_s,
            planned=None if is_endless else len(plan.requests),
            in_flight=self._fleet.in_flight,
            snapshot=snapshot,
            rate_per_s=None if plan.concurrency is not None else len(plan.requests) / plan.length_s,
            doubts=check(conditions) if snapshot.requests >= LEAST_TO_DOUBT else (),
            stopping=self._interrupted_s is not None,
        )

    # ── before ───────────────────────────────────────────────────────────────

    async def _probe(self) -> None:
        """Send one request as the load will be, and say what is wrong with it."""
        options = self._options
        self._view.say(f"Asking {options.target.base_url} once …")
        one = msgspec.structs.replace(options.load, load=Load.CONCURRENCY, concurrency=1, requests=1, length_s=1.0)
        sample = await self._ask(make_plan(one))
        found = None if sample is None else finding(sample, options.target, key_from=options.key_from)
        if found is not None and found.stops:
            raise ConfigurationError(found.message)
        if found is not None:
            self._view.say(f"warning: {found.message}")

    async def _ask(self, plan: Plan) -> Sample | None:
        async with ClientFleet(self._options.target, plan, self._scenarios) as fleet:
            self._fleet = fleet
            samples = [sample async for batch in fleet.samples() for sample in batch]
            self._fleet = None
        return samples[0] if samples else None

    # ── a sweep ──────────────────────────────────────────────────────────────

    async def _sweep(self) -> Report:
        """Try one rate after the other until it is known which is the highest that holds."""
        options = self._options
        steps: list[SweepStep] = []
        history: list[StepResult] = []
        while True:
            chosen = next_rate(
                history,
                first_per_s=options.load.rate_per_s,
                highest_per_s=options.load.to_rate_per_s,
                ttft_p99_s=options.criteria.ttft_s,
            )
            if isinstance(chosen, SweepEnd):
                break
            try:
                plan = make_plan(msgspec.structs.replace(options.load, load=Load.POISSON, rate_per_s=chosen, to_rate_per_s=None))
            except ConfigurationError as error:
                if not steps:
                    raise
                chosen = SweepEnd(None, f"No rate held, and {chosen:.3g}/s cannot be tried: {error.message}")
                break
            if sum(len(step.samples) for step in steps) + len(plan.requests) > MOST_SWEPT:
                chosen = SweepEnd(None, f"The sweep ended before {chosen:g}/s: it would have more than {MOST_SWEPT:,} requests.")
                break
            samples: list[Sample] = []
            measured = await self._carry_out(plan, f"sweep, step {len(steps) + 1}, {chosen:.3g}/s", samples)
            steps.append(SweepStep(chosen, plan, samples, measured.client_reports, measured.began_at))
            history.append(_result(chosen, self._report(measured)))
            self._view.say(told(history[-1]))
            if self._interrupted_s is not None:
                chosen = SweepEnd(None, "The sweep was interrupted.")
                break
        return sweep_report(self._report(self._put_together(steps)), history, chosen)

    def _put_together(self, steps: Sequence[SweepStep]) -> Measured:
        if not steps:
            raise ConfigurationError(f"the first rate of the sweep has more than {MOST_SWEPT:,} requests; lower --rate or --length-s")
        plan, samples, client_reports = joined(steps)
        figures = Figures(plan, prices=self._prices())
        if self._interrupted_s is not None:
            figures.end_at(plan.stages[-1].begins_s + self._interrupted_s)
        for sample in samples:
            judged = judge(sample, plan.requests[sample.index], self._options.criteria)
            figures.add(judged)
            self._outputs.add(judged)
        return Measured(plan, figures, client_reports, steps[0].began_at)

    # ── the rest ─────────────────────────────────────────────────────────────

    @staticmethod
    def _elapsed_s(fleet: ClientFleet) -> float:
        """Give the seconds since the origin, which lies a moment after the word to begin."""
        return max(0.0, wall_clock() - fleet.began_at) if fleet.began_at else 0.0

    def _report(self, measured: Measured) -> Report:
        options = self._options
        kernel = f"{platform.system()} {platform.release()} {platform.machine()}"
        return make_report(
            measured.plan,
            options.target,
            measured.figures,
            measured.client_reports,
            machine=Machine(os.cpu_count() or 1, platform.python_version(), kernel),
            began_at=measured.began_at,
            criteria=options.criteria,
            options=options.given,
        )

    def _prices(self) -> Prices | None:
        """Price this run: by the hour at which it begins, and the price book's name for any upstream."""
        if self._options.pricing is None:
            return None
        return Prices(self._options.pricing, "bench", self._options.target.model, wall_clock())

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None

        def interrupt() -> None:
            if self._figures is None or self._interrupted_s is not None:
                task.cancel()
                return
            self._view.say("Interrupted: ending what is under way, then the report. Once more to end at once.")
            self._interrupted_s = 0.0 if self._fleet is None else self._elapsed_s(self._fleet)
            self._stop()

        loop.add_signal_handler(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)


def _result(rate_per_s: float, report: Report) -> StepResult:
    whole = report.whole
    return StepResult(
        rate_per_s=rate_per_s,
        achieved_per_s=whole.rates.sent or 0.0,
        goodput_per_s=whole.rates.good or 0.0,
        ttft_p99_s=None if whole.ttft is None else whole.ttft.due.p99,
        valid=report.valid,
        success_ratio=whole.success_ratio or 0.0,
    )
