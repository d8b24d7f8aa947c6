"""The figures of a run, collected one judged request at a time in memory that does not grow with their number.

Latencies are of *answers* (`Judged.answered`): good ones, late ones among them. Those of all other requests are in distributions of their
own (`failed_*`), as long as they took, never nought. Success counts only what is ok.

Invariants: every request is in exactly one outcome; the outcomes of all stages, and of all scenarios, add up to those of the whole; the
order in which requests are told of changes nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from tidegate.bench.costs import CostFigures, Prices, RunCosts
from tidegate.bench.distribution import Distribution, Latencies, LatencyHistograms, distribution
from tidegate.bench.histogram import Histogram
from tidegate.bench.outcome import Judged, Outcome, http_success, tpot_s
from tidegate.bench.plan import Plan
from tidegate.bench.sample import ClientReport, Count, End, Sample
from tidegate.bench.series import Series, TimeSeries
from tidegate.bench.throughput import Rates, Throughput, Window

MOST_ERRORS: Final = 20
"""Different error texts that are kept; the rest is one number, as servers like to put an id into each."""
OTHER_ERRORS: Final = "(other errors)"


class Tokens(msgspec.Struct, frozen=True):
    """As the server reported them, of whole answers."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    reasoning: int = 0
    usage_missing_ratio: float | None = None
    """Share of the whole answers without them. None: there was no answer."""


class Tries(msgspec.Struct, frozen=True):
    """What it took, beside the first try of each request."""

    retried: int = 0
    """Requests that we tried more than once."""
    retries: int = 0
    upstream_told: int = 0
    """Requests of which the server says how often it tried."""
    upstream_retried: int = 0
    upstream_retries: int = 0


class GroupFigures(msgspec.Struct, frozen=True):
    """A whole run, one of its stages, or one of its scenarios. A distribution is None where nothing was measured."""

    name: str
    requests: Count
    """That were sent and have an outcome."""
    not_sent: int
    outcomes: dict[str, Count]
    """Of every outcome but `not_sent`; they add up to `requests`."""
    reasons: dict[str, int]
    """A request can have several."""
    success_ratio: float | None
    http_success_ratio: float | None
    rates: Rates
    tokens: Tokens
    tries: Tries
    lag: Distribution | None
    """From when requests were due to when they were sent; None in a closed loop."""
    ttft: Latencies | None
    e2e: Latencies | None
    failed_ttft: Latencies | None
    failed_e2e: Latencies | None
    tpot: Distribution | None
    itl_chunk: Distribution | None
    """Between two reads with output; clients keep these by stage only, so that a scenario has none."""
    itl_token: Distribution | None
    longest_gap: Distribution | None
    """The longest pause within each answer that had several reads with output."""
    connect: Distribution | None
    """Of requests that opened a connection."""
    queue: Distribution | None
    """As the server says, like `server`."""
    server: Distribution | None
    cost: CostFigures | None


class Snapshot(msgspec.Struct, frozen=True):
    """How it stands, for looking on."""

    requests: int
    outcomes: dict[str, int]
    rates: Rates
    """Until the last answer that is known."""
    ttft: Distribution | None
    """From due, as `e2e`."""
    tpot: Distribution | None
    e2e: Distribution | None
    lag_p99_s: float | None
    cost_micro: int | None


