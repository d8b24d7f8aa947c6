"""The attempts of one request: where each goes, when it has taken too long, and what follows a failure.

Invariants: at most one attempt runs at a time and each is closed once in the fleet; after the commit point (the response has begun) no
attempt starts, nor after the client left; events of an attempt that is not the current one are ignored.

    waiting ──StartAttempt──> running ──Relay──> committed ──> over
       ^                         │
       └── pause before a retry ─┘
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from tidegate.domain.outcome import FinishReason
from tidegate.domain.record import NOTHING_USED, AttemptRecord
from tidegate.domain.request import BodyChanges, Operation, ParsedRequest
from tidegate.domain.units import ReplicaId
from tidegate.domain.upstream import Choice, Clock, Route, Target, UpstreamFailure
from tidegate.domain.usage import Usage
from tidegate.flow.actions import Action, CancelAttempt, Detach, EndStream, Relay, Reply, StartAttempt
from tidegate.flow.allowance import Allowance
from tidegate.flow.degrade import LOW_CONFIDENCE, is_low_confidence
from tidegate.flow.events import AttemptCompleted, AttemptFailed, CallEvent, OutputReached, OutputStarted
from tidegate.flow.facts import CallResult, Phase, Policies
from tidegate.flow.faults import replica_lost, tells_of_the_prompt, timed_out, unavailable, words_for_operators
from tidegate.flow.progress import Progress
from tidegate.flow.succession import Failed, Succession, Successor
from tidegate.policy.resilience.ladder import Rung
from tidegate.policy.routing.router import Plan
from tidegate.ports import Denied
from tidegate.wire.dialects import DIALECTS
from tidegate.wire.openai import rewrite_body

_CANCELLED = "cancelled"


class CallFlow:
    """Sequences the attempts of one call by its plan. Over when `result` is set."""

    def __init__(
        self,
        request: ParsedRequest,
        plan: Plan,
        policies: Policies,
        *,
        allowance: Allowance | None = None,
        affinity: str = "",
        received_at: float = 0.0,
    ) -> None:
        self._request = request
        self._route = Route(plan.route.pattern, targets_of(plan.route, request)) if request.operation is Operation.EMBEDDING else plan.route
        self._policies = policies
        self._changes = plan.changes
        self._label = plan.degraded
        self._features = plan.features
        self._affinity = affinity
        self._received_at = received_at
        self._allowance = allowance
        """None: nothing limits what this call uses."""
        self.phase = Phase.WAITING
        self.result: CallResult | None = None
        self.attempts: list[AttemptRecord] = []
        self.choice: Choice | None = None
        self.first_output_at: float | None = None
        self.progress = Progress(0.0)
        """Of the running attempt."""
        self.committed = False
        """The response has begun: nothing can be retried any more."""
        self.detached = False
        """The client is gone, and the attempt goes on for its usage."""
        self.primary_failed: bool | None = None
        """What the first target's last attempt shows of this kind of prompt; None: nothing."""
        self._attempt = 0
        self._rung = Rung.FIRST
        self._succession: Succession | None = None
        self._resume_at: float | None = None
        self._paused_after: UpstreamFailure | None = None
        self._commit_at: float | None = None
        self._overdue_at: float | None = None
        """When a stream's first output is late enough to be held against the replica, before it comes."""
        self._was_overdue = False
        self._keep_until: float | None = None
        self._started_at = 0.0
        self._looked_at = 0.0
        """When the clocks were last looked at, or the attempt began: a stream that did not flow then stalls no earlier than a gap later."""
        self._connected_at: float | None = None
        self._responded_at: float | None = None
        self._awaited_since = 0.0
        """What comes after this is of the body: when the head came, or the attempt began."""
        self._status: int | None = None
        self._upstream_request_id: str | None = None
        self._asked_usage = False

    def __repr__(self) -> str:
        return f"CallFlow({self.phase}, attempt {self._attempt})"

    @property
    def degraded(self) -> str | None:
        """Say how the answer is less than what was asked for, if it is: the value of `X-Tidegate-Degraded`."""
        choice = self.choice
        if choice is None or (choice.rank == 0 and self._rung is not Rung.SHORTER):
            return self._label
        upstream = f"; upstream={choice.replica.upstream}"
        if self._rung is Rung.SMALLER:
            return f"L1; reason=smaller_model{upstream}"
        if self._rung is Rung.SHORTER:
            unsure = not choice.rank and is_low_confidence(self._label)  # shortened, and of the fallback model all the same
            return f"L1; reason=shortened{upstream if choice.rank else ''}{LOW_CONFIDENCE if unsure else ''}"
        if self._label is not None and self._changes is not None and not is_low_confidence(self._label):
            return f"{self._label}{upstream}"  # what the plan changed is changed for every target
        return f"L1; reason=standby{upstream}"

    def begin(self, *, now: float) -> list[Action]:
        policies = self._policies
        policies.budget.deposit(now=now)
        if policies.commit_after_s is not None and self._request.stream:
            self._commit_at = now + policies.commit_after_s
        choice = policies.fleet.choose(self._route, self._request.model, (), now=now, rng=policies.rng, affinity=self._affinity)
        if choice is None:
            return self._end(CallResult(unavailable(policies.fleet, self._route, self._request.model, now=now), committed=False))
        return self._start(choice, Rung.FIRST, now)

    def receive(self, event: CallEvent, *, now: float) -> list[Action]:
        if self.phase not in (Phase.RUNNING, Phase.COMMITTED) or event.attempt != self._attempt:
            return []
        match event:
            case OutputStarted():
                return self._output(now)
            case OutputReached():
                return self._extend(now)
            case AttemptCompleted():
                return self._complete(event, now)
            case AttemptFailed(failure=failure, usage=usage):
                return self._fail(failure, usage, now)
            case _:
                assert_never(event)

    def replica_lost(self, replica: ReplicaId, reason: str, *, now: float) -> list[Action]:
        """Leave a replica that was found dead, unless the response has begun: then the stream may still go on, and its clocks watch it."""
        if self.phase is not Phase.RUNNING or self.detached or self.choice is None or self.choice.replica.replica != replica:
            return []
        return [CancelAttempt(self._attempt), *self._fail(replica_lost(replica, reason), None, now, lost=True)]

    # Facts that call for no action are noted, not received: they only move clocks.

    def note_connected(self, attempt: int, *, now: float) -> None:
        """A connection is had and the request is on its way."""
        if attempt == self._attempt:
            self._connected_at = now

    def note_response(self, attempt: int, status: int, upstream_request_id: str | None = None, *, now: float) -> None:
        """The upstream's status line came."""
        if attempt == self._attempt:
            self._responded_at = self._awaited_since = self.progress.at = now
            self._status = status
            self._upstream_request_id = upstream_request_id

    def forgive_silence(self, *, now: float) -> None:
        """Nothing was read, because the client made us wait: the silence until now proves nothing of the upstream."""
        if not self._flows:
            self._awaited_since = now
        self.progress.at = now

    def leave(self, *, now: float) -> list[Action]:
        """The client is gone: end the call, or keep the running attempt where the upstream's policy says so."""
        if self.phase in (Phase.RUNNING, Phase.COMMITTED) and self.choice is not None:
            policy = self._policies.leave.get(self.choice.replica.upstream)
            if policy is not None:
                self.detached = True
                self._keep_until = None if policy.keep_for_s is None else now + policy.keep_for_s
                return [Detach(self._attempt)]
        return self.abandon(now=now)

    def abandon(self, *, now: float) -> list[Action]:
        """End the call because the client left or the process must end. Between two attempts nothing runs."""
        if self.phase not in (Phase.RUNNING, Phase.COMMITTED):
            self.phase = Phase.OVER
            return []
        self._close(now, failure=None, abandoned=True)
        self._record_attempt(_CANCELLED, now)
        self._end(CallResult(None, self.committed))
        return [CancelAttempt(self._attempt)]

    # ── time ──────────────────────────────────────────────────────────────────

    def next_timer(self) -> float | None:
        """Give a time at or before which anything can run out, also what is noted meanwhile: nobody is told of a stream's first piece."""
        if self.phase is Phase.WAITING:
            return self._resume_at
        deadline = self._deadline()
        if deadline is None:
            return None
        wake_at = deadline[0]
        if self._request.stream and not self._flows:
            assert self.choice is not None
            wake_at = min(wake_at, self._looked_at + self.choice.replica.timeouts.stall_s)
        if self._overdue_at is not None and self.first_output_at is None:
            wake_at = min(wake_at, self._overdue_at)
        if self._commit_at is not None and not self.committed and not self.detached:
            wake_at = min(wake_at, self._commit_at)
        return wake_at if self._keep_until is None else min(wake_at, self._keep_until)

    def handle_timer(self, *, now: float) -> list[Action]:
        if self.phase is Phase.WAITING:
            return self._resume(now) if self._resume_at is not None and now >= self._resume_at else []
        deadline = self._deadline()
        if deadline is None:
            return []
        self._looked_at = now
        if self._keep_until is not None and now >= self._keep_until:
            return self.abandon(now=now)
        if now >= deadline[0]:
            assert self.choice is not None
            failure = timed_out(self.choice.replica, deadline[1])
            return [CancelAttempt(self._attempt), *self._fail(failure, None, now)]
        if self._overdue_at is not None and now >= self._overdue_at and self.first_output_at is None:
            self._note_overdue(now)
        if self._commit_at is not None and now >= self._commit_at and not self.committed and not self.detached:
            return self._commit()
        return []

    def _note_overdue(self, now: float) -> None:
        """Tell the fleet of a slow first output as soon as it is one: whoever is slow should not get more calls until it comes."""
        assert self.choice is not None
        self._overdue_at = None
        self._was_overdue = True
        self._policies.fleet.output_overdue(self.choice.replica.replica, now=now, began_at=self._started_at)

    def _deadline(self) -> tuple[float, Clock] | None:
        """Give the earliest of the clocks that run: each from the attempt's start until what it waits for has come, but for the stall."""
        if self.phase not in (Phase.RUNNING, Phase.COMMITTED):
            return None
        assert self.choice is not None
        limits, since = self.choice.replica.timeouts, self._started_at
        at, clock = since + limits.total_s, Clock.TOTAL
        if self._request.stream:
            if self._flows:
                at, clock = _earlier(self.progress.at + limits.stall_s, Clock.STALL, at, clock)
            if self.first_output_at is None:
                at, clock = _earlier(since + limits.first_token_s, Clock.FIRST_TOKEN, at, clock)
            if self._responded_at is None:
                at, clock = _earlier(since + limits.first_byte_s, Clock.FIRST_BYTE, at, clock)
        if self._connected_at is None:
            at, clock = _earlier(since + limits.connect_s, Clock.CONNECT, at, clock)
        return at, clock

    @property
    def _flows(self) -> bool:
        """The stream's body has begun, so that a gap in it counts. A server may send its head at once and then compute a long prompt."""
        return self.first_output_at is not None or self.progress.at > self._awaited_since

    # ── attempts ──────────────────────────────────────────────────────────────

    def _start(self, choice: Choice, rung: Rung, now: float) -> list[Action]:
        changes = self._changes
        if rung is Rung.SHORTER:
            assert self._succession is not None, "a first attempt asks for the whole"
            changes = self._succession.shorter(changes)
        denied = self._move(choice, changes, now)
        if denied is not None:
            return self._pass_over(choice, rung, denied, now)
        self.choice = choice
        self._rung = rung
        fleet, replica = self._policies.fleet, choice.replica.replica
        self._attempt += 1
        fleet.begin(replica, now=now)
        self.phase = Phase.RUNNING
        self._started_at = self._awaited_since = self._looked_at = now
        self.progress = Progress(now)
        self._connected_at = self._responded_at = self._status = self._upstream_request_id = None
        self._was_overdue = False
        self._overdue_at = None
        if self._request.stream:
            overdue_s = fleet.overdue_s(replica)
            self._overdue_at = None if overdue_s is None else now + overdue_s
            if self._allowance is not None:
                self.progress.go_on_to(self._allowance.extend_at)
        self._asked_usage = self._request.stream and fleet.may_ask_usage(replica)
        dialect = DIALECTS[choice.replica.dialect]
        body = rewrite_body(self._request, model=choice.model, dialect=dialect, ask_usage=self._asked_usage, changes=changes)
        return [StartAttempt(self._attempt, replica, choice.model, body)]

    def _move(self, choice: Choice, changes: BodyChanges | None, now: float) -> Denied | None:
        """Hold what this attempt may use instead of what the one before it might have."""
        if self._allowance is None:
            return None
        cap = None if changes is None else changes.max_completion_tokens
        return self._allowance.move(choice, self._request.max_completion_tokens if cap is None else cap, now=now)

    def _pass_over(self, choice: Choice, rung: Rung, denied: Denied, now: float) -> list[Action]:
        """Turn from a target that needs more than the limits have left: it is like one that is not available."""
        self.phase = Phase.WAITING
        successor = self._tries(choice).instead_of(choice, rung, now=now)
        if successor is None:
            return self._end(CallResult(None, committed=False, denied=denied))
        return self._follow(successor, now)

    def _tries(self, choice: Choice) -> Succession:
        if self._succession is None:
            self._succession = Succession(
                self._policies, self._request, self._route, choice, features=self._features, affinity=self._affinity
            )
        return self._succession

    def _extend(self, now: float) -> list[Action]:
        """Hold more for a stream that has used up what was held; where a limit has nothing left, the answer ends here."""
        progress, allowance = self.progress, self._allowance
        begun = self.committed or self.detached
        if allowance is None or progress.tokens < progress.extend_at or not begun:
            return []
        denied = allowance.extend(progress.tokens, now=now)
        if denied is None:
            progress.go_on_to(allowance.extend_at)
            return []
        self._close(now, failure=None, abandoned=True)
        self._record_attempt(_CANCELLED, now)
        self._end(CallResult(None, self.committed, finish_reason=FinishReason.LENGTH, denied=denied))
        return [CancelAttempt(self._attempt)]

    def _output(self, now: float) -> list[Action]:
        assert self.choice is not None
        if self.first_output_at is None:
            self.first_output_at = now
            began_at = self._started_at
            self._policies.fleet.first_output(
                self.choice.replica.replica, now=now, ttft_s=now - began_at, began_at=began_at, was_overdue=self._was_overdue
            )
        return [] if self.committed or self.detached else self._commit()

    def _commit(self) -> list[Action]:
        self.committed = True
        self.phase = Phase.COMMITTED
        return [Relay(self._attempt, self.degraded)]

    def _complete(self, event: AttemptCompleted, now: float) -> list[Action]:
        self._close(now, failure=None)
        self._record_attempt("ok", now)
        times = event.server_times
        if times is not None:
            self.attempts[-1] = replace(self.attempts[-1], queue_s=times.queue_s, prefill_s=times.prefill_s, decode_s=times.decode_s)
        self._note_primary(failed=event.finish_reason == FinishReason.ERROR)
        result = CallResult(None, committed=True, usage=event.usage, finish_reason=event.finish_reason, output_bytes=event.output_bytes)
        self._end(result)
        if self.detached:
            return []
        return [EndStream() if self.committed else Reply(self._attempt, self.degraded)]

    def _fail(self, failure: UpstreamFailure, usage: Usage | None, now: float, *, lost: bool = False) -> list[Action]:
        assert self.choice is not None
        kept = replace(failure, message=words_for_operators(failure, self._request))
        self._close(now, failure=kept, abandoned=lost)  # what a health check has seen, it has told the fleet itself
        self._record_attempt("lost" if lost else _word(failure), now, usage)
        if tells_of_the_prompt(failure) and not lost:
            self._note_primary(failed=True)
        if self.committed or self.detached:
            return self._end(CallResult(failure, committed=self.committed or self.first_output_at is not None, usage=usage))
        self.phase = Phase.WAITING
        ours = failure.param == "stream_options" and self._asked_usage and not self._request.wants_usage
        if ours:
            self._policies.fleet.usage_option_refused(self.choice.replica.replica)
        failed = Failed(failure, self.choice, self._attempt, self._rung, lost, ours)
        successor = self._tries(self.choice).after(failed, now=now)
        if successor is None:
            return self._end(CallResult(failure, committed=False, usage=usage))
        self._paused_after = failure
        return self._follow(successor, now)

    def _follow(self, successor: Successor, now: float) -> list[Action]:
        if successor.choice is not None:
            return self._start(successor.choice, successor.rung, now)
        self._rung = successor.rung
        self._resume_at = now + successor.pause_s
        return []

    def _resume(self, now: float) -> list[Action]:
        self._resume_at = None
        assert self._succession is not None
        assert self.choice is not None
        successor = self._succession.resume(self._rung, self.choice, now=now)
        if successor is None:
            return self._end(CallResult(self._paused_after, committed=False))
        return self._follow(successor, now)

    # ── ends ──────────────────────────────────────────────────────────────────

    def _close(self, now: float, *, failure: UpstreamFailure | None, abandoned: bool = False) -> None:
        """Close the attempt in the fleet."""
        assert self.choice is not None
        fleet, replica, reported = self._policies.fleet, self.choice.replica.replica, self.first_output_at is not None
        if abandoned:
            fleet.abandon(replica, now=now, began_at=self._started_at, output_reported=reported)
        else:
            fleet.end(replica, failure, now=now, began_at=self._started_at, output_reported=reported)

    def _end(self, result: CallResult) -> list[Action]:
        self.phase = Phase.OVER
        self.result = result
        return []

    def _note_primary(self, *, failed: bool) -> None:
        assert self.choice is not None
        if self.choice.rank == 0:
            self.primary_failed = failed

    def _record_attempt(self, result: str, now: float, usage: Usage | None = None) -> None:
        assert self.choice is not None
        since = self._started_at
        self.attempts.append(
            AttemptRecord(  # by place, as in `record_of`
                self._attempt,
                self.choice.replica.replica,
                result,
                "" if self._rung is Rung.FIRST else self._rung.value,  # step
                self.choice.model,
                self._status,
                self._upstream_request_id,
                _after(self._connected_at, since),
                _after(self._responded_at, since),  # first_byte_s
                _after(self.first_output_at, since),  # first_token_s
                now - since,  # duration_s
                NOTHING_USED if usage is None else usage,
                0,  # cost_micro
                since - self._received_at,  # began_s
            )
        )


def targets_of(route: Route, request: ParsedRequest) -> tuple[Target, ...]:
    """Give the targets that may answer. Vectors of two models must not meet in one index: for them it is only the same model elsewhere."""
    if request.operation is not Operation.EMBEDDING:
        return route.targets
    model = route.targets[0].model
    return tuple(target for target in route.targets if target.model == model)


def _earlier(at: float, clock: Clock, other_at: float, other: Clock) -> tuple[float, Clock]:
    """Give the first of two times with its clock. (Compiled, `min` would box what it compares.)"""
    return (at, clock) if at <= other_at else (other_at, other)


def _after(instant: float | None, since: float) -> float | None:
    return None if instant is None else instant - since


def _word(failure: UpstreamFailure) -> str:
    if failure.clock is not None:
        return f"timeout_{failure.clock}"
    if failure.status is not None:
        return f"status_{failure.status}"
    return "failed"
