"""A gateway in virtual time with one upstream and hand-made clients: tests say what the upstream sends, and when clients come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random

import msgspec

from tidegate.domain.principal import Principal
from tidegate.domain.record import RequestRecord
from tidegate.domain.request import ParsedRequest
from tidegate.domain.units import HeaderLines, Headers, KeyId, ModelName, ReplicaId, Secret, TenantId, UpstreamName, UserId
from tidegate.domain.upstream import Replica, Route, Target, Timeouts
from tidegate.errors import TidegateError, Unauthenticated
from tidegate.flow.facts import Policies, RequestFacts
from tidegate.flow.request_flow import RequestFlow
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.services import Services, UpstreamEndpoint
from tidegate.gateway.stream_settings import StreamSettings
from tidegate.policy.caching.off import look_up
from tidegate.policy.metering.limiter import Limiter
from tidegate.policy.metering.local_counters import LocalCounters
from tidegate.policy.resilience.leave import LeavePolicy
from tidegate.policy.resilience.retry import RetryPolicy
from tidegate.policy.routing.fleet import Fleet
from tidegate.policy.routing.routes import RouteTable
from tidegate.policy.shaping.identity import shape
from tidegate.ports import CallReceiver, ExchangeReceiver, RequestHead, TokenCount, UpstreamClient, UpstreamRequest
from tidegate.testing.header_fields import fields_of
from tidegate.testing.virtual_time import run_virtual
from tidegate.wire.dialects import DIALECTS

REPLICA = ReplicaId("up/0")
BODY = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}'
LONG = Timeouts(5.0, 600.0, 600.0, 600.0, 3600.0)
EPOCH_S = 1_700_000_000.0
FlowFactory = Callable[[RequestFacts, Policies], RequestFlow]


def principal(name: str) -> Principal:
    return Principal(KeyId(name), TenantId(name), UserId(name))


def event(text: str) -> bytes:
    return b"data: " + msgspec.json.encode({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}) + b"\n\n"


END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


class Client:
    """One request and its connection: implements `ports.Exchange`."""

    def __init__(self, key: str = "key", *, path: str = "/v1/chat/completions", body: bytes = BODY, headers: Headers = ()) -> None:
        self.head = RequestHead("POST", path, "", ((b"authorization", b"Bearer " + key.encode()), *headers), "127.0.0.1:1")
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.sent: list[bytes] = []
        self.finished = False
        self.aborted = False
        self.slow_after: int | None = None
        """Pieces after which the client reads no more, so that the server asks for a pause."""
        self._receiver: ExchangeReceiver | None = None
        self._body = body

    @property
    def over(self) -> bool:
        return self.finished or self.aborted

    @property
    def text(self) -> bytes:
        return b"".join(self.sent)

    @property
    def receiver(self) -> ExchangeReceiver:
        assert self._receiver is not None, "the client has called"
        return self._receiver

    def call(self, gateway: Gateway) -> None:
        self._receiver = gateway.application(self)

    def leave(self) -> None:
        self.receiver.client_left()

    def read_body(self) -> None:
        asyncio.get_running_loop().call_soon(lambda: self.receiver.body_received(self._body))

    def respond(self, status: int, headers: Headers, body: bytes, lines: HeaderLines = b"") -> None:
        assert not self.status, "one response per request"
        self.status, self.headers, self.finished = status, dict((*headers, *fields_of(lines))), True
        self.sent.append(body)

    def start(self, status: int, headers: Headers, lines: HeaderLines = b"") -> None:
        assert not self.status, "one response per request"
        self.status, self.headers = status, dict((*headers, *fields_of(lines)))

    def send(self, chunk: bytes) -> None:
        assert self.status, "the head comes first"
        assert not self.over, "nothing after the end"
        if chunk:
            self.sent.append(chunk)
        if self.slow_after is not None and len(self.sent) >= self.slow_after:
            self.receiver.write_paused()

    def finish(self) -> None:
        assert not self.over, "a response ends once"
        self.finished = True

    def abort(self) -> None:
        self.aborted = True


class Upstream:
    """Implements `ports.UpstreamClient` and `UpstreamCall`: keeps the last call's receiver for the test to feed."""

    def __init__(self) -> None:
        self.calls: list[UpstreamRequest] = []
        self._cancelled = False
        self._paused = False
        self._receiver: CallReceiver | None = None

    @property
    def receiver(self) -> CallReceiver:
        assert self._receiver is not None, "the upstream was called"
        return self._receiver

    def is_paused(self) -> bool:
        return self._paused

    def is_cancelled(self) -> bool:
        return self._cancelled

    def start(self, request: UpstreamRequest, receiver: CallReceiver) -> Upstream:
        self.calls.append(request)
        self._receiver = receiver
        self._cancelled = False
        return self

    def cancel(self) -> None:
        self._cancelled = True

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False

    # ── for tests ─────────────────────────────────────────────────────────────

    def answer(self, *chunks: bytes) -> None:
        """Begin a stream and send its first pieces."""
        self.receiver.call_connected()
        self.receiver.response_started(200, ((b"content-type", b"text/event-stream"),))
        self.send(*chunks)

    def send(self, *chunks: bytes) -> None:
        for chunk in chunks:
            self.receiver.response_chunk(chunk)

    def end(self) -> None:
        self.send(END)
        self.receiver.response_ended()


