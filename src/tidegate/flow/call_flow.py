"""The attempts of one request: where each goes, when it has taken too long, and what follows a failure.

Invariants: at most one attempt runs at a time and each is closed once in the fleet; after the commit point (the first
output went downstream) no attempt starts; events of an attempt that is not the current one are ignored.

    waiting ──StartAttempt──> running ──Relay──> committed ──> over
       ^                         │
       └── pause before a retry ─┘
"""

from __future__ import annotations

from random import Random
from typing import assert_never

from tidegate.domain.record import AttemptRecord
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import ReplicaId
from tidegate.domain.upstream import Choice, Clock, FailureScope, Route, UpstreamFailure
from tidegate.domain.usage import Usage
from tidegate.flow.actions import Action, CancelAttempt, EndStream, Relay, Reply, StartAttempt
from tidegate.flow.events import AttemptCompleted, AttemptFailed, CallEvent, OutputStarted
from tidegate.flow.facts import CallResult, Phase
from tidegate.policy.resilience.retry import RetryPolicy
from tidegate.policy.routing.fleet import Fleet
from tidegate.wire.dialects import DIALECTS
from tidegate.wire.openai import rewrite_body


class Progress:
    """How far an attempt's stream has come. The driver writes it for each piece, the flow looks when a clock runs out and at the end."""

    __slots__ = ("at", "chunks")

    def __init__(self, at: float) -> None:
        self.at = at
        """When the last piece came, or the attempt began."""
        self.chunks = 0
        """Pieces of output so far."""


