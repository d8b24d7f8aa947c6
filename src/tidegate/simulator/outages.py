"""Outage drills in simulated time: upstreams that fail by a schedule, steady traffic, and what its clients see of it.

Everything is data: an attempt's script follows from its replica, its instant and the schedule; health reports follow from the schedule and
the checker's own rules. So a drill is a `Scenario`, any driver can run it, and a day of it takes seconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from enum import StrEnum
from random import Random
from typing import assert_never

import msgspec

from tidegate.domain.principal import Principal
from tidegate.domain.record import RequestRecord
from tidegate.domain.units import KeyId, ReplicaId, TenantId, UpstreamName, UserId
from tidegate.domain.upstream import Replica, Route, Target
from tidegate.flow.actions import Action, Finish
from tidegate.policy.resilience.health import HealthSettings, HealthVerdict, ReplicaHealth
from tidegate.policy.resilience.retry import RetryPolicy
from tidegate.ports import CallFailure, CallFailureKind
from tidegate.simulator.driver import Simulation
from tidegate.simulator.scenario import (
    Break,
    Complete,
    Connect,
    HealthReport,
    Output,
    Reject,
    Resilience,
    Respond,
    Scenario,
    Script,
    ScriptedRequest,
    ScriptStep,
)

_STREAM = b'{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":100,"stream":true}'
_WHOLE = b'{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":100}'
_CONNECT_S = 0.001
_RESPOND_S = 0.02
_FIRST_OUTPUT_S = 0.1
_SPREAD_S = 0.1  # a healthy first output comes up to this much later
_PIECE_S = 0.1
_PIECES = 4
_SLOW_FIRST_OUTPUT_S = 8.0
_LATE_S = 0.5  # a client notices when its first output is this much later than a healthy one can be


class Fault(StrEnum):
    """What is wrong with a server."""

    KILLED = "killed"
    """Connections are refused; those that were open are reset."""
    HUNG = "hung"
    """Connections open, as the kernel does that, and nothing comes."""
    ERRORS = "errors"
    """Every call is answered 503; health checks are answered well."""
    SLOW = "slow"
    """Everything comes, late."""
    CUTS = "cuts"
    """Answers break off in the middle."""


_BREAKS_OFF = frozenset({Fault.KILLED, Fault.HUNG})  # also what is under way when it begins


class Outage(msgspec.Struct, frozen=True):
    """Something is wrong with a replica from `begins_at_s` until before `ends_at_s`."""

    replica: ReplicaId
    fault: Fault
    begins_at_s: float
    ends_at_s: float


class Drill(msgspec.Struct, frozen=True):
    """Half of the requests are streams; they arrive evenly."""

    outages: tuple[Outage, ...]
    duration_s: float
    requests_per_s: float = 2.0
    primaries: int = 1
    """Replicas of the upstream `main`; `standby` has one."""
    health: HealthSettings | None = HealthSettings()
    retry: RetryPolicy = RetryPolicy()
    resilience: Resilience = Resilience()
    seed: int = 1

    def scenario(self) -> Scenario:
        main, standby = UpstreamName("main"), UpstreamName("standby")
        replicas = [Replica(ReplicaId(f"main/{index}"), main, "vllm") for index in range(self.primaries)]
        replicas.append(Replica(ReplicaId("standby/0"), standby, "vllm"))
        count = int(self.duration_s * self.requests_per_s)
        return Scenario(
            requests=tuple(ScriptedRequest(index / self.requests_per_s, _STREAM if index % 2 else _WHOLE) for index in range(count)),
            principals={"key": Principal(KeyId("k"), TenantId("t"), UserId("u"))},
            replicas=tuple(replicas),
            routes=(Route("m", (Target(main), Target(standby))),),
            retry=self.retry,
            seed=self.seed,
            resilience=self.resilience,
            reports=tuple(sorted(self._reports(replicas), key=_at)),
            upstreams=Upstream(self.outages).script,
        )

    def _reports(self, replicas: Sequence[Replica]) -> Iterator[HealthReport]:
        for number, replica in enumerate(replicas if self.health is not None else ()):
            assert self.health is not None
            outages = [outage for outage in self.outages if outage.replica == replica.replica]
            yield from _health_reports(replica.replica, outages, self.health, self.duration_s, Random(self.seed + number))  # noqa: S311


def _at(report: HealthReport) -> float:
    return report.at_s


class Upstream:
    """How attempts go, by the schedule; outages of one replica do not overlap."""

    def __init__(self, outages: Sequence[Outage]) -> None:
        self._by_replica: dict[ReplicaId, list[Outage]] = {}
        for outage in sorted(outages, key=_end):
            self._by_replica.setdefault(outage.replica, []).append(outage)

    def script(self, request: int, attempt: int, replica: ReplicaId, at_s: float, stream: bool) -> Script:  # noqa: FBT001  `Upstreams`
        """Give how an attempt goes: as ever, as the outage has it, or broken off by one that begins meanwhile."""
        ttft_s = _FIRST_OUTPUT_S + _SPREAD_S * ((request * 37 + attempt) % 101) / 101
        outages = self._by_replica.get(replica, [])
        position = bisect_right(outages, at_s, key=_end)
        if position == len(outages):
            return _healthy(ttft_s, stream=stream)
        outage = outages[position]
        if outage.begins_at_s <= at_s:
            return _during(outage.fault, ttft_s, stream=stream)
        healthy = _healthy(ttft_s, stream=stream)
        return _broken_off(healthy, outage.fault, outage.begins_at_s - at_s) if outage.fault in _BREAKS_OFF else healthy


def _end(outage: Outage) -> float:
    return outage.ends_at_s


def _healthy(ttft_s: float, *, stream: bool) -> Script:
    if not stream:
        return (Connect(_CONNECT_S), Respond(ttft_s + _PIECES * _PIECE_S), Complete(0.0))
    return (Connect(_CONNECT_S), Respond(_RESPOND_S), Output(ttft_s - _RESPOND_S), *(Output(_PIECE_S),) * _PIECES, Complete(0.0))


def _during(fault: Fault, ttft_s: float, *, stream: bool) -> Script:
    match fault:
        case Fault.KILLED:
            return (Break(CallFailure(CallFailureKind.CONNECT, "main: connection refused"), _CONNECT_S),)
        case Fault.HUNG:
            return (Connect(_CONNECT_S),)
        case Fault.ERRORS:
            return (Connect(_CONNECT_S), Reject(503, _RESPOND_S))
        case Fault.SLOW:
            return _healthy(ttft_s + _SLOW_FIRST_OUTPUT_S, stream=stream)
        case Fault.CUTS:
            broken: tuple[ScriptStep, ...] = (Output(ttft_s),) if stream else ()
            return (Connect(_CONNECT_S), Respond(_RESPOND_S), *broken, Break(CallFailure(CallFailureKind.RESET, "main: reset"), _PIECE_S))
        case _:
            assert_never(fault)


def _broken_off(script: Script, fault: Fault, after_s: float) -> Script:
    """Keep what comes before the fault; a killed server's connection is reset then, a hung one's falls silent."""
    kept: list[ScriptStep] = []
    elapsed_s = 0.0
    for step in script:
        if elapsed_s + step.after_s > after_s:
            if fault is Fault.KILLED:
                kept.append(Break(CallFailure(CallFailureKind.RESET, "main: connection reset"), after_s - elapsed_s))
            return tuple(kept)
        elapsed_s += step.after_s
        kept.append(step)
    return script


def _health_reports(
    replica: ReplicaId, outages: Sequence[Outage], settings: HealthSettings, duration_s: float, rng: Random
) -> Iterator[HealthReport]:
    """Ask the replica as a checker would, and give what it would report."""
    health = ReplicaHealth(settings, now=0.0, rng=rng)
    remaining = sorted(outages, key=_end, reverse=True)
    while health.next_at < duration_s:
        asked_at = health.next_at
        health.ask(now=asked_at)
        while remaining and remaining[-1].ends_at_s <= asked_at:
            remaining.pop()
        fault = remaining[-1].fault if remaining and remaining[-1].begins_at_s <= asked_at else None
        verdict: HealthVerdict | None
        if fault is Fault.KILLED:
            known_at, verdict = asked_at + _CONNECT_S, health.unreachable("connection refused")
        elif fault is Fault.HUNG:
            known_at = asked_at + settings.timeout_s
            verdict = health.unanswered(now=known_at)
        else:
            known_at, verdict = asked_at + _RESPOND_S, health.answered(200)
        if verdict is not None:
            yield HealthReport(known_at, replica, alive=verdict.alive, reason=verdict.reason, doubted=verdict.doubted)


# ── what clients saw ──────────────────────────────────────────────────────────


class OutageReport(msgspec.Struct, frozen=True):
    """One outage as clients saw it."""

    outage: Outage
    failed: int
    """Requests that ended with an error before anything was sent."""
    interrupted: int
    """Streams that broke off after they had begun."""
    late: int
    recovered_after_s: float
    """From the outage's beginning until the last request that failed or was late because of it was over, or had its first output."""


