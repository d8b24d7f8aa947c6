"""Run a scenario on the live gateway driver, in virtual time, with a scripted client and scripted upstreams instead of sockets."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import msgspec

from tidegate.domain.principal import Principal
from tidegate.domain.record import RequestRecord
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import HeaderLines, Headers, ReplicaId, Secret
from tidegate.errors import TidegateError
from tidegate.flow.actions import Action, StartAttempt
from tidegate.flow.events import Event
from tidegate.flow.facts import Policies, RequestFacts
from tidegate.flow.request_flow import RequestFlow
from tidegate.gateway.endpoints import UPSTREAM_PATHS
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.services import Services, UpstreamEndpoint
from tidegate.ports import CallReceiver, ExchangeReceiver, RequestHead, TokenCount, UpstreamRequest
from tidegate.simulator.driver import UNKNOWN_CREDENTIAL, TracedAction
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
    ScriptedRequest,
    ScriptStep,
)
from tidegate.testing.header_fields import fields_of
from tidegate.testing.virtual_time import run_virtual
from tidegate.wire.dialects import DIALECTS

_PATHS = {
    **{operation: f"/v1{path}" for operation, path in UPSTREAM_PATHS.items()},
    Operation.TOKENIZE: "/tokenize",
    Operation.COUNT_MESSAGES: "/v1/messages/count_tokens",
    Operation.COUNT_RESPONSES: "/v1/responses/input_tokens",
    Operation.ESTIMATE: "/v1/estimate",
    Operation.MODELS: "/v1/models",
}


class LiveRun:
    """The gateway's own driver over fakes; `trace` is what its flows decided, `exchanges` what its clients saw."""

    def __init__(self, scenario: Scenario, *, policies: Policies | None = None, exchange: type[FakeExchange] | None = None) -> None:
        self.scenario = scenario
        self.policies = policies if policies is not None else scenario.policies()
        self._exchange = exchange or FakeExchange
        self.trace: list[TracedAction] = []
        self.records: list[RequestRecord] = []
        self.exchanges: dict[int, FakeExchange] = {}
        self.attempts: Counter[int] = Counter()
        """Started so far, by the number of the request."""

    def run(self) -> list[TracedAction]:
        run_virtual(self._main())
        return self.trace

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._epoch = self._loop.time()
        endpoints = {
            replica.replica: UpstreamEndpoint(
                _ScriptedClient(self, replica.replica), DIALECTS[replica.dialect], b"authorization: Bearer upstream-key\r\n"
            )
            for replica in self.scenario.replicas
        }
        services = Services(self.policies, endpoints, self, self, self, wall_clock=lambda: 0.0, leases=self)
        self.gateway = Gateway(services, clock=self._loop.time, rng=Random(1), flow_factory=self._traced_flow)
        for index, request in enumerate(self.scenario.requests):
            self._at(request.at_s, self._begin, index, request)
        for report in self.scenario.reports:
            self._at(report.at_s, self._report, report)
        if self.scenario.drain_at_s is not None:
            self._at(self.scenario.drain_at_s, self.gateway.interrupt_all)
        await asyncio.sleep(100_000)
        assert self.gateway.statistics().running == 0, "a request never ended"
        await self.gateway.aclose()

    def _at(self, at_s: float, call: object, *arguments: object) -> None:
        assert callable(call)
        self._loop.call_at(self._epoch + at_s, call, *arguments)

    def _begin(self, index: int, request: ScriptedRequest) -> None:
        exchange = self.exchanges[index] = self._exchange(index, request)
        receiver = self.gateway.application(exchange)
        exchange.attach(receiver)
        if request.leaves_after_s is not None:
            self._loop.call_later(request.leaves_after_s, exchange.leave)

    def _report(self, report: HealthReport) -> None:
        fleet, replica, reason = self.policies.fleet, report.replica, report.reason
        news = fleet.report(replica, alive=report.alive, reason=reason, now=self._loop.time(), doubted=report.doubted)
        if news and not report.alive:
            self.gateway.replica_lost(report.replica, report.reason)

    def elapsed_s(self) -> float:
        return self._loop.time() - self._epoch

    def _traced_flow(self, facts: RequestFacts, policies: Policies) -> RequestFlow:
        return _TracedFlow(facts, policies, self)

    def note(self, facts: RequestFacts, actions: list[Action], now: float) -> None:
        for action in actions:
            index = int(facts.request_id[1:])
            self.attempts[index] += isinstance(action, StartAttempt)
            self.trace.append(TracedAction(now - self._epoch, index, action))

    # ── the ports ─────────────────────────────────────────────────────────────

    def known(self, credential: Secret, *, now: float) -> Principal | TidegateError | None:
        del now
        return self.scenario.principals.get(credential.reveal(), UNKNOWN_CREDENTIAL)

    async def verify(self, credential: Secret, *, now: float) -> Principal | TidegateError:
        del credential, now
        raise AssertionError("every credential of a scenario is known")

    async def count(self, request: ParsedRequest, *, deadline_s: float) -> TokenCount:
        del deadline_s
        await asyncio.sleep(self.scenario.count_takes_s)
        script = next(entry for entry in self.scenario.requests if entry.body == request.body)
        if script.counted_tokens is None:
            raise TimeoutError
        return TokenCount(script.counted_tokens, "scripted", exact=True)

    async def replenished(self, *, deadline_s: float) -> None:
        await asyncio.sleep(min(self.scenario.lease_takes_s, deadline_s))

    def record(self, record: RequestRecord) -> None:
        self.records.append(record)


