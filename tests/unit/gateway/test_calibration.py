"""What is learned from finished requests, and when nothing is."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from msgspec.structs import replace

from tidegate.adapters.metrics.estimate_errors import MAX_SERIES, EstimateErrors
from tidegate.domain.outcome import Outcome
from tidegate.domain.record import RequestRecord
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.statistics import WorkerStatistics, retired, total
from tidegate.domain.units import ModelName, TenantId
from tidegate.domain.usage import Evidence, Usage
from tidegate.flow.counts import expected_of
from tidegate.gateway.calibration import LONGEST_BODY_BYTES, MAX_RUNNING, Calibration
from tidegate.gateway.owned_tasks import OwnedTasks
from tidegate.policy.metering.coefficients import Coefficients
from tidegate.ports import TokenCount

REQUEST = ParsedRequest(
    Operation.CHAT, ModelName("m"), b'{"model":"m","messages":[{"role":"user","content":"hello"}]}', max_completion_tokens=100
)
RECORD = RequestRecord(
    "r1",
    0.0,
    "chat",
    Outcome.OK,
    200,
    1.0,
    tenant="t",
    route="m*",
    upstream_model="m-large",
    usage=Usage(120, 50),
    evidence=Evidence.REPORTED,
)


class Bench:
    """A calibration with a counter that says what the test wants: implements `ports.TokenCounter`."""

    def __init__(self, count: TokenCount) -> None:
        self.coefficients = Coefficients()
        self.errors = EstimateErrors()
        self.tasks = OwnedTasks()
        self.asked = 0
        self.go = asyncio.Event()
        self._count = count
        self.calibration = Calibration(self.coefficients, self, lambda: self.tasks, self.errors.observe)

    async def count(self, request: ParsedRequest, *, deadline_s: float) -> TokenCount:
        assert (request.model, deadline_s > 0) == ("m", True)
        self.asked += 1
        await self.go.wait()
        return self._count

    async def settled(self) -> None:
        self.go.set()
        for _ in range(10):  # a count takes three turns of the loop
            await asyncio.sleep(0)
        assert len(self.tasks) == 0

    def learned(self) -> int:
        return self.coefficients.estimate(TenantId("t"), "m*", expected_of(REQUEST, 100)).learned_from


def run(story: Coroutine[None, None, None]) -> None:
    asyncio.run(story)


def test_a_finished_request_is_counted_and_learned_from() -> None:
    """Its count is compared with its usage, and then the coefficients follow."""

    async def story() -> None:
        bench = Bench(TokenCount(100, "qwen3.6", exact=True))
        bench.calibration.finished(RECORD, REQUEST, now=0.0)
        await bench.settled()
        assert bench.learned() == 1
        of_count, of_estimate = bench.errors.statistics()
        assert (of_count.route, of_count.model, of_count.figure) == ("m*", "m-large", "count")
        assert (of_estimate.figure, sum(of_estimate.errors.counts)) == ("estimate", 1)
        assert round(of_count.errors.total, 3) == 0.167
        assert repr(bench.calibration).endswith("running=0)")

    run(story())


def test_what_says_nothing_is_not_counted() -> None:
    """Unreported usage, other operations, empty figures, bodies too long to look at, and requests that were never read."""

    async def story() -> None:
        bench = Bench(TokenCount(100, "qwen3.6", exact=True))
        bench.calibration.finished(replace(RECORD, evidence=Evidence.COUNTED), REQUEST, now=0.0)
        bench.calibration.finished(RECORD, None, now=0.0)
        bench.calibration.finished(RECORD, replace(REQUEST, operation=Operation.EMBEDDING), now=0.0)
        bench.calibration.finished(replace(RECORD, usage=Usage(0, 50)), REQUEST, now=0.0)
        bench.calibration.finished(RECORD, replace(REQUEST, body=b" " * (LONGEST_BODY_BYTES + 1)), now=0.0)
        await bench.settled()
        assert (bench.asked, bench.learned()) == (0, 0)

    run(story())


def test_few_counts_run_at_once() -> None:
    """Requests that come while enough counts run are not sampled."""

    async def story() -> None:
        bench = Bench(TokenCount(100, "qwen3.6", exact=True))
        for second in range(MAX_RUNNING + 5):
            bench.calibration.finished(RECORD, REQUEST, now=float(second))
        await bench.settled()
        assert (bench.asked, bench.learned()) == (MAX_RUNNING, MAX_RUNNING)
        for _ in range(70):
            bench.calibration.finished(RECORD, REQUEST, now=100.0)
            await bench.settled()
        assert bench.asked == MAX_RUNNING + 1, "and of seventy in one instant, one"

    run(story())


def test_a_guess_teaches_nothing() -> None:
    """Without the counting process there is no count to compare."""

    async def story() -> None:
        bench = Bench(TokenCount(100, "fallback:bytes", exact=False, counted=False))
        bench.calibration.finished(RECORD, REQUEST, now=0.0)
        await bench.settled()
        assert (bench.asked, bench.learned(), bench.errors.statistics()) == (1, 0, ())

    run(story())


def test_error_series_are_bounded_and_add_up() -> None:
    """Beyond the bound models count as `other`; workers' histograms are summed, and a worker's stay when it ends."""
    errors = EstimateErrors()
    for number in range(MAX_SERIES + 7):
        errors.observe("r", f"m{number}", counted=100, estimated=110, reported=100)
    errors.observe("r", "m0", counted=150, estimated=400, reported=100)
    shown = errors.statistics()
    assert len(shown) == 2 * (MAX_SERIES + 1)
    by_name = {(one.model, one.figure): one.errors for one in shown}
    assert sum(by_name["other", "count"].counts) == 7
    assert by_name["m0", "count"].counts == (1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0)
    assert by_name["m0", "estimate"].counts[-1] == 1
    report = WorkerStatistics(estimate_errors=shown)
    both = total((report, retired(report)))
    assert {(one.model, one.figure): sum(one.errors.counts) for one in both.estimate_errors}["other", "estimate"] == 14
    assert repr(errors) == f"EstimateErrors({2 * (MAX_SERIES + 1)} series)"