class CallFlow:
    """Sequences the attempts of one call. Over when `result` is set."""

    def __init__(self, request: ParsedRequest, route: Route, fleet: Fleet, retry: RetryPolicy, rng: Random) -> None:
        self._request = request
        self._route = _without_other_models(route) if request.operation is Operation.EMBEDDING else route
        self._fleet = fleet
        self._retry = retry
        self._rng = rng
        self.phase = Phase.WAITING
        self.result: CallResult | None = None
        self.attempts: list[AttemptRecord] = []
        self.choice: Choice | None = None
        self.first_output_at: float | None = None
        self.progress = Progress(0.0)
        """Of the running attempt."""
        self._attempt = 0
        self._tries: dict[ReplicaId, int] = {}
        self._exhausted: set[ReplicaId] = set()
        self._resume_at: float | None = None
        self._started_at = 0.0
        self._connected_at: float | None = None
        self._responded_at: float | None = None
        self._status: int | None = None
        self._upstream_request_id: str | None = None
        self._asked_usage = False

    def __repr__(self) -> str:
        return f"CallFlow({self.phase}, attempt {self._attempt})"

    @property
    def degraded(self) -> str | None:
        """Say so when the answer does not come from the route's preferred target."""
        if self.choice is None or self.choice.rank == 0:
            return None
        return f"L1; reason=failover; upstream={self.choice.replica.upstream}"

    def begin(self, *, now: float) -> list[Action]:
        return self._start_next(None, now)

    def receive(self, event: CallEvent, *, now: float) -> list[Action]:
        if self.phase not in (Phase.RUNNING, Phase.COMMITTED) or event.attempt != self._attempt:
            return []
        match event:
            case OutputStarted():
                self.first_output_at = now
                self.phase = Phase.COMMITTED
                return [Relay(self._attempt, self.degraded)]
            case AttemptCompleted():
                return self._complete(event, now)
            case AttemptFailed(failure=failure, usage=usage):
                return self._fail(failure, usage, now)
            case _:
                assert_never(event)

    # Facts that call for no action are noted, not received: they only move clocks.

    def note_connected(self, attempt: int, *, now: float) -> None:
        """A connection is had and the request is on its way."""
        if attempt == self._attempt:
            self._connected_at = now

    def note_response(self, attempt: int, status: int, upstream_request_id: str | None = None, *, now: float) -> None:
        """The upstream's status line came."""
        if attempt == self._attempt:
            self._responded_at = self.progress.at = now
            self._status = status
            self._upstream_request_id = upstream_request_id

    def abandon(self, *, now: float) -> list[Action]:
        """End the call because the client left or the process must end."""
        running = self.phase in (Phase.RUNNING, Phase.COMMITTED)
        self.phase = Phase.OVER
        if not running:
            return []
        assert self.choice is not None
        self._fleet.abandon(self.choice.replica.replica)
        self._record_attempt("cancelled", now)
        return [CancelAttempt(self._attempt)]

    def next_timer(self) -> float | None:
        if self.phase is Phase.WAITING:
            return self._resume_at
        deadline = self._deadline()
        return None if deadline is None else deadline[0]

    def handle_timer(self, *, now: float) -> list[Action]:
        if self.phase is Phase.WAITING:
            if self._resume_at is None or now < self._resume_at:
                return []
            self._resume_at = None
            return self._start_next(None, now)
        deadline = self._deadline()
        if deadline is None or now < deadline[0]:
            return []
        return [CancelAttempt(self._attempt), *self._fail(self._timeout(deadline[1]), None, now)]

    def _deadline(self) -> tuple[float, Clock] | None:
        """Give the earliest of the clocks that run in this phase."""
        if self.phase not in (Phase.RUNNING, Phase.COMMITTED):
            return None
        assert self.choice is not None
        limits = self.choice.replica.timeouts
        total = (self._started_at + limits.total_s, Clock.TOTAL)
        if self._connected_at is None:
            return min((self._started_at + limits.connect_s, Clock.CONNECT), total)
        if not self._request.stream:
            return total
        if self._responded_at is None:
            return min((self._started_at + limits.first_byte_s, Clock.FIRST_BYTE), total)
        stall = (self.progress.at + limits.stall_s, Clock.STALL)
        if self.phase is Phase.RUNNING:
            return min((self._started_at + limits.first_token_s, Clock.FIRST_TOKEN), stall, total)
        return min(stall, total)

    def _start_next(self, failure: UpstreamFailure | None, now: float) -> list[Action]:
        choice = self._fleet.choose(self._route, self._request.model, self._exhausted, now=now)
        if choice is None:
            if failure is None:
                failure = UpstreamFailure(
                    FailureScope.MODEL, retryable=True, message="no replica is available", retry_after_s=self._wait_s(now)
                )
            return self._end(CallResult(failure, committed=False))
        self.choice = choice
        replica = choice.replica.replica
        self._attempt += 1
        self._tries[replica] = self._tries.get(replica, 0) + 1
        self._fleet.begin(replica)
        self.phase = Phase.RUNNING
        self._started_at = now
        self.progress = Progress(now)
        self._connected_at = self._responded_at = self._status = self._upstream_request_id = None
        self._asked_usage = self._request.stream and self._fleet.may_ask_usage(replica)
        dialect = DIALECTS[choice.replica.dialect]
        body = rewrite_body(self._request, model=choice.model, dialect=dialect, ask_usage=self._asked_usage)
        return [StartAttempt(self._attempt, replica, choice.model, body)]

    def _wait_s(self, now: float) -> float | None:
        return self._fleet.wait_s(self._route, now=now)

    def _complete(self, event: AttemptCompleted, now: float) -> list[Action]:
        assert self.choice is not None
        committed = self.phase is Phase.COMMITTED
        self._fleet.end(self.choice.replica.replica, None, now=now)
        self._record_attempt("ok", now)
        answer: Action = EndStream() if committed else Reply(self._attempt, self.degraded)
        self._end(CallResult(None, committed=True, usage=event.usage, finish_reason=event.finish_reason, output_bytes=event.output_bytes))
        return [answer]

    def _fail(self, failure: UpstreamFailure, usage: Usage | None, now: float) -> list[Action]:
        assert self.choice is not None
        replica = self.choice.replica.replica
        self._fleet.end(replica, failure, now=now)
        self._record_attempt(_word(failure), now)
        if self.phase is Phase.COMMITTED:
            return self._end(CallResult(failure, committed=True, usage=usage))
        self.phase = Phase.WAITING
        ours = failure.param == "stream_options" and self._asked_usage and not self._request.wants_usage
        if ours and self._attempt < self._retry.max_attempts:
            self._fleet.usage_option_refused(replica)  # our wish, not the client's: once more without it
            return self._start_next(failure, now)
        if not self._retry.may_retry(failure, self._attempt):
            return self._end(CallResult(failure, committed=False, usage=usage))
        if self._retry.may_repeat(failure, self._tries[replica]) and self._is_last_choice(replica, now):
            self._resume_at = now + self._retry.delay_s(self._attempt, self._rng)
            return []
        self._exhausted.add(replica)
        return self._start_next(failure, now)

    def _is_last_choice(self, replica: ReplicaId, now: float) -> bool:
        """Another replica is tried first; the same one again only when there is no other."""
        return self._fleet.choose(self._route, self._request.model, self._exhausted | {replica}, now=now) is None

    def _end(self, result: CallResult) -> list[Action]:
        self.phase = Phase.OVER
        self.result = result
        return []

    def _timeout(self, clock: Clock) -> UpstreamFailure:
        assert self.choice is not None
        limit_s = self.choice.replica.timeouts.of(clock)
        message = f"upstream {self.choice.replica.upstream} ran out its {clock.replace('_', ' ')} clock ({limit_s:g} s)"
        return UpstreamFailure(FailureScope.REPLICA, retryable=True, message=message, clock=clock)

    def _record_attempt(self, result: str, now: float) -> None:
        assert self.choice is not None
        since = self._started_at
        self.attempts.append(
            AttemptRecord(
                attempt=self._attempt,
                replica=self.choice.replica.replica,
                result=result,
                status=self._status,
                upstream_request_id=self._upstream_request_id,
                connect_s=_after(self._connected_at, since),
                first_byte_s=_after(self._responded_at, since),
                first_token_s=_after(self.first_output_at, since),
                duration_s=now - since,
            )
        )


def _without_other_models(route: Route) -> Route:
    """Vectors of two models must not meet in one index: an embedding has no stand-by."""
    return Route(route.pattern, route.targets[:1])


def _after(instant: float | None, since: float) -> float | None:
    return None if instant is None else instant - since


def _word(failure: UpstreamFailure) -> str:
    if failure.clock is not None:
        return f"timeout_{failure.clock}"
    if failure.status is not None:
        return f"status_{failure.status}"
    return "failed"