class Group:
    """Collects what becomes `GroupFigures`."""

    def __init__(self, name: str, window: Window, prices: Prices | None) -> None:
        self.name = name
        self._closed_loop = window.closed_loop
        self.outcomes: Counter[Outcome] = Counter()
        self.ttft, self.e2e = LatencyHistograms(), LatencyHistograms()
        self.throughput = Throughput(window)
        self.lag = Histogram()
        self.tpot = Histogram()
        self.itl_chunk, self.itl_token = Histogram(), Histogram()
        self.costs = RunCosts(prices)
        self._reasons: Counter[str] = Counter()
        self._http_successes = self._whole = self._usage_missing = 0
        self._prompt = self._cached = self._completion = self._reasoning = 0
        self._retried = self._retries = self._told = self._upstream_retried = self._upstream_retries = 0
        self._failed_ttft, self._failed_e2e = LatencyHistograms(), LatencyHistograms()
        self._longest_gap, self._connect, self._queue, self._server = Histogram(), Histogram(), Histogram(), Histogram()

    @property
    def requests(self) -> int:
        return self.outcomes.total() - self.outcomes[Outcome.NOT_SENT]

    def add(self, judged: Judged) -> None:
        self.outcomes[judged.outcome] += 1
        self.throughput.add(judged)
        if judged.outcome is Outcome.NOT_SENT:
            return
        sample = judged.sample
        self._reasons.update(judged.reasons)
        self._http_successes += http_success(sample)
        if not self._closed_loop:
            self.lag.record(sample.sent_at - sample.due_at)
        ttft, e2e = (self.ttft, self.e2e) if judged.answered else (self._failed_ttft, self._failed_e2e)
        if judged.first_at is not None:
            ttft.record(judged.first_at, due_at=sample.due_at, sent_at=sample.sent_at)
        e2e.record(sample.ended_at, due_at=sample.due_at, sent_at=sample.sent_at)
        if sample.end is End.COMPLETE:
            self._count_tokens(sample)
        if judged.answered:
            self._add_answer(sample)
        self._add_server(sample)
        self.costs.add(sample, answered=sample.end is End.COMPLETE)

    def figures(self) -> GroupFigures:
        requests = self.requests
        return GroupFigures(
            name=self.name,
            requests=requests,
            not_sent=self.outcomes[Outcome.NOT_SENT],
            outcomes=self.outcome_counts(),
            reasons=dict(self._reasons.most_common()),
            success_ratio=self.outcomes[Outcome.OK] / requests if requests else None,
            http_success_ratio=self._http_successes / requests if requests else None,
            rates=self.throughput.rates(),
            tokens=self._tokens(),
            tries=Tries(self._retried, self._retries, self._told, self._upstream_retried, self._upstream_retries),
            lag=distribution(self.lag),
            ttft=self.ttft.latencies(),
            e2e=self.e2e.latencies(),
            failed_ttft=self._failed_ttft.latencies(),
            failed_e2e=self._failed_e2e.latencies(),
            tpot=distribution(self.tpot),
            itl_chunk=distribution(self.itl_chunk),
            itl_token=distribution(self.itl_token),
            longest_gap=distribution(self._longest_gap),
            connect=distribution(self._connect),
            queue=distribution(self._queue),
            server=distribution(self._server),
            cost=self.costs.figures(),
        )

    def outcome_counts(self) -> dict[str, int]:
        return {outcome.value: self.outcomes[outcome] for outcome in Outcome if outcome is not Outcome.NOT_SENT}

    def _add_answer(self, sample: Sample) -> None:
        per_token_s = tpot_s(sample)
        if per_token_s is not None:
            self.tpot.record(per_token_s)
        if sample.output_chunks > 1:
            self._longest_gap.record(sample.longest_gap_s)

    def _add_server(self, sample: Sample) -> None:
        if sample.connected_at is not None:
            self._connect.record(sample.connected_at - sample.sent_at)
        if sample.queue_s is not None:
            self._queue.record(sample.queue_s)
        if sample.server_s is not None:
            self._server.record(sample.server_s)
        self._retried += sample.tries > 1
        self._retries += sample.tries - 1
        if sample.upstream_tries is not None:
            self._told += 1
            self._upstream_retried += sample.upstream_tries > 1
            self._upstream_retries += max(0, sample.upstream_tries - 1)

    def _count_tokens(self, sample: Sample) -> None:
        self._whole += 1
        self._usage_missing += sample.completion_tokens is None
        self._prompt += sample.prompt_tokens or 0
        self._cached += sample.cached_tokens or 0
        self._completion += sample.completion_tokens or 0
        self._reasoning += sample.reasoning_tokens or 0

    def _tokens(self) -> Tokens:
        missing = self._usage_missing / self._whole if self._whole else None
        return Tokens(self._prompt, self._cached, self._completion, self._reasoning, missing)


