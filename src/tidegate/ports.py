"""The interfaces between decisions and the world, as Protocols over domain types.

Receivers are called from the event loop's thread, synchronously, one call at a time; an implementation never
awaits inside one. Each Protocol says which call is the last.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Protocol

import msgspec

from tidegate.domain.audit import AuditPolicy
from tidegate.domain.demand import Demand
from tidegate.domain.limits import CounterSpec, LimitSubject, Meter, Resource
from tidegate.domain.principal import Limits, Principal
from tidegate.domain.record import RequestRecord
from tidegate.domain.request import ParsedRequest
from tidegate.domain.units import HeaderLines, Headers, Secret, TenantId
from tidegate.errors import TidegateError

# ── the client's side ─────────────────────────────────────────────────────────


class HeadNotes:
    """What the application has worked out of a request's head, to be found again with the next head that differs in nothing but its
    content-length. Only what follows from the head alone may stand here; the server decides how long it is kept."""

    __slots__ = ("derived",)

    def __init__(self) -> None:
        self.derived: object = None


class RequestHead(msgspec.Struct, frozen=True):
    """The head of a client's request; `path` is percent-decoded without the query, header names are lower case."""

    method: str
    path: str
    query: str
    headers: Headers
    peer: str
    """The client's address, `host:port`."""
    notes: HeadNotes = msgspec.field(default_factory=HeadNotes)


class ExchangeReceiver(Protocol):
    """What the server tells about one exchange. `client_left` may come at any time and is the last call."""

    def body_received(self, body: bytes) -> None:
        """Deliver the whole body, once, after `Exchange.read_body`."""

    def body_refused(self, error: TidegateError) -> None:
        """The body cannot be had: too large, too slow or malformed. Answer with the error; the connection closes after it."""

    def client_left(self) -> None:
        """The client closed (or stopped reading for too long) before the response was complete."""

    def write_paused(self) -> None:
        """The client reads more slowly than we send: stop reading from the upstream."""

    def write_resumed(self) -> None: ...


class Exchange(Protocol):
    """One request and its response on a server connection. Call either `respond`, or `start`, `send` …, `finish`."""

    head: RequestHead

    def read_body(self) -> None:
        """Accept the body (sends `100 Continue` if expected); leads to `body_received` or `body_refused`."""

    def respond(self, status: int, headers: Headers, body: bytes, lines: HeaderLines = b"") -> None:
        """Send a whole response, with the fields of `headers` and then of `lines`. `content-length`, `date` and `connection` are added."""

    def start(self, status: int, headers: Headers, lines: HeaderLines = b"") -> None:
        """Send the head of a response whose length is not known."""

    def send(self, chunk: bytes) -> None:
        """Send one piece; never blocks. Heed `write_paused`."""

    def finish(self) -> None:
        """End the response begun with `start`."""

    def abort(self) -> None:
        """Close the connection at once, so that the client sees a broken response."""


Application = Callable[[Exchange], ExchangeReceiver]
"""Called when a request's head is complete; returns who receives the rest."""

# ── the upstream's side ───────────────────────────────────────────────────────


class UpstreamRequest(msgspec.Struct, frozen=True):
    """One HTTP request to an upstream. `path` follows the pool's base URL; headers lack host and content-length."""

    method: str
    path: str
    headers: Headers
    body: bytes
    lines: HeaderLines = b""
    """More header fields, which follow `headers`."""


class CallFailureKind(StrEnum):
    POOL_FULL = "pool_full"
    DNS = "dns"
    CONNECT = "connect"
    TLS = "tls"
    PROXY = "proxy"
    RESET = "reset"
    """The connection died before the answer was complete."""
    PROTOCOL = "protocol"
    """The answer is not HTTP."""
    TOO_LARGE = "too_large"


class CallFailure(msgspec.Struct, frozen=True):
    """Why no complete answer came; `message` names the address and the cause, never a header or a body."""

    kind: CallFailureKind
    message: str


