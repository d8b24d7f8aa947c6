"""One worker's data plane: it gives every exchange a driver, and knows which are running.

Health paths are answered here, at once; everything else becomes a `RequestFlow`. `replace_services` changes the
configuration for requests to come; those that run keep the one they began with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

import msgspec
from msgspec.structs import replace

from tidegate.domain.error_object import ANTHROPIC_PATHS, encode_anthropic_error, encode_error
from tidegate.domain.outcome import Outcome
from tidegate.domain.record import RequestRecord
from tidegate.domain.request import Operation
from tidegate.domain.units import Headers, ReplicaId
from tidegate.domain.upstream import ReplicaPhase, ReplicaStatus
from tidegate.errors import MethodNotAllowed, TidegateError
from tidegate.flow.facts import Policies, RequestFacts
from tidegate.flow.request_flow import RequestFlow
from tidegate.gateway.alarms import Alarms
from tidegate.gateway.audited import AuditedExchange
from tidegate.gateway.endpoints import HEALTH_PATHS, find_endpoint
from tidegate.gateway.owned_tasks import OwnedTasks
from tidegate.gateway.request_context import RequestContext, read_context
from tidegate.gateway.request_driver import RequestDriver
from tidegate.gateway.resumable import ResumableStream, ResumableStreams
from tidegate.gateway.resumption import Resumption
from tidegate.gateway.services import Services
from tidegate.gateway.statistics import GatewayStatistics, Readiness
from tidegate.ports import Exchange, ExchangeReceiver, UpstreamClient
from tidegate.wire.trace_context import is_in_share

_JSON = (b"content-type", b"application/json")
_NO_ZEROS: Final = 1 << 160 | 1 << 96
"""In the random bits of a trace, a span and a request: the ids of the first two may not be all zeros."""
_REQUEST_ID: Final = "req_"
_NO_OPERATION: Final = "none"
"""In the record of what asked for nothing that is served."""
_STREAMED = frozenset({Operation.CHAT, Operation.COMPLETION})

FlowFactory = Callable[[RequestFacts, Policies], RequestFlow]


class Gateway:
    """Implements `ports.Application` by `application`."""

    def __init__(
        self,
        services: Services,
        *,
        clock: Callable[[], float],
        rng: Random,
        flow_factory: FlowFactory = RequestFlow,
        worker: int = 0,
        peers: Mapping[int, UpstreamClient] | None = None,
    ) -> None:
        self.services = services
        self.clock = clock
        """The time of decisions: seconds of a monotonic clock that the loop's timers run by too, finer than the loop's own reading."""
        self.tasks = OwnedTasks()
        self.alarms = Alarms()
        self.draining = False
        self._rng = rng
        self._flow_factory = flow_factory
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: set[RequestDriver] = set()
        self.streams = ResumableStreams(worker, rng)
        self.heartbeats = 0
        self._peers = peers if peers is not None else {}

    def __repr__(self) -> str:
        return f"Gateway(running={len(self._running)}, draining={self.draining})"

    def application(self, exchange: Exchange) -> ExchangeReceiver:
        head = exchange.head
        context = head.notes.derived
        if not isinstance(context, RequestContext):
            if head.path in HEALTH_PATHS and head.method in ("GET", "HEAD"):
                return self._answer_health(exchange)
            context = head.notes.derived = read_context(head.headers, find_endpoint(head.method, head.path))
        services, parent = self.services, context.parent
        drawn = (self._rng.getrandbits(288) | _NO_ZEROS).to_bytes(36).hex()
        span_id = drawn[32:48]
        if parent is None:
            trace_id, parent_span_id, sampled = drawn[:32], "", is_in_share(drawn, services.trace_threshold)
            traceparent = ("00-" + trace_id + "-" + span_id + ("-01" if sampled else "-00")).encode()
        else:
            trace_id, parent_span_id, sampled, traceparent = parent.trace_id, parent.parent_id, parent.sampled, parent.child(span_id)
        request_id, endpoint = context.request_id or _REQUEST_ID + drawn[48:], context.endpoint
        if isinstance(endpoint, TidegateError):
            record = _unserved(context, endpoint, request_id, services.wall_clock())
            record = replace(record, trace_id=trace_id, span_id=span_id, parent_span_id=parent_span_id, sampled=sampled)
            return self._refuse(exchange, endpoint, record, traceparent)
        facts = RequestFacts(
            request_id=request_id,
            operation=endpoint.operation,
            credential=context.credential,
            started_at=services.wall_clock(),
            path_argument=endpoint.argument,
            trace_id=trace_id,
            client_retry=context.client_retry,
            feature=context.feature,
            session=context.session,
            color=context.color,
            span_id=span_id,
            parent_span_id=parent_span_id,
            sampled=sampled,
            business_context=context.business_context,
        )
        if context.resumable or context.resume_point is not None:
            receiver = self._resumable(exchange, context, facts, services, traceparent)
            if receiver is not None:
                return receiver
        driver = self._driver(exchange, context, facts, services, traceparent)
        driver.begin()
        return driver

    def _driver(
        self, exchange: Exchange, context: RequestContext, facts: RequestFacts, services: Services, traceparent: bytes
    ) -> RequestDriver:
        flow = self._flow_factory(facts, services.policies)
        audited = None if services.auditor is None else AuditedExchange(exchange, flow, services.auditor)
        loop = self._loop
        if loop is None:  # asked for once: the question is a system call, until Python 3.12
            loop = self._loop = asyncio.get_running_loop()
        driver = RequestDriver(self, audited or exchange, flow, services, context.to_upstream, traceparent, loop, audited)
        self._running.add(driver)
        return driver

    def _resumable(
        self, exchange: Exchange, context: RequestContext, facts: RequestFacts, services: Services, traceparent: bytes
    ) -> ExchangeReceiver | None:
        """Serve a client that returns for its stream, or one that may want to; None: it is like any other."""
        if not services.streams.resumable or facts.operation not in _STREAMED:
            return None
        if context.resume_point is not None:
            resumption = Resumption(self, exchange, context.resume_point, facts, services, traceparent)
            resumption.begin()
            return resumption
        stream = ResumableStream(self.streams, exchange, services.streams, asyncio.get_running_loop())
        driver = self._driver(stream, context, facts, services, traceparent)
        subscriber = stream.begin(driver)
        driver.begin()
        return subscriber

    def peer(self, worker: int) -> UpstreamClient | None:
        return self._peers.get(worker)

    def begin_drain(self) -> None:
        """Say not ready from now on. No client can return for its stream any more: those that wait for one end."""
        self.draining = True
        self.streams.close()

    def replace_services(self, services: Services) -> None:
        self.services = services

    def uses(self, policies: Policies) -> bool:
        """Tell whether a request of that configuration still runs: it may yet call its upstreams, whatever it waits for now."""
        return any(driver.uses(policies) for driver in self._running)

    def interrupt_all(self) -> int:
        """End every running request with an error that its client understands; give their number."""
        running = list(self._running)
        for driver in running:
            driver.interrupt()
        return len(running)

    def replica_lost(self, replica: ReplicaId, reason: str) -> int:
        """Tell the requests whose current attempt is on a replica that it is dead; give their number."""
        return sum([driver.replica_lost(replica, reason) for driver in list(self._running)])

    def readiness(self) -> Readiness:
        statuses = self.services.policies.fleet.statistics(now=self.clock())
        usable = any(each.phase in _USABLE for each in statuses)
        status = "draining" if self.draining else "ready" if usable else "not_ready"
        upstreams: dict[str, list[ReplicaStatus]] = {}
        for each in statuses:
            upstreams.setdefault(each.upstream, []).append(each)
        return Readiness(status, upstreams)

    def statistics(self) -> GatewayStatistics:
        return GatewayStatistics(len(self._running), len(self.tasks), self.streams.statistics(heartbeats=self.heartbeats))

    async def aclose(self) -> None:
        self.streams.close()
        self.interrupt_all()
        await self.tasks.aclose()

    def driver_finished(self, driver: RequestDriver) -> None:
        self._running.discard(driver)

    def _refuse(self, exchange: Exchange, error: TidegateError, record: RequestRecord, traceparent: bytes) -> ExchangeReceiver:
        """Answer a path or method that is not served; it leaves its record like any other request."""
        headers: Headers = (_JSON, (b"x-request-id", record.request_id.encode()), (b"traceparent", traceparent))
        if isinstance(error, MethodNotAllowed):
            headers = (*headers, (b"allow", error.allow.encode()))
        anthropic = exchange.head.path.startswith(ANTHROPIC_PATHS)
        exchange.respond(error.status, headers, encode_anthropic_error(error) if anthropic else encode_error(error))
        self.services.recorder.record(record)
        return _Answered()

    def _answer_health(self, exchange: Exchange) -> ExchangeReceiver:
        if exchange.head.path == "/livez":
            exchange.respond(200, (_JSON,), b'{"status":"alive"}')
        else:
            readiness = self.readiness()
            exchange.respond(200 if readiness.ready else 503, (_JSON,), msgspec.json.encode(readiness.without_causes()))
        return _Answered()


_USABLE = frozenset({ReplicaPhase.READY, ReplicaPhase.UNUSED})


def _unserved(context: RequestContext, error: TidegateError, request_id: str, started_at: float) -> RequestRecord:
    """Give the record of a request to a path or method that is not served, but for its trace."""
    return RequestRecord(
        request_id=request_id,
        started_at=started_at,
        operation=_NO_OPERATION,
        outcome=Outcome.REJECTED_INVALID,
        status=error.status,
        duration_s=0.0,
        error_code=error.code,
        cause=error.message,
        feature=context.feature,
        color=context.color,
        client_retry=context.client_retry,
        business_context=context.business_context,
    )


class _Answered:
    """The receiver of an exchange that was answered at once."""

    def body_received(self, body: bytes) -> None: ...

    def body_refused(self, error: TidegateError) -> None: ...

    def client_left(self) -> None: ...

    def write_paused(self) -> None: ...

    def write_resumed(self) -> None: ...
