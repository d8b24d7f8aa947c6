"""Run a scenario on an event heap: no sockets, no clock, a minute of traffic in a millisecond.

The driver performs the same actions as the gateway's and gives the same events; only the world is a script.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import TypeVarTuple, assert_never

import msgspec

from tidegate.domain.units import Secret
from tidegate.errors import Unauthenticated
from tidegate.flow.actions import (
    Action,
    Answer,
    Authenticate,
    AwaitLease,
    CancelAttempt,
    CountTokens,
    Detach,
    EndStream,
    Finish,
    HoldCost,
    InterruptStream,
    ReadBody,
    Relay,
    Reply,
    SendError,
    StartAttempt,
    TruncateStream,
)
from tidegate.flow.events import (
    AttemptCompleted,
    AttemptFailed,
    Authenticated,
    AuthenticationRefused,
    BodyReceived,
    ClientLeft,
    DrainExpired,
    Event,
    LeaseAnswered,
    OutputReached,
    OutputStarted,
    ReplicaLost,
    TokensCounted,
)
from tidegate.flow.facts import Policies, RequestFacts, Step
from tidegate.flow.faults import from_call_failure, stream_cut
from tidegate.flow.request_flow import RequestFlow
from tidegate.ports import TokenCount
from tidegate.simulator.scenario import (
    Break,
    Complete,
    Connect,
    Cut,
    ErrorEvent,
    HealthReport,
    Output,
    Reject,
    Respond,
    Scenario,
    Script,
    ScriptedRequest,
)
from tidegate.wire.dialects import DIALECTS, Dialect, classify, classify_error_object

Ts = TypeVarTuple("Ts")

_NEVER = float("inf")
UNKNOWN_CREDENTIAL = Unauthenticated("the key is not known")


class TracedAction(msgspec.Struct, frozen=True):
    """An action, when it was decided (seconds since the scenario's start), and for which request."""

    at_s: float
    request: int
    action: Action


class Simulation:
    """Runs one scenario. `epoch` shifts all times: decisions must not change."""

    def __init__(self, scenario: Scenario, *, policies: Policies | None = None, epoch: float = 0.0) -> None:
        self.scenario = scenario
        self.policies = policies if policies is not None else scenario.policies()
        self.trace: list[TracedAction] = []
        self.running: dict[int, Client] = {}
        """Begun and not finished, by the number of the request."""
        self.now = epoch
        self._epoch = epoch
        self._order = itertools.count()
        self._heap: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._arrivals = iter(sorted(range(len(scenario.requests)), key=lambda index: scenario.requests[index].at_s))

    def run(self) -> list[TracedAction]:
        """Play everything to its end and give the trace."""
        self._next_arrival()
        for report in self.scenario.reports:
            self.at(self._epoch + report.at_s, self._report, report)
        if self.scenario.drain_at_s is not None:
            self.at(self._epoch + self.scenario.drain_at_s, self._drain)
        heap = self._heap
        while heap:
            self.now, _, happen, arguments = heapq.heappop(heap)
            happen(*arguments)
        return self.trace

    @property
    def elapsed_s(self) -> float:
        """Seconds since the scenario's start."""
        return self.now - self._epoch

    def at(self, when: float, happen: Callable[[*Ts], None], *arguments: *Ts) -> None:
        heapq.heappush(self._heap, (when, next(self._order), happen, arguments))

    def note(self, request: int, action: Action) -> None:
        """Keep what was decided; a simulation of a long time keeps something else."""
        self.trace.append(TracedAction(self.now - self._epoch, request, action))

    def _next_arrival(self) -> None:
        index = next(self._arrivals, None)
        if index is not None:
            self.at(self._epoch + self.scenario.requests[index].at_s, self._arrive, index)

    def _arrive(self, index: int) -> None:
        self._next_arrival()
        request = self.scenario.requests[index]
        client = self.running[index] = Client(self, index, request)
        if request.leaves_after_s is not None:
            self.at(self.now + request.leaves_after_s, client.leave)
        client.begin()

    def _report(self, report: HealthReport) -> None:
        fleet, replica, reason = self.policies.fleet, report.replica, report.reason
        news = fleet.report(replica, alive=report.alive, reason=reason, now=self.now, doubted=report.doubted)
        if news and not report.alive:
            for client in list(self.running.values()):
                client.feed(ReplicaLost(report.replica, report.reason))

    def _drain(self) -> None:
        for client in list(self.running.values()):
            client.feed(DrainExpired())


class Client:
    """One request of the scenario and its flow."""

    __slots__ = ("_attempt", "_index", "_output_told", "_simulation", "_wake_at", "flow", "request")

    def __init__(self, simulation: Simulation, index: int, request: ScriptedRequest) -> None:
        self.request = request
        self._simulation = simulation
        self._index = index
        self._attempt = 0
        self._output_told = False
        self._wake_at = _NEVER
        facts = RequestFacts(
            request_id=f"r{index}",
            operation=request.operation,
            credential=Secret(request.credential),
            started_at=0.0,
            path_argument=request.path_argument,
            feature=request.feature,
            session=request.session,
            color=request.color,
        )
        self.flow = RequestFlow(facts, simulation.policies)

    def begin(self) -> None:
        self._perform(self.flow.begin(now=self._simulation.now))

    def leave(self) -> None:
        self.feed(ClientLeft())

    def feed(self, event: Event) -> None:
        self._perform(self.flow.receive(event, now=self._simulation.now))

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            self._simulation.note(self._index, action)
            self._do(action)
        wake_at = self.flow.next_timer()
        if wake_at is not None and wake_at < self._wake_at:
            self._wake_at = wake_at
            self._simulation.at(max(wake_at, self._simulation.now), self._on_timer, wake_at)

    def _on_timer(self, armed_at: float) -> None:
        """Wake the flow; one timer counts, at or before the flow's next deadline: an early one finds nothing to do and arms again."""
        if armed_at == self._wake_at:
            self._wake_at = _NEVER
            self._perform(self.flow.handle_timer(now=self._simulation.now))

    def _do(self, action: Action) -> None:
        match action:
            case Authenticate(credential=credential):
                principal = self._simulation.scenario.principals.get(credential.reveal())
                self.feed(AuthenticationRefused(UNKNOWN_CREDENTIAL) if principal is None else Authenticated(principal))
            case ReadBody():
                self.feed(BodyReceived(self.request.body))
            case CountTokens():
                self._simulation.at(self._simulation.now + self._simulation.scenario.count_takes_s, self._count)
            case AwaitLease(deadline_s=deadline_s):
                simulation = self._simulation
                simulation.at(simulation.now + min(simulation.scenario.lease_takes_s, deadline_s), self.feed, LeaseAnswered())
            case StartAttempt():
                self._start(action)
            case CancelAttempt():
                self._attempt = 0
            case Finish():
                del self._simulation.running[self._index]
            case Detach() | Relay() | Reply() | EndStream() | Answer() | SendError() | InterruptStream() | TruncateStream() | HoldCost():
                pass  # it need only be seen in the trace
            case _:
                assert_never(action)

    def _count(self) -> None:
        tokens = self.request.counted_tokens
        self.feed(TokensCounted(None if tokens is None else TokenCount(tokens, "scripted", exact=True)))

    def _start(self, action: StartAttempt) -> None:
        self._attempt = action.attempt
        self._output_told = False
        simulation = self._simulation
        script = simulation.scenario.script(self._index, action.attempt, action.replica, simulation.elapsed_s, stream=self._is_stream())
        self._play(action.attempt, script, 0)

    def _play(self, attempt: int, script: Script, position: int) -> None:
        if position < len(script):
            self._simulation.at(self._simulation.now + script[position].after_s, self._step, attempt, script, position)

    def _step(self, attempt: int, script: Script, position: int) -> None:
        if attempt != self._attempt or self.flow.step is Step.OVER:
            return  # the attempt was cancelled: its socket is closed
        step = script[position]
        if isinstance(step, Output):
            self._progress(len(step.text.encode()))
            self._tell_output(attempt)
            self._tell_reached(attempt)
        else:
            if isinstance(step, Complete) and self._is_stream():
                self._progress(None)
                self._tell_output(attempt)
            self._tell(attempt, step)
        self._play(attempt, script, position + 1)

    def _tell_output(self, attempt: int) -> None:
        if not self._output_told:
            self._output_told = True
            self.feed(OutputStarted(attempt))

    def _is_stream(self) -> bool:
        return self.flow.request is not None and self.flow.request.stream

    def _tell_reached(self, attempt: int) -> None:
        call = self.flow.call
        assert call is not None
        if call.progress.tokens >= call.progress.extend_at:
            self.feed(OutputReached(attempt))

    def _progress(self, text_bytes: int | None) -> None:
        """Note a piece of the stream; `None`: one without output."""
        call = self.flow.call
        assert call is not None
        progress = call.progress
        progress.at = self._simulation.now
        if text_bytes is not None:
            progress.chunks += 1
            progress.text_bytes += text_bytes

    def _tell(self, attempt: int, step: Connect | Respond | Complete | Reject | ErrorEvent | Break | Cut) -> None:
        call = self.flow.call
        assert call is not None
        match step:
            case Connect():
                call.note_connected(attempt, now=self._simulation.now)
            case Respond():
                call.note_response(attempt, 200, now=self._simulation.now)
            case Reject():
                call.note_response(attempt, step.status, now=self._simulation.now)
                self.feed(self._event(attempt, step))
            case _:
                self.feed(self._event(attempt, step))

    def _event(self, attempt: int, step: Complete | Reject | ErrorEvent | Break | Cut) -> Event:
        match step:
            case Complete():
                output_bytes = 0 if self._is_stream() else len(step.whole_answer())
                return AttemptCompleted(attempt, step.usage, step.finish_reason, output_bytes)
            case Reject():
                headers = () if step.retry_after_s is None else ((b"retry-after", b"%d" % step.retry_after_s),)
                return AttemptFailed(attempt, classify(self._dialect(), step.status, headers, step.body))
            case ErrorEvent():
                failure = classify_error_object(self._dialect(), {"message": step.message}, 200)
                return AttemptFailed(attempt, msgspec.structs.replace(failure, in_band=True))
            case Break():
                return AttemptFailed(attempt, from_call_failure(step.failure))
            case Cut():
                return AttemptFailed(attempt, stream_cut())
            case _:
                assert_never(step)

    def _dialect(self) -> Dialect:
        call = self.flow.call
        assert call is not None
        assert call.choice is not None
        return DIALECTS[call.choice.replica.dialect]


def simulate(scenario: Scenario, *, epoch: float = 0.0) -> list[TracedAction]:
    """Run a scenario and give its trace."""
    return Simulation(scenario, epoch=epoch).run()