class CallReceiver(Protocol):
    """What a call tells. Ends with exactly one of `response_ended` and `call_failed`; neither after `cancel()`."""

    def call_connected(self) -> None:
        """A connection is assigned and the request is being sent."""

    def response_started(self, status: int, headers: Headers) -> None: ...

    def response_chunk(self, chunk: bytes) -> None:
        """Some bytes of the body, as they came off the socket."""

    def response_ended(self) -> None: ...

    def call_failed(self, failure: CallFailure) -> None: ...


class UpstreamCall(Protocol):
    def cancel(self) -> None:
        """Close the call's socket at once; safe to repeat, safe after the end."""

    def pause(self) -> None:
        """Stop reading from the socket until `resume`."""

    def resume(self) -> None: ...


class UpstreamClient(Protocol):
    """The connection pool of one upstream."""

    def start(self, request: UpstreamRequest, receiver: CallReceiver) -> UpstreamCall: ...


# ── gates, stores and services ────────────────────────────────────────────────


class Denied(msgspec.Struct, frozen=True):
    """A refusal by a limit, with what the client needs to know. `retry_after_s` None: it can never fit."""

    rule: str
    resource: Resource
    ceiling: int
    remaining: int
    requested: int
    retry_after_s: float | None
    whose: str = "this key"
    """Whose limit it is, in words for people: `tenant acme`."""
    spec: CounterSpec = CounterSpec(Meter.SLIDING, 1)
    """How the limit counts."""


class Short(msgspec.Struct, frozen=True):
    """This process may not use as much as is asked for without asking the store, and has asked.

    Wait for the next exchange with it, then ask again; whoever does not want to wait any more is `denied`.
    """

    denied: Denied


class WindowState(msgspec.Struct, frozen=True, gc=False):
    """One limit after the last operation: for `x-ratelimit-*` and `RateLimit`."""

    ceiling: int
    remaining: int
    reset_s: float
    """Seconds until nothing of it is in use if nothing more is used."""
    rule: str = ""
    span_s: int = 60


class LimitState(msgspec.Struct, frozen=True, gc=False):
    """Where a caller stands: of all limits on requests and on tokens the one with the least left, and all of them."""

    requests: WindowState | None
    tokens: WindowState | None
    windows: tuple[WindowState, ...] = ()


class LimitStore(Protocol):
    """All limits. All-or-nothing: a refusal consumes nothing. Never waits: a shared store hands out leases in advance."""

    def admit(self, subject: LimitSubject, limits: Limits, *, now: float) -> Permit | Denied | Short:
        """Take a place and a request under every rule that matches, and under the key's own `limits`."""

    def state(self, subject: LimitSubject, limits: Limits, *, now: float) -> LimitState:
        """Give what is left, for response headers."""

    def statistics(self, *, now: float) -> LimitStatistics: ...


class Permit(Protocol):
    """An admitted request. Ended exactly once, by `settle` (it used something) or `cancel` (it did nothing, its request is given back)."""

    def reserve(self, demand: Demand, *, now: float) -> Denied | Short | None:
        """Hold what this request may use; at most once successfully."""

    def move(self, demand: Demand, *, now: float) -> Denied | None:
        """Hold `demand` instead of what is held: never both. A refusal leaves what is held.

        What only an exchange with a store could still grant is let go on, and charged at the end: no stream is cut for want of an answer.
        """

    def remaining_tokens(self, *, now: float) -> int | None:
        """Tokens left for a prompt under all rules; None without a ceiling."""

    def ceiling_tokens(self) -> int | None:
        """The most tokens that any request could ever hold; None without a ceiling."""

    def ceiling_output_tokens(self) -> int | None:
        """The most output that any request could ever hold, whatever its prompt; None without a ceiling of its own."""

    def state(self, *, now: float) -> LimitState:
        """Give what is left of the limits that it is under, for response headers."""

    def settle(self, used: Demand, *, now: float) -> None: ...

    def cancel(self, *, now: float) -> None: ...