class _TracedFlow(RequestFlow):
    """A flow whose decisions are noted."""

    def __init__(self, facts: RequestFacts, policies: Policies, run: LiveRun) -> None:
        super().__init__(facts, policies)
        self._run = run

    def begin(self, *, now: float) -> list[Action]:
        return self._noted(super().begin(now=now), now)

    def receive(self, event: Event, *, now: float) -> list[Action]:
        return self._noted(super().receive(event, now=now), now)

    def handle_timer(self, *, now: float) -> list[Action]:
        return self._noted(super().handle_timer(now=now), now)

    def _noted(self, actions: list[Action], now: float) -> list[Action]:
        self._run.note(self.facts, actions, now)
        return actions


class FakeExchange:
    """Implements `ports.Exchange`: keeps what the client would have seen."""

    def __init__(self, index: int, request: ScriptedRequest) -> None:
        path = f"/v1/models/{request.path_argument}" if request.operation is Operation.MODEL else _PATHS[request.operation]
        method = "GET" if request.operation in (Operation.MODELS, Operation.MODEL) else "POST"
        headers: Headers = ((b"authorization", b"Bearer " + request.credential.encode()), (b"x-request-id", b"r%d" % index))
        if request.feature:
            headers = (*headers, (b"x-business-context", b"feature=" + request.feature.encode()))
        if request.session:
            headers = (*headers, (b"x-session-id", request.session.encode()))
        if request.color:
            headers = (*headers, (b"x-tidegate-color", request.color.encode()))
        self.head = RequestHead(method, path, "", headers, "127.0.0.1:1")
        self.status: int | None = None
        self.headers: Headers = ()
        self.body = b""
        self.finished = False
        self.left = False
        self._request = request
        self._receiver: ExchangeReceiver | None = None
        self._wants_body = False

    def attach(self, receiver: ExchangeReceiver) -> None:
        self._receiver = receiver
        if self._wants_body:
            receiver.body_received(self._request.body)

    def leave(self) -> None:
        if not self.finished and self._receiver is not None:
            self.left = True
            self._receiver.client_left()

    def read_body(self) -> None:
        self._wants_body = True

    def respond(self, status: int, headers: Headers, body: bytes, lines: HeaderLines = b"") -> None:
        assert not self.left, "nothing for a client that is gone"
        assert self.status is None, "one response per request"
        self.status, self.headers, self.body, self.finished = status, (*headers, *fields_of(lines)), body, True

    def start(self, status: int, headers: Headers, lines: HeaderLines = b"") -> None:
        assert not self.left, "nothing for a client that is gone"
        assert self.status is None, "one response per request"
        self.status, self.headers = status, (*headers, *fields_of(lines))

    def send(self, chunk: bytes) -> None:
        assert self.status is not None
        assert not self.finished, "nothing after the end"
        assert not self.left, "nothing for a client that is gone"
        self.body += chunk

    def finish(self) -> None:
        assert not self.finished, "a response ends once"
        self.finished = True

    def abort(self) -> None:
        self.finished = True