class DrillReport(msgspec.Struct, frozen=True):
    requests: int
    attempts: int
    failed: int
    interrupted: int
    outages: tuple[OutageReport, ...]
    seconds_simulated: float

    @property
    def extra_ratio(self) -> float:
        """Upstream calls beyond one for each request, as a share of the requests."""
        return (self.attempts - self.requests) / self.requests if self.requests else 0.0


class _Trouble(msgspec.Struct, frozen=True, gc=False):
    arrived_at_s: float
    over_at_s: float
    kind: str


class _DrillSimulation(Simulation):
    """Keeps what went wrong instead of a trace: a day has millions of actions."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.troubles: list[_Trouble] = []
        self.requests = self.attempts = 0

    def note(self, request: int, action: Action) -> None:
        if isinstance(action, Finish):
            self._count(action.record, self.scenario.requests[request].at_s)

    def _count(self, record: RequestRecord, arrived_at_s: float) -> None:
        self.requests += 1
        self.attempts += len(record.attempts)
        kind = _trouble_of(record)
        if kind is not None:
            waited_s = record.ttft_s if kind == "late" and record.ttft_s is not None else record.duration_s
            self.troubles.append(_Trouble(arrived_at_s, arrived_at_s + waited_s, kind))


def _trouble_of(record: RequestRecord) -> str | None:
    if record.outcome == "failed_mid_stream":
        return "interrupted"
    if record.outcome != "ok":
        return "failed"
    usual_s = _FIRST_OUTPUT_S + _SPREAD_S + _LATE_S
    if record.ttft_s is not None:
        return "late" if record.ttft_s > usual_s else None
    return "late" if record.duration_s > usual_s + _PIECES * _PIECE_S else None


def run_drill(drill: Drill) -> DrillReport:
    """Run a drill on an event heap and report what its clients saw."""
    simulation = _DrillSimulation(drill.scenario())
    simulation.run()
    troubles = simulation.troubles
    return DrillReport(
        requests=simulation.requests,
        attempts=simulation.attempts,
        failed=sum(trouble.kind == "failed" for trouble in troubles),
        interrupted=sum(trouble.kind == "interrupted" for trouble in troubles),
        outages=tuple(_report(outage, troubles) for outage in drill.outages),
        seconds_simulated=drill.duration_s,
    )


def _report(outage: Outage, troubles: Sequence[_Trouble]) -> OutageReport:
    """Blame an outage for the troubles of requests that ran into it."""
    own = [each for each in troubles if each.arrived_at_s < outage.ends_at_s and each.over_at_s >= outage.begins_at_s]
    noticed = [each.over_at_s for each in own if each.kind != "interrupted"]  # a begun stream cannot be saved: that is not recovery
    return OutageReport(
        outage=outage,
        failed=sum(each.kind == "failed" for each in own),
        interrupted=sum(each.kind == "interrupted" for each in own),
        late=sum(each.kind == "late" for each in own),
        recovered_after_s=max(noticed, default=outage.begins_at_s) - outage.begins_at_s,
    )


def random_outages(replica: ReplicaId, *, duration_s: float, seed: int, faults: Sequence[Fault] = tuple(Fault)) -> tuple[Outage, ...]:
    """Draw outages of one replica, the faults in turn: each half a minute to three minutes long, three to fifteen minutes apart."""
    rng = Random(seed)  # noqa: S311  a schedule, not a secret
    outages: list[Outage] = []
    begins_at_s = rng.uniform(60.0, 300.0)
    while begins_at_s < duration_s - 300.0:
        ends_at_s = begins_at_s + rng.uniform(30.0, 180.0)
        outages.append(Outage(replica, faults[len(outages) % len(faults)], begins_at_s, ends_at_s))
        begins_at_s = ends_at_s + rng.uniform(180.0, 900.0)
    return tuple(outages)