class LeaseKeeper(Protocol):
    """Keeps what this process may use of limits that it shares."""

    def replenished(self, *, deadline_s: float) -> Awaitable[None]:
        """Wait until the next exchange with the store is done, or the time is up."""


class RuleStatistics(msgspec.Struct, frozen=True):
    """What one rule did since the start."""

    rule: str
    denied: int = 0
    """Requests that it refused."""
    would_deny: int = 0
    """Requests that it would have refused, were it not in shadow mode."""


class LimitStatistics(msgspec.Struct, frozen=True):
    counters: int
    """That are in use, or held."""
    outstanding: int
    """Permits not yet ended."""
    held_tokens: int
    rules: tuple[RuleStatistics, ...] = ()
    shared: int = 0
    """How often a name had to share a counter with others, because its rule had too many."""


class ForecastStatistics(msgspec.Struct, frozen=True):
    """What became of the promise: of the `foreseen` answers, those that something could be said about, `exceeded` were longer."""

    groups: int
    foreseen: int
    exceeded: int


class TokenCount(msgspec.Struct, frozen=True):
    """An exact count, or the best stated approximation (`exact` False)."""

    prompt_tokens: int
    tokenizer: str
    exact: bool
    tokens: tuple[int, ...] | None = None
    """Token ids, when asked for and known."""
    counted: bool = True
    """False: nobody could count, and the figure is a guess from the size."""


class TokenCounter(Protocol):
    """Counts with the model's own tokenizer, away from the event loop."""

    async def count(self, request: ParsedRequest, *, deadline_s: float) -> TokenCount: ...


class RuleBook(Protocol):
    """Fixed answers to known questions, for when no model can answer. Decides from memory and in bounded time; never raises."""

    def decide(self, question: str, feature: str) -> str | None:
        """Give the answer to a question that comes from a business feature (empty: not named); None when it is not known."""


class CostKeeper(Protocol):
    """Enters in the books what running requests may come to cost; what they did cost is taken from their records. Never blocks."""

    def hold(self, request_id: str, started_at: float, tenant: TenantId, cost_micro: int, *, at: float) -> None:
        """Hold an amount in place of what was held before for this request. Instants are seconds since the epoch."""


class Recorder(Protocol):
    """Takes finished records; never blocks. A record that cannot be kept is counted as dropped."""

    def record(self, record: RequestRecord) -> None: ...


class AuditedBodies(msgspec.Struct, frozen=True):
    """The bodies of one request, as they came and went."""

    request_id: str
    started_at: float
    operation: str
    policy: AuditPolicy
    request: bytes
    status: int
    """Of the response; 0 when the client left before one was sent."""
    answer: bytes | None
    """Whole, or the beginning of a stream; None without a response."""
    answer_bytes: int
    """Of the whole of it."""
    answer_sha256: str
    """Likewise, where `answer` is only its beginning; else empty."""
    is_stream: bool


class Auditor(Protocol):
    """Keeps bodies by policy; never blocks. What it cannot keep is counted as dropped."""

    max_body_bytes: int
    """Of a body no more than this is kept."""

    def policy(self, tenant: str, route: str) -> AuditPolicy:
        """Decide how bodies of these are kept; of `OFF` ones none may be handed over."""

    def set_aside(self, size: int) -> bool:
        """Take room for a stream that still runs; False when there is none."""

    def give_back(self, size: int) -> None:
        """Let go of room that nothing will be put into."""

    def keep(self, bodies: AuditedBodies, *, set_aside: int) -> None:
        """Keep these; `set_aside` is the room that was taken for them before."""


class Authenticator(Protocol):
    """Turns a bearer credential into a principal, or says why not: always one generic 401, whatever the cause."""

    def known(self, credential: Secret, *, now: float) -> Principal | TidegateError | None:
        """Answer from memory; None when only `verify` can tell."""

    async def verify(self, credential: Secret, *, now: float) -> Principal | TidegateError: ...
