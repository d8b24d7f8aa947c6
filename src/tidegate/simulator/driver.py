"""Run a scenario on an event heap: no sockets, no clock, a minute of traffic in a millisecond.

The driver performs the same actions as the gateway's and gives the same events; only the world is a script.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import assert_never

import msgspec

from tidegate.domain.units import Secret
from tidegate.errors import Unauthenticated
from tidegate.flow.actions import (
    Action,
    Answer,
    Authenticate,
    CancelAttempt,
    CountTokens,
    EndStream,
    Finish,
    InterruptStream,
    ReadBody,
    Relay,
    Reply,
    SendError,
    StartAttempt,
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
    OutputStarted,
    TokensCounted,
)
from tidegate.flow.facts import Policies, RequestFacts
from tidegate.flow.facts import Step as FlowStep
from tidegate.flow.faults import from_call_failure, stream_cut
from tidegate.flow.request_flow import RequestFlow
from tidegate.ports import TokenCount
from tidegate.simulator.scenario import (
    Break,
    Complete,
    Connect,
    Cut,
    ErrorEvent,
    Output,
    Reject,
    Respond,
    Scenario,
    ScriptedRequest,
    Step,
)
from tidegate.wire.dialects import DIALECTS, Dialect, classify, classify_error_object

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
        self.now = epoch
        self._epoch = epoch
        self._order = itertools.count()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._clients = [_Client(self, index, request) for index, request in enumerate(scenario.requests)]

    def run(self) -> list[TracedAction]:
        """Play everything to its end and give the trace."""
        for client in self._clients:
            self.at(self._epoch + client.request.at_s, client.begin)
            if client.request.leaves_after_s is not None:
                self.at(self._epoch + client.request.at_s + client.request.leaves_after_s, client.leave)
        if self.scenario.drain_at_s is not None:
            self.at(self._epoch + self.scenario.drain_at_s, self._drain)
        while self._heap:
            self.now, _, happen = heapq.heappop(self._heap)
            happen()
        return self.trace

    def at(self, when: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (when, next(self._order), happen))

    def note(self, request: int, action: Action) -> None:
        self.trace.append(TracedAction(self.now - self._epoch, request, action))

    def _drain(self) -> None:
        for client in self._clients:
            client.drain()


class _Client:
    """One request of the scenario and its flow."""

    def __init__(self, simulation: Simulation, index: int, request: ScriptedRequest) -> None:
        self.request = request
        self._simulation = simulation
        self._index = index
        self._begun = False
        self._attempt = 0
        self._committed = False
        facts = RequestFacts(
            request_id=f"r{index}",
            operation=request.operation,
            credential=Secret(request.credential),
            started_at=0.0,
            path_argument=request.path_argument,
        )
        self.flow = RequestFlow(facts, simulation.policies)

    def begin(self) -> None:
        self._begun = True
        self._perform(self.flow.begin(now=self._simulation.now))

    def leave(self) -> None:
        self._feed(ClientLeft())

    def drain(self) -> None:
        if self._begun:
            self._feed(DrainExpired())

    def _feed(self, event: Event) -> None:
        self._perform(self.flow.receive(event, now=self._simulation.now))

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            self._simulation.note(self._index, action)
            self._do(action)
        wake_at = self.flow.next_timer()
        if wake_at is not None:
            self._simulation.at(wake_at, self._on_timer)

    def _on_timer(self) -> None:
        actions = self.flow.handle_timer(now=self._simulation.now)
        if actions or self.flow.next_timer() is not None:
            self._perform(actions)

    def _do(self, action: Action) -> None:
        match action:
            case Authenticate(credential=credential):
                principal = self._simulation.scenario.principals.get(credential.reveal())
                self._feed(AuthenticationRefused(UNKNOWN_CREDENTIAL) if principal is None else Authenticated(principal))
            case ReadBody():
                self._feed(BodyReceived(self.request.body))
            case CountTokens():
                self._after(self._simulation.scenario.count_takes_s, self._count)
            case StartAttempt(attempt=attempt):
                self._attempt = attempt
                self._committed = False
                calls = self.request.calls
                if attempt <= len(calls):
                    self._play(attempt, calls[attempt - 1], 0)
            case CancelAttempt():
                self._attempt = 0
            case Relay() | Reply() | EndStream() | Answer() | SendError() | InterruptStream() | Finish():
                pass  # the simulated client only needs to see it in the trace
            case _:
                assert_never(action)

    def _count(self) -> None:
        tokens = self.request.counted_tokens
        self._feed(TokensCounted(None if tokens is None else TokenCount(tokens, "scripted", exact=True)))

    def _after(self, delay_s: float, happen: Callable[[], None]) -> None:
        self._simulation.at(self._simulation.now + delay_s, happen)

    def _play(self, attempt: int, script: tuple[Step, ...], position: int) -> None:
        if position < len(script):
            self._after(script[position].after_s, lambda: self._step(attempt, script, position))

    def _step(self, attempt: int, script: tuple[Step, ...], position: int) -> None:
        if attempt != self._attempt or self.flow.step is FlowStep.OVER:
            return  # the attempt was cancelled: its socket is closed
        step = script[position]
        if isinstance(step, Output):
            self._progress()
            if not self._committed:
                self._committed = True
                self._feed(OutputStarted(attempt))
        else:
            if isinstance(step, Complete) and self._is_stream():
                self._progress(output=False)
                if not self._committed:
                    self._feed(OutputStarted(attempt))
            self._tell(attempt, step)
        self._play(attempt, script, position + 1)

    def _is_stream(self) -> bool:
        return self.flow.request is not None and self.flow.request.stream

    def _progress(self, *, output: bool = True) -> None:
        call = self.flow.call
        assert call is not None
        call.progress.at = self._simulation.now
        call.progress.chunks += output

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
                self._feed(self._event(attempt, step))
            case _:
                self._feed(self._event(attempt, step))

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

    def _dialect(self) -> Dialect:
        call = self.flow.call
        assert call is not None
        assert call.choice is not None
        return DIALECTS[call.choice.replica.dialect]


def simulate(scenario: Scenario, *, epoch: float = 0.0) -> list[TracedAction]:
    """Run a scenario and give its trace."""
    return Simulation(scenario, epoch=epoch).run()
