"""Drive one `RequestFlow` over one exchange: feed it what happened, perform what it decides.

Invariants: a flow is fed until its `Finish`, and then never again; the one record is handed over at `Finish`; a fault of
our own ends the flow too, so no permit leaks. No await, and no work per chunk beyond the codec and one write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, assert_never

from tidegate.domain.error_object import encode_error_for
from tidegate.domain.principal import Principal
from tidegate.domain.units import HeaderLines, Headers, ReplicaId
from tidegate.errors import TidegateError
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
    Authenticated,
    AuthenticationRefused,
    BodyReceived,
    BodyRefused,
    CallEvent,
    ClientLeft,
    DrainExpired,
    DriverFailed,
    Event,
    LeaseAnswered,
    ReplicaLost,
    TokensCounted,
)
from tidegate.flow.facts import Policies
from tidegate.flow.request_flow import RequestFlow
from tidegate.gateway.alarms import NEVER
from tidegate.gateway.attempt import Attempt
from tidegate.gateway.audited import AuditedExchange
from tidegate.gateway.endpoints import UPSTREAM_PATHS
from tidegate.gateway.services import Services
from tidegate.gateway.verification import verify
from tidegate.ports import Exchange, TokenCount, UpstreamRequest
from tidegate.wire.headers import client_response_headers, limit_lines, refusal_headers
from tidegate.wire.heartbeat import heartbeat
from tidegate.wire.openai import encode_error_event
from tidegate.wire.trace_context import for_attempt

if TYPE_CHECKING:
    from tidegate.gateway.gateway import Gateway

_log = logging.getLogger("tidegate.gateway")
_JSON = (b"content-type", b"application/json")
_EVENT_STREAM = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache"))
_GUESS_S = 0.1  # before a deadline the counter gives up on the process and guesses
_COUNT_DEADLINE_S = 2.0  # for a limit: beyond it a guess serves
_ANSWER_DEADLINE_S = 20.0  # for /tokenize and its like: the count is the answer


class RequestDriver:
    """Implements `ports.ExchangeReceiver`."""

    __slots__ = (
        "_attempt",
        "_audited",
        "_exchange",
        "_finished",
        "_heartbeat_at",
        "_heartbeats",
        "_loop",
        "_owner",
        "_paused",
        "_recorded",
        "_request_lines",
        "_services",
        "_traceparent",
        "flow",
        "now",
        "timer",
        "wake_at",
    )

    def __init__(
        self,
        owner: Gateway,
        exchange: Exchange,
        flow: RequestFlow,
        services: Services,
        request_lines: HeaderLines,
        traceparent: bytes,
        loop: asyncio.AbstractEventLoop,
        audited: AuditedExchange | None = None,
    ) -> None:
        """`request_lines` are the client's header fields that an upstream may see; `audited` is the exchange, where its bodies are kept."""
        self.flow = flow
        self._owner = owner
        self._exchange = exchange
        self._services = services
        self._request_lines = request_lines
        self._traceparent = traceparent
        self._loop = loop
        self._audited = audited
        self.now = owner.clock
        self._attempt: Attempt | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.wake_at = NEVER
        """These two are of `Alarms`."""
        self._heartbeat_at = NEVER
        """When the stream is looked at next: it may have been silent for long enough by then."""
        self._heartbeats = 0
        self._paused = False
        self._recorded = False
        self._finished = False

    def __repr__(self) -> str:
        return f"RequestDriver({self.flow!r})"

    @property
    def principal(self) -> Principal | None:
        """Who asked; None until that is known."""
        return self.flow.principal

    def begin(self) -> None:
        try:
            self._perform(self.flow.begin(now=self.now()))
        except Exception as fault:  # noqa: BLE001  outermost frame: see `crashed`
            self.crashed(fault)

    def uses(self, policies: Policies) -> bool:
        """Tell whether this request was begun under that configuration."""
        return self._services.policies is policies

    def interrupt(self) -> None:
        """The process must end: finish this request with an error."""
        self._feed(DrainExpired())

    def replica_lost(self, replica: ReplicaId, reason: str) -> bool:
        """Pass on that a replica is dead, if the current attempt is there; what has begun to answer goes on."""
        call = self.flow.call
        if call is None or call.choice is None or call.choice.replica.replica != replica:
            return False
        self._feed(ReplicaLost(replica, reason))
        return True

    def crashed(self, fault: Exception) -> None:
        """End the request after a fault of our own; the client gets no detail, the log does."""
        if self._finished:
            _log.error("request.late_fault request_id=%s", self.flow.facts.request_id, exc_info=fault)
            return
        _log.error("request.crashed request_id=%s", self.flow.facts.request_id, exc_info=fault)
        try:
            self._cancel_attempt()  # the action that would have may be among those that the fault has lost
            self._perform(self.flow.receive(DriverFailed(), now=self.now()))
        except Exception:  # noqa: BLE001  it could not even be ended: see below
            _log.exception("request.abandoned request_id=%s", self.flow.facts.request_id)
        if not self._finished:
            self._abandon()

    def _abandon(self) -> None:
        """The fault was in the last steps themselves: drop the client, stop the upstream, keep the record, each whatever the others do."""
        for step in (self._abandon_flow, self._exchange.abort, self._cancel_attempt, self._record, self._close):
            try:
                step()
            except Exception:  # noqa: BLE001  what is left must still be done
                _log.exception("request.abandoned_badly request_id=%s", self.flow.facts.request_id)

    def _abandon_flow(self) -> None:
        self.flow.abandon(now=self.now())

    # ── ports.ExchangeReceiver ────────────────────────────────────────────────

    def body_received(self, body: bytes) -> None:
        if self._audited is not None:
            self._audited.request_body = body
        self._feed(BodyReceived(body))

    def body_refused(self, error: TidegateError) -> None:
        self._feed(BodyRefused(error))

    def client_left(self) -> None:
        self._feed(ClientLeft())

    def write_paused(self) -> None:
        self._paused = True
        if self._attempt is not None and self._attempt.call is not None:
            self._attempt.call.pause()

    def write_resumed(self) -> None:
        self._paused = False
        if self._attempt is not None and self._attempt.call is not None:
            self._forgive_silence()
            self._attempt.call.resume()

    def _forgive_silence(self) -> None:
        """While the client makes us wait we do not read, so a silent upstream proves nothing."""
        if self.flow.call is not None:
            self.flow.call.forgive_silence(now=self.now())

    # ── for its attempt ──────────────────────────────────────────────────────────

    def attempt_event(self, event: CallEvent) -> None:
        self._feed(event)

    @property
    def relay(self) -> Callable[[bytes], None]:
        return self._exchange.send

    def after(self, delay_s: float, attempt: Attempt) -> None:
        """Call `after_done` then; there is no timer if the attempt ends in this turn, as nearly all do that are done."""
        self._loop.call_soon(self._wait_for_end, delay_s, attempt)

    def _wait_for_end(self, delay_s: float, attempt: Attempt) -> None:
        if not attempt.ended:
            self._loop.call_later(delay_s, attempt.after_done)

    # ── feeding and performing ────────────────────────────────────────────────

    def _feed(self, event: Event) -> None:
        if self._finished:
            return
        try:
            self._perform(self.flow.receive(event, now=self.now()))
        except Exception as fault:  # noqa: BLE001  outermost frame: see `crashed`
            self.crashed(fault)

    def _perform(self, actions: Sequence[Action]) -> None:
        for action in actions:
            self._do(action)
        if not self._finished:
            self._arm()

    def _do(self, action: Action) -> None:
        match action:
            case Authenticate() | CountTokens() | AwaitLease():
                self._ask(action)
            case ReadBody():
                self._exchange.read_body()
            case StartAttempt():
                self._start_attempt(action)
            case Reply():
                self._reply(action)
            case Relay():
                self._relay(action)
            case EndStream():
                self._exchange.finish()
            case Finish():
                self._finish()
            case Answer():
                head = _EVENT_STREAM if action.stream else (_JSON,)
                self._exchange.respond(200, _labelled(head, action.degraded), action.body, self._own_lines())
            case SendError():
                self._send_error(action)
            case InterruptStream() | TruncateStream():
                self._break_off(action)
            case CancelAttempt():
                self._cancel_attempt()
            case Detach():
                self._detach()
            case HoldCost():
                self._hold_cost(action)
            case _:
                assert_never(action)

    def _arm(self) -> None:
        """Keep one alarm, at or before the next heartbeat and the flow's next deadline; an early one finds nothing to do and arms again."""
        wake_at = self.flow.next_timer()
        if self._heartbeat_at != NEVER and (wake_at is None or self._heartbeat_at < wake_at):
            wake_at = self._heartbeat_at
        if wake_at is None:
            self._owner.alarms.drop(self)
        elif wake_at < self.wake_at:
            self._owner.alarms.set(self, wake_at)

    def wake(self) -> None:
        """Look at the clocks; for `Alarms`."""
        now = max(self.wake_at, self.now())  # the loop may wake a rounding error early
        self.timer = None
        self.wake_at = NEVER
        if self._paused:
            self._forgive_silence()
        try:
            if now >= self._heartbeat_at:
                self._beat(now)
            self._perform(self.flow.handle_timer(now=now))
        except Exception as fault:  # noqa: BLE001  outermost frame: see `crashed`
            self.crashed(fault)

    def _beat(self, now: float) -> None:
        """Send a heartbeat if the stream was silent for long enough, and say when to look again.

        While the client makes us wait the stream does not count as silent: see `wake`.
        """
        heartbeat_s = self._services.streams.heartbeat_s
        attempt = self._attempt
        assert heartbeat_s is not None, "without heartbeats there is no time for one"
        assert attempt is not None, "a relayed stream has an attempt until the end"
        assert self.flow.call is not None
        due_at = self.flow.call.progress.at + heartbeat_s
        if due_at <= now:
            due_at = now + heartbeat_s
            self._heartbeats += 1
            self._owner.heartbeats += 1
            attempt.interpose()
            self._exchange.send(heartbeat(self._services.wall_clock(), self._heartbeats))
        self._heartbeat_at = due_at

    def _ask(self, action: Authenticate | CountTokens | AwaitLease) -> None:
        """Find something out; the flow goes on with the answer."""
        if isinstance(action, Authenticate):
            self._authenticate(action)
        else:
            self._owner.tasks.start(self._count_tokens() if isinstance(action, CountTokens) else self._await_lease(action.deadline_s))

    def _hold_cost(self, action: HoldCost) -> None:
        costs, facts = self._services.costs, self.flow.facts
        if costs is not None:
            costs.hold(facts.request_id, facts.started_at, action.tenant, action.cost_micro, at=self._services.wall_clock())

    def _authenticate(self, action: Authenticate) -> None:
        verdict = self._services.authenticator.known(action.credential, now=self.now())
        if verdict is None:
            self._owner.tasks.start(self._verify(action))
        elif isinstance(verdict, TidegateError):
            self._feed(AuthenticationRefused(verdict))
        else:
            self._feed(Authenticated(verdict))

    async def _verify(self, action: Authenticate) -> None:
        try:
            verdict = await verify(self._services.authenticator, action.credential, now=self.now())
        except Exception as fault:  # noqa: BLE001  outermost frame of the task: see `crashed`
            self.crashed(fault)
            return
        self._feed(AuthenticationRefused(verdict) if isinstance(verdict, TidegateError) else Authenticated(verdict))

    async def _count_tokens(self) -> None:
        request = self.flow.request
        assert request is not None, "a flow counts what it has parsed"
        deadline_s = _ANSWER_DEADLINE_S if self.flow.facts.operation.is_count else _COUNT_DEADLINE_S
        count: TokenCount | None = None
        try:
            async with asyncio.timeout(deadline_s):
                count = await self._services.counter.count(request, deadline_s=deadline_s - _GUESS_S)
        except TimeoutError:
            _log.warning("count.timed_out request_id=%s", self.flow.facts.request_id)
        except TidegateError as problem:
            _log.warning("count.failed request_id=%s reason=%s", self.flow.facts.request_id, problem.message)
        except Exception as fault:  # noqa: BLE001  outermost frame of the task: see `crashed`
            self.crashed(fault)
            return
        self._feed(TokensCounted(count))

    async def _await_lease(self, deadline_s: float) -> None:
        leases = self._services.leases
        if leases is not None:
            try:
                await leases.replenished(deadline_s=deadline_s)
            except Exception as fault:  # noqa: BLE001  outermost frame of the task: see `crashed`
                self.crashed(fault)
                return
        self._feed(LeaseAnswered())

    def _start_attempt(self, action: StartAttempt) -> None:
        flow, services = self.flow, self._services
        assert flow.request is not None
        assert flow.call is not None
        endpoint = services.endpoints[action.replica]
        attempt = self._attempt = Attempt(self, action.attempt, flow.request, endpoint, flow.call, services)
        lines = b"%b%bx-request-id: %b\r\n" % (endpoint.lines, self._request_lines, flow.facts.request_id.encode())
        if endpoint.continues_trace:
            lines = b"%btraceparent: %b\r\n" % (lines, for_attempt(self._traceparent, action.attempt))
        call = UpstreamRequest("POST", UPSTREAM_PATHS[flow.request.operation], (), action.body, lines)
        attempt.call = endpoint.client.start(call, attempt)

    def _cancel_attempt(self) -> None:
        if self._attempt is not None:
            self._attempt.cancel()

    def _detach(self) -> None:
        assert self._attempt is not None
        self._heartbeat_at = NEVER
        self._attempt.detach()
        if self._paused:
            self.write_resumed()

    def _relay(self, action: Relay) -> None:
        assert self._attempt is not None
        attempt = self._attempt
        if attempt.codec is not None:
            headers = _labelled(client_response_headers(attempt.headers), action.degraded)
            self._exchange.start(attempt.status, headers, self._answer_lines(attempt))
        else:  # early, before the upstream said that it streams
            self._exchange.start(200, _labelled(_EVENT_STREAM, action.degraded), self._own_lines())
        heartbeat_s = self._services.streams.heartbeat_s
        if heartbeat_s is not None:
            self._heartbeat_at = self.now() + heartbeat_s
        held = attempt.commit()
        if held:
            self._exchange.send(held)

    def _break_off(self, action: InterruptStream | TruncateStream) -> None:
        if isinstance(action, InterruptStream):
            self._exchange.send(encode_error_event(action.error))
        else:
            assert self._attempt is not None
            self._exchange.send(self._attempt.truncation(action))
        self._exchange.finish()

    def _reply(self, action: Reply) -> None:
        assert self._attempt is not None
        attempt, record = self._attempt, self.flow.record
        headers, lines = _labelled(client_response_headers(attempt.headers), action.degraded), self._answer_lines(attempt)
        if record is not None and record.price_version:  # a whole answer is known to the end before any of it is sent
            lines = b"%bx-tidegate-cost-micro: %d\r\n" % (lines, record.cost_micro)
        self._exchange.respond(attempt.status, headers, attempt.commit(), lines)

    def _send_error(self, action: SendError) -> None:
        error = action.error
        body = encode_error_for(self.flow.facts.operation, error)
        self._exchange.respond(error.status, refusal_headers(error), body, self._own_lines())

    def _finish(self) -> None:
        self._record()
        self._close()
        record, calibration = self.flow.record, self._services.calibration
        if record is not None and calibration is not None:
            calibration.finished(record, self.flow.request, now=self.now())

    def _record(self) -> None:
        """Hand over the one record; once, whatever fails after it."""
        record = self.flow.record
        if record is not None and not self._recorded:
            self._recorded = True
            self._services.recorder.record(record)

    def _close(self) -> None:
        self._finished = True
        self._attempt = None  # the attempt knows us: without the circle both go at once, and the collector has nothing to do
        self._owner.alarms.drop(self)
        self._owner.driver_finished(self)
        if self._audited is not None:
            self._audited.close(self.flow.record)

    # ── headers ───────────────────────────────────────────────────────────────

    def _answer_lines(self, attempt: Attempt) -> HeaderLines:
        tenths = round((self.now() - attempt.started_at) * 1e4)
        lines = b"%bx-model-response-time: %d.%d\r\n" % (self._own_lines(), tenths // 10, tenths % 10)
        return lines if attempt.number == 1 else b"%bx-tidegate-attempts: %d\r\n" % (lines, attempt.number)

    def _own_lines(self) -> HeaderLines:
        flow = self.flow
        identity = b"x-request-id: %b\r\ntraceparent: %b\r\n" % (flow.facts.request_id.encode(), self._traceparent)
        if flow.principal is None or flow.subject is None:
            return identity
        if flow.permit is not None:
            return identity + limit_lines(flow.permit.state(now=self.now()))
        return identity + limit_lines(self._services.policies.limits.state(flow.subject, flow.principal.limits, now=self.now()))


def _labelled(headers: Headers, degraded: str | None) -> Headers:
    return headers if degraded is None else (*headers, (b"x-tidegate-degraded", degraded.encode()))
