"""One worker's data plane: it gives every exchange a driver, and knows which are running.

Health paths are answered here, at once; everything else becomes a `RequestFlow`. `replace_services` changes the
configuration for requests to come; those that run keep the one they began with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import msgspec

from tidegate.domain.error_object import encode_error
from tidegate.domain.outcome import Outcome
from tidegate.domain.record import RequestRecord
from tidegate.domain.units import Headers
from tidegate.domain.upstream import ReplicaPhase
from tidegate.errors import MethodNotAllowed, TidegateError
from tidegate.flow.facts import Policies, RequestFacts
from tidegate.flow.request_flow import RequestFlow
from tidegate.gateway.authenticate import extract_credential
from tidegate.gateway.endpoints import HEALTH_PATHS, find_endpoint
from tidegate.gateway.owned_tasks import OwnedTasks
from tidegate.gateway.request_driver import RequestDriver
from tidegate.gateway.services import GatewayStatistics, Readiness, Services
from tidegate.ports import Exchange, ExchangeReceiver
from tidegate.wire.trace_context import clean_request_id, parse_traceparent

_JSON = (b"content-type", b"application/json")
_LARGEST_RETRY_COUNT = 99

FlowFactory = Callable[[RequestFacts, Policies], RequestFlow]


class Gateway:
    """Implements `ports.Application` by `application`, and `DriverOwner`."""

    def __init__(self, services: Services, *, clock: Callable[[], float], rng: Random, flow_factory: FlowFactory = RequestFlow) -> None:
        self.services = services
        self.clock = clock
        """The time of decisions: seconds of a monotonic clock that the loop's timers run by too, finer than the loop's own reading."""
        self.tasks = OwnedTasks()
        self.draining = False
        self._rng = rng
        self._flow_factory = flow_factory
        self._running: set[RequestDriver] = set()

    def __repr__(self) -> str:
        return f"Gateway(running={len(self._running)}, draining={self.draining})"

    def application(self, exchange: Exchange) -> ExchangeReceiver:
        head = exchange.head
        if head.path in HEALTH_PATHS and head.method in ("GET", "HEAD"):
            return self._answer_health(exchange)
        endpoint = find_endpoint(head.method, head.path)
        headers = dict(reversed(head.headers))  # the first of equal names wins
        request_id = clean_request_id(headers.get(b"x-request-id")) or f"req_{self._rng.getrandbits(96):024x}"
        if isinstance(endpoint, TidegateError):
            return self._refuse(exchange, endpoint, request_id)
        trace_id, traceparent = self._trace(headers.get(b"traceparent"))
        services = self.services
        facts = RequestFacts(
            request_id=request_id,
            operation=endpoint.operation,
            credential=extract_credential(head.headers),
            started_at=services.wall_clock(),
            path_argument=endpoint.argument,
            trace_id=trace_id,
            client_retry=_retry_count(headers.get(b"x-stainless-retry-count")),
        )
        flow = self._flow_factory(facts, services.policies)
        driver = RequestDriver(self, exchange, flow, services, traceparent, asyncio.get_running_loop())
        self._running.add(driver)
        driver.begin()
        return driver

    def _trace(self, header: bytes | None) -> tuple[str, bytes]:
        """Continue the caller's trace or begin one: give its id, and the `traceparent` of our span in it."""
        parent = parse_traceparent(header) if header is not None else None
        if parent is not None:
            return parent.trace_id, parent.child(f"{self._rng.getrandbits(64) | 1:016x}")
        drawn = f"{self._rng.getrandbits(192) | 1 << 64 | 1:048x}"  # neither id may be all zeros
        return drawn[:32], f"00-{drawn[:32]}-{drawn[32:]}-00".encode()

    def replace_services(self, services: Services) -> None:
        self.services = services

    def interrupt_all(self) -> int:
        """End every running request with an error that its client understands; give their number."""
        running = list(self._running)
        for driver in running:
            driver.interrupt()
        return len(running)

    def readiness(self) -> Readiness:
        statuses = self.services.policies.fleet.statistics(now=self.clock())
        usable = any(status.phase in _USABLE for status in statuses)
        status = "draining" if self.draining else "ready" if usable else "not_ready"
        return Readiness(status, {entry.upstream: entry for entry in statuses})

    def statistics(self) -> GatewayStatistics:
        return GatewayStatistics(len(self._running), len(self.tasks))

    async def aclose(self) -> None:
        self.interrupt_all()
        await self.tasks.aclose()

    def driver_finished(self, driver: RequestDriver) -> None:
        self._running.discard(driver)

    def _refuse(self, exchange: Exchange, error: TidegateError, request_id: str) -> ExchangeReceiver:
        """Answer a path or method that is not served; it leaves its record like any other request."""
        headers: Headers = (_JSON, (b"x-request-id", request_id.encode()))
        if isinstance(error, MethodNotAllowed):
            headers = (*headers, (b"allow", error.allow.encode()))
        exchange.respond(error.status, headers, encode_error(error))
        record = RequestRecord(
            request_id=request_id,
            started_at=self.services.wall_clock(),
            operation="none",
            outcome=Outcome.REJECTED_INVALID,
            status=error.status,
            duration_s=0.0,
            error_code=error.code,
            cause=error.message,
        )
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


class _Answered:
    """The receiver of an exchange that was answered at once."""

    def body_received(self, body: bytes) -> None: ...

    def body_refused(self, error: TidegateError) -> None: ...

    def client_left(self) -> None: ...

    def write_paused(self) -> None: ...

    def write_resumed(self) -> None: ...


def _retry_count(value: bytes | None) -> int:
    return min(int(value), _LARGEST_RETRY_COUNT) if value is not None and value.isdigit() and len(value) <= 2 else 0  # noqa: PLR2004