class _ScriptedClient:
    """Implements `ports.UpstreamClient`: attempts follow the scripts of the request they belong to."""

    def __init__(self, run: LiveRun, replica: ReplicaId) -> None:
        self._run = run
        self._replica = replica

    def start(self, request: UpstreamRequest, receiver: CallReceiver) -> _ScriptedCall:
        fields = (*request.headers, *fields_of(request.lines))
        index = next(int(value[1:]) for name, value in fields if name == b"x-request-id")
        assert b"Bearer key" not in {value for _, value in fields}, "the client's key stays here"
        attempt = self._run.attempts[index]
        stream = b'"stream":true' in request.body
        script = self._run.scenario.script(index, attempt, self._replica, self._run.elapsed_s(), stream=stream)
        return _ScriptedCall(script, receiver, stream=stream)


class _ScriptedCall:
    """Implements `ports.UpstreamCall`."""

    def __init__(self, script: tuple[ScriptStep, ...], receiver: CallReceiver, *, stream: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._receiver = receiver
        self._stream = stream
        self._cancelled = False
        self._play(script, 0)

    def cancel(self) -> None:
        self._cancelled = True

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def _play(self, script: tuple[ScriptStep, ...], position: int) -> None:
        if position < len(script):
            self._loop.call_later(script[position].after_s, self._step, script, position)

    def _step(self, script: tuple[ScriptStep, ...], position: int) -> None:
        if self._cancelled:
            return
        self._perform(script[position])
        self._play(script, position + 1)

    def _perform(self, step: ScriptStep) -> None:
        receiver = self._receiver
        match step:
            case Connect():
                receiver.call_connected()
            case Respond():
                kind = b"text/event-stream" if self._stream else b"application/json"
                receiver.response_started(200, ((b"content-type", kind),))
            case Output():
                receiver.response_chunk(_event({"choices": [{"index": 0, "delta": {"content": step.text}, "finish_reason": None}]}))
            case Complete():
                self._complete(step)
            case Reject():
                wish = () if step.retry_after_s is None else ((b"retry-after", b"%d" % step.retry_after_s),)
                receiver.response_started(step.status, wish)
                receiver.response_chunk(step.body)
                receiver.response_ended()
            case ErrorEvent():
                receiver.response_chunk(_event({"error": {"message": step.message}}))
            case Break():
                receiver.call_failed(step.failure)
            case Cut():
                receiver.response_ended()

    def _complete(self, step: Complete) -> None:
        if self._stream:
            last = {"choices": [{"index": 0, "delta": {}, "finish_reason": step.finish_reason}]}
            tail = b""
            if step.usage is not None:
                usage = {"prompt_tokens": step.usage.prompt_tokens, "completion_tokens": step.usage.completion_tokens}
                tail = _event({"choices": [], "usage": usage})
            self._receiver.response_chunk(_event(last) + tail + b"data: [DONE]\n\n")
        else:
            self._receiver.response_chunk(step.whole_answer())
        self._receiver.response_ended()


def _event(content: object) -> bytes:
    return b"data: " + msgspec.json.encode(content) + b"\n\n"
