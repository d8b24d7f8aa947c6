"""A policy that faults where a request ends: on the live driver there is one record, the permit is ended once, and nobody waits."""

from __future__ import annotations

import msgspec
import pytest
from tests.scenarios.live_driver import LiveRun
from tests.scenarios.stories import ANSWER, CHAT, RESET, STREAM, STREAMED, world

from tidegate.domain.demand import Demand
from tidegate.domain.limits import LimitSubject
from tidegate.domain.money import Cost, PriceBook
from tidegate.domain.outcome import Outcome
from tidegate.domain.principal import Limits
from tidegate.domain.units import ModelName, TenantId
from tidegate.domain.usage import Usage
from tidegate.flow.facts import Policies
from tidegate.policy.billing.pricing import Pricing
from tidegate.policy.metering.forecast import FixedForecast
from tidegate.policy.metering.limiter import Limiter
from tidegate.policy.metering.local_counters import LocalCounters
from tidegate.policy.metering.permit import LimiterPermit
from tidegate.ports import Denied, LimitState, Permit, Short
from tidegate.simulator.scenario import Scenario, ScriptedRequest


class Fault(Exception):
    """Of a policy."""


class _Prices(Pricing):
    """Faults when a request is charged."""

    def settled(self, upstream: str, model: str, usage: Usage, *, at: float, images: int = 0, batch: bool = False) -> Cost:
        raise Fault(upstream, model, usage, at, images, batch)


class _Lengths(FixedForecast):
    """Faults when it is told."""

    def observe(
        self, tenant: TenantId, route: str, model: ModelName, *, prompt_tokens: int, completion_tokens: int, cut: bool, now: float
    ) -> None:
        raise Fault(tenant, route, model, prompt_tokens, completion_tokens, cut, now)


class _Permit:
    """Faults when it is settled, and, if it says so, when it is cancelled."""

    def __init__(self, permit: LimiterPermit, *, cancels: bool) -> None:
        self.ends: list[str] = []
        self._permit = permit
        self._cancels = cancels

    def reserve(self, demand: Demand, *, now: float) -> Denied | Short | None:
        return self._permit.reserve(demand, now=now)

    def move(self, demand: Demand, *, now: float) -> Denied | None:
        return self._permit.move(demand, now=now)

    def remaining_tokens(self, *, now: float) -> int | None:
        return self._permit.remaining_tokens(now=now)

    def ceiling_tokens(self) -> int | None:
        return self._permit.ceiling_tokens()

    def ceiling_output_tokens(self) -> int | None:
        return self._permit.ceiling_output_tokens()

    def state(self, *, now: float) -> LimitState:
        return self._permit.state(now=now)

    def settle(self, used: Demand, *, now: float) -> None:
        self.ends.append("settle")
        raise Fault(used, now)

    def cancel(self, *, now: float) -> None:
        self.ends.append("cancel")
        if not self._cancels:
            raise Fault(now)
        self._permit.cancel(now=now)


class FaultyLimiter(Limiter):
    """Gives permits that fault."""

    def __init__(self, *, cancels: bool) -> None:
        super().__init__(LocalCounters())
        self.permits: list[_Permit] = []
        self._cancels = cancels

    def admit(self, subject: LimitSubject, limits: Limits, *, now: float) -> Permit | Denied | Short:  # type: ignore[override]
        permit = super().admit(subject, limits, now=now)
        if not isinstance(permit, LimiterPermit):
            return permit
        self.permits.append(_Permit(permit, cancels=self._cancels))
        return self.permits[-1]


LIMITS = Limits(concurrency=1, tokens_per_minute=10_000)
STORIES = {
    "whole": world(ScriptedRequest(0.0, CHAT, calls=(ANSWER,)), limits=LIMITS),
    "stream": world(ScriptedRequest(0.0, STREAM, calls=(STREAMED,)), limits=LIMITS),
    "left": world(ScriptedRequest(0.0, STREAM, calls=(STREAMED,), leaves_after_s=0.115), limits=LIMITS),
    "failed": world(ScriptedRequest(0.0, CHAT, calls=(RESET,) * 9), limits=LIMITS),
}


def _faulty(scenario: Scenario, fault: str) -> Policies:
    policies = scenario.policies()
    if fault == "prices":
        return msgspec.structs.replace(policies, pricing=_Prices(PriceBook("1", "EUR")))
    if fault == "lengths":
        return msgspec.structs.replace(policies, forecast=_Lengths(20, heeds_cap=False))
    return msgspec.structs.replace(policies, limits=FaultyLimiter(cancels=fault == "settle"))


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("fault", ["prices", "lengths", "settle", "settle and cancel"])
def test_a_fault_at_the_end_leaves_one_record_and_no_permit(story: str, fault: str) -> None:
    """Wherever it is between the call's end and the record."""
    scenario = STORIES[story]
    run = LiveRun(scenario, policies=_faulty(scenario, fault))
    run.run()
    (record,) = run.records
    assert run.exchanges[0].finished or run.exchanges[0].left
    limits = run.policies.limits
    if isinstance(limits, FaultyLimiter):
        assert [permit.ends for permit in limits.permits] == [["settle", "cancel"]]
    if fault != "settle and cancel":
        assert (0, 0) == (limits.statistics(now=1e6).outstanding, limits.statistics(now=1e6).held_tokens)
    if (fault, story) not in {("lengths", "left"), ("lengths", "failed"), ("prices", "failed")}:  # where the policy is not asked
        assert record.outcome is Outcome.FAILED_INTERNAL
    assert ("r0", "k", "t", "m") == (record.request_id, record.key_id, record.tenant, record.model)
    assert all(status.in_flight == 0 for status in run.policies.fleet.statistics(now=1e6))
