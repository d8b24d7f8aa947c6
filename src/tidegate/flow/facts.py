"""What flows know and where they stand: the facts of a request, the policies it consults, the steps it waits in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from random import Random

import msgspec

from tidegate.domain.money import UnbilledColor
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import Secret, UpstreamName
from tidegate.domain.upstream import UpstreamFailure
from tidegate.domain.usage import Usage
from tidegate.policy.billing.pricing import Pricing
from tidegate.policy.degradation.answers import Degradation
from tidegate.policy.degradation.class_health import ClassHealth
from tidegate.policy.metering.coefficients import Coefficients
from tidegate.policy.metering.forecast import Forecast
from tidegate.policy.resilience.ladder import Ladder
from tidegate.policy.resilience.leave import LeavePolicy
from tidegate.policy.resilience.retry import RetryPolicy
from tidegate.policy.resilience.retry_budget import RetryBudget
from tidegate.policy.routing.fleet import Fleet
from tidegate.policy.routing.router import Router
from tidegate.policy.routing.routes import RouteTable
from tidegate.ports import Denied, LimitStore


class Policies(msgspec.Struct, frozen=True):
    """What every flow of one configuration decides with."""

    limits: LimitStore
    routes: RouteTable
    fleet: Fleet
    retry: RetryPolicy
    rng: Random
    shape: Callable[[ParsedRequest], ParsedRequest]
    look_up: Callable[[ParsedRequest], bytes | None]
    models_created_at: int = 0
    """The `created` of listed models: seconds since the epoch."""
    router: Router = msgspec.field(default_factory=Router)
    budget: RetryBudget = msgspec.field(default_factory=RetryBudget)
    ladders: Mapping[str, Ladder] = {}
    """By route pattern; a route that is not here has none."""
    leave: Mapping[UpstreamName, LeavePolicy] = {}
    """Upstreams whose calls outlive their client; those of all others are ended with it."""
    commit_after_s: float | None = None
    """A stream's response begins at the latest this long after its call; None: with the first output."""
    degradation: Degradation | None = None
    classes: ClassHealth | None = None
    forecast: Forecast | None = None
    """How many output tokens to hold; None: the client's cap, or a constant."""
    coefficients: Coefficients = msgspec.field(default_factory=Coefficients)
    pricing: Pricing | None = None
    """What calls cost; None: nothing has a price."""
    unbilled: Sequence[UnbilledColor] = ()


class RequestFacts(msgspec.Struct, frozen=True):
    """What is known when a request's head has been read."""

    request_id: str
    operation: Operation
    credential: Secret
    started_at: float
    """Seconds since the epoch, for the record only; decisions use `now`."""
    path_argument: str = ""
    """The model of `GET /v1/models/{model}`."""
    trace_id: str = ""
    client_retry: int = 0
    feature: str = ""
    """The business feature that the client named (`X-Business-Context`); chosen by the client, so never a metric label by itself."""
    session: str = ""
    """What ties the requests of one conversation together, for affinity; empty when nothing does."""
    color: str = ""
    """What the client called this traffic (`X-Tidegate-Color`)."""
    span_id: str = ""
    """Of this request's own span; the fields from here on are for its record."""
    parent_span_id: str = ""
    sampled: bool = False
    business_context: str = ""


class Step(StrEnum):
    """What the flow waits for."""

    AUTHENTICATION = "authentication"
    BODY = "body"
    LEASE = "lease"
    COUNT = "count"
    CALL = "call"
    OVER = "over"


class Phase(StrEnum):
    """Where a call is: without an attempt, in one whose output is held back, in one that the client sees, or at its end."""

    WAITING = "waiting"
    RUNNING = "running"
    COMMITTED = "committed"
    OVER = "over"


class CallResult(msgspec.Struct, frozen=True):
    """How the call ended. `failure` None: the client has a complete answer, or went away before it."""

    failure: UpstreamFailure | None
    committed: bool
    usage: Usage | None = None
    finish_reason: str | None = None
    output_bytes: int = 0
    denied: Denied | None = None
    """The limit that had nothing left: for any target, or, where the response has begun, for more output."""
