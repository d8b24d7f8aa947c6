"""Learns from finished requests how our figures relate to what upstreams report: the coefficients of estimates, and the error metric.

A sample of answered chat requests is counted once more, after the client has everything, in the same process that counts for everybody.
Invariants: nothing here delays a request; few counts run at once, and a request that comes while they do is not sampled; only what was
really counted is learned from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tidegate.domain.record import RequestRecord
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import TenantId
from tidegate.domain.usage import Evidence
from tidegate.flow.counts import expected_of
from tidegate.gateway.owned_tasks import OwnedTasks
from tidegate.policy.metering.coefficients import Coefficients
from tidegate.ports import TokenCounter

MAX_RUNNING = 4
"""Counts for learning at once, per worker."""
LONGEST_BODY_BYTES = 262_144
"""What a longer prompt is made of would take milliseconds of the loop to find out."""
_DEADLINE_S = 5.0


class ErrorSink(Protocol):
    """Who keeps the errors for the metric."""

    def __call__(self, route: str, model: str, *, counted: int, estimated: int, reported: int) -> None: ...


class Calibration:
    """Belongs to one configuration; the coefficients and the sink outlive it."""

    def __init__(self, coefficients: Coefficients, counter: TokenCounter, tasks: Callable[[], OwnedTasks], observed: ErrorSink) -> None:
        self._coefficients = coefficients
        self._counter = counter
        self._tasks = tasks
        self._observed = observed
        self._running = 0

    def __repr__(self) -> str:
        return f"Calibration({self._coefficients!r}, running={self._running})"

    def finished(self, record: RequestRecord, request: ParsedRequest | None, *, now: float) -> None:
        """Take note of a request that is over, and learn from it if it is due."""
        if record.evidence is not Evidence.REPORTED or request is None or request.operation is not Operation.CHAT:
            return
        if not record.usage.prompt_tokens or len(request.body) > LONGEST_BODY_BYTES or self._running >= MAX_RUNNING:
            return
        if self._coefficients.is_due(TenantId(record.tenant), record.route, now=now):
            self._running += 1
            self._tasks().start(self._learn(record, request))

    async def _learn(self, record: RequestRecord, request: ParsedRequest) -> None:
        try:
            count = await self._counter.count(request, deadline_s=_DEADLINE_S)
        finally:
            self._running -= 1
        if not count.counted:
            return
        tenant, usage = TenantId(record.tenant), record.usage
        expected = expected_of(request, count.prompt_tokens)
        estimated = self._coefficients.estimate(tenant, record.route, expected).weighted_input
        self._observed(record.route, record.upstream_model, counted=count.prompt_tokens, estimated=estimated, reported=usage.prompt_tokens)
        self._coefficients.observe(
            tenant, record.route, expected, prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens
        )