class Figures:
    """All figures of a run. Requests that were due within the first `warm_up_s` are only in the series."""

    def __init__(self, plan: Plan, *, warm_up_s: float = 0.0, prices: Prices | None = None) -> None:
        self._closed_loop = plan.concurrency is not None
        self.warm_up_s = warm_up_s
        self._prices = prices
        self._length_s = plan.length_s
        self.interrupted_s: float | None = None
        self.warmed_up = 0
        """Requests that are left out for the warm-up."""
        self.not_asked = 0
        """Requests of the plan whose turn did not come before the run was ended."""
        self.whole = Group("all", self._window(0.0, plan.length_s), prices)
        self._stages = [Group(stage.name, self._window(stage.begins_s, stage.begins_s + stage.length_s), prices) for stage in plan.stages]
        self._scenarios: dict[str, Group] = {}
        self._series = TimeSeries()
        self._errors: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"Figures({self.whole.requests} requests, {self.whole.outcomes[Outcome.OK]} ok)"

    def add(self, judged: Judged) -> None:
        """Count a request."""
        sample = judged.sample
        if judged.outcome is Outcome.NOT_SENT and (self._closed_loop or sample.due_at > self._length_s):
            self.not_asked += 1
            return
        self._series.add(judged)
        if sample.due_at < self.warm_up_s:
            self.warmed_up += 1
            return
        if judged.outcome is not Outcome.NOT_SENT and sample.error:
            self._note_error(sample.error)
        self.whole.add(judged)
        self._stages[judged.planned.stage].add(judged)
        self._scenario(judged.planned.scenario).add(judged)

    def add_gaps(self, report: ClientReport) -> None:
        """Count the gaps that a client process measured; those of the warm-up are among them."""
        for gaps, whole, stages in (
            (report.chunk_gaps, self.whole.itl_chunk, [stage.itl_chunk for stage in self._stages]),
            (report.token_gaps, self.whole.itl_token, [stage.itl_token for stage in self._stages]),
        ):
            for stage, buckets in gaps.items():
                whole.merge(buckets)
                stages[stage].merge(buckets)

    def end_at(self, instant_s: float) -> None:
        """Take note that the run was ended by somebody: what is due later was never asked for."""
        self.interrupted_s = instant_s
        self._length_s = min(self._length_s, instant_s)
        for group in (self.whole, *self._stages, *self._scenarios.values()):
            group.throughput.end_at(instant_s)

    def snapshot(self) -> Snapshot:
        """Give how it stands."""
        whole = self.whole
        cost = whole.costs.figures()
        return Snapshot(
            requests=whole.requests,
            outcomes=whole.outcome_counts(),
            rates=whole.throughput.rates(so_far=True),
            ttft=distribution(whole.ttft.due),
            tpot=distribution(whole.tpot),
            e2e=distribution(whole.e2e.due),
            lag_p99_s=whole.lag.quantile(0.99) if whole.lag.total else None,
            cost_micro=None if cost is None else cost.total_micro,
        )

    def stages(self) -> tuple[GroupFigures, ...]:
        return tuple(stage.figures() for stage in self._stages)

    def scenarios(self) -> tuple[GroupFigures, ...]:
        return tuple(self._scenarios[name].figures() for name in sorted(self._scenarios))

    def series(self) -> Series:
        return self._series.series()

    def errors(self) -> dict[str, int]:
        """Give error texts with their number, the most frequent first."""
        return dict(self._errors.most_common())

    def _note_error(self, error: str) -> None:
        known = error in self._errors or len(self._errors) < MOST_ERRORS
        self._errors[error if known else OTHER_ERRORS] += 1

    def _window(self, begins_s: float, ends_s: float) -> Window:
        return Window(max(begins_s, self.warm_up_s), ends_s, self._closed_loop)

    def _scenario(self, name: str) -> Group:
        """Give the group of a scenario; there are as many as the plan names."""
        group = self._scenarios.get(name)
        if group is None:
            group = self._scenarios[name] = Group(name, self._window(0.0, self._length_s), self._prices)
        return group