class OneGateway:
    """Implements the services; `records` are those of finished requests."""

    def __init__(
        self,
        settings: StreamSettings,
        *,
        flow_factory: FlowFactory = RequestFlow,
        worker: int = 0,
        peers: dict[int, UpstreamClient] | None = None,
        slow_verdicts: bool = False,
        leave: LeavePolicy | None = None,
        commit_after_s: float | None = None,
        timeouts: Timeouts = LONG,
    ) -> None:
        self.upstream = Upstream()
        self.records: list[RequestRecord] = []
        self.principals = {name: principal(name) for name in ("key", "other")}
        self.limits = Limiter(LocalCounters())
        self._slow_verdicts = slow_verdicts
        route = Route("m", (Target(UpstreamName("up"), ModelName("m")),))
        policies = Policies(
            limits=self.limits,
            routes=RouteTable((route,), ("m",)),
            fleet=Fleet([Replica(REPLICA, UpstreamName("up"), "openai", timeouts)]),
            retry=RetryPolicy(),
            rng=Random(1),
            shape=shape,
            look_up=look_up,
            leave={UpstreamName("up"): leave} if leave is not None else {},
            commit_after_s=commit_after_s,
        )
        endpoints = {REPLICA: UpstreamEndpoint(self.upstream, DIALECTS["openai"], b"")}
        self._loop = asyncio.get_running_loop()
        services = Services(policies, endpoints, self, self, self, wall_clock=lambda: EPOCH_S + self._loop.time(), streams=settings)
        self.gateway = Gateway(services, clock=self._loop.time, rng=Random(worker), flow_factory=flow_factory, worker=worker, peers=peers)

    async def call(self, client: Client) -> None:
        """Let a client call, and wait until its request has gone as far as it goes without the upstream."""
        client.call(self.gateway)
        await asyncio.sleep(0.001)

    def known(self, credential: Secret, *, now: float) -> Principal | TidegateError | None:
        del now
        return None if self._slow_verdicts else self._verdict(credential)

    async def verify(self, credential: Secret, *, now: float) -> Principal | TidegateError:
        del now
        await asyncio.sleep(0.0001)
        return self._verdict(credential)

    def _verdict(self, credential: Secret) -> Principal | TidegateError:
        return self.principals.get(credential.reveal(), Unauthenticated("No."))

    async def count(self, request: ParsedRequest, *, deadline_s: float) -> TokenCount:
        raise AssertionError((request, deadline_s, "nothing here has limits"))

    def record(self, record: RequestRecord) -> None:
        self.records.append(record)


def run(story: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run one story in virtual time; afterwards nothing may be left."""
    run_virtual(story())
