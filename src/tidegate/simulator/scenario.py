"""A scenario: who asks what and when, and how each attempt's upstream behaves. Data that both drivers can run.

Times of requests are seconds since the scenario's start; a step's `after_s` counts from the step before it (the first from the attempt).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from tidegate.domain.limits import LimitRule
from tidegate.domain.money import UnbilledColor
from tidegate.domain.principal import Principal
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import ReplicaId, UpstreamName
from tidegate.domain.upstream import Replica, Route
from tidegate.domain.usage import Usage
from tidegate.flow.facts import Policies
from tidegate.policy.billing.pricing import Pricing
from tidegate.policy.caching.off import look_up
from tidegate.policy.degradation.answers import Degradation, HeldAnswer
from tidegate.policy.degradation.class_health import ClassHealth, ClassSettings
from tidegate.policy.metering.counter import CounterSource
from tidegate.policy.metering.forecast import Forecast
from tidegate.policy.metering.limiter import Limiter
from tidegate.policy.metering.local_counters import LocalCounters
from tidegate.policy.resilience.ladder import Ladder
from tidegate.policy.resilience.leave import LeavePolicy
from tidegate.policy.resilience.retry import RetryPolicy
from tidegate.policy.resilience.retry_budget import RetryBudget
from tidegate.policy.routing.fleet import Fleet
from tidegate.policy.routing.router import ReadFeatures, Router, RouteSettings
from tidegate.policy.routing.routes import RouteTable
from tidegate.policy.routing.rules import Rule
from tidegate.policy.shaping.identity import shape
from tidegate.ports import CallFailure, RuleBook
from tidegate.wire.features import read_features


class Connect(msgspec.Struct, frozen=True, tag=True):
    """A connection is had."""

    after_s: float = 0.01


class Respond(msgspec.Struct, frozen=True, tag=True):
    """The status line of a success comes."""

    after_s: float = 0.05


class Output(msgspec.Struct, frozen=True, tag=True):
    """One piece of a stream with some output in it; `text` needs no escapes in JSON."""

    after_s: float = 0.02
    text: str = "word "


class Complete(msgspec.Struct, frozen=True, tag=True):
    """The answer, or the stream, ends as it should."""

    after_s: float = 0.02
    usage: Usage | None = Usage(prompt_tokens=12, completion_tokens=8)
    finish_reason: str = "stop"

    def whole_answer(self) -> bytes:
        """Give the body of a non-streaming answer."""
        usage = None
        if self.usage is not None:
            usage = {"prompt_tokens": self.usage.prompt_tokens, "completion_tokens": self.usage.completion_tokens}
        choice = {"index": 0, "message": {"role": "assistant", "content": "words"}, "finish_reason": self.finish_reason}
        vector = {"index": 0, "embedding": [0.5]}  # one body serves every operation
        return msgspec.json.encode({"id": "x", "choices": [choice], "data": [vector], "usage": usage})


class Reject(msgspec.Struct, frozen=True, tag=True):
    """The upstream answers with an error status."""

    status: int
    after_s: float = 0.05
    body: bytes = b'{"error":{"message":"no","type":"x","param":null,"code":"no"}}'
    retry_after_s: int | None = None


class ErrorEvent(msgspec.Struct, frozen=True, tag=True):
    """A stream with status 200 says in an event that it failed."""

    after_s: float = 0.02
    message: str = "the model failed"


class Break(msgspec.Struct, frozen=True, tag=True):
    """The connection fails."""

    failure: CallFailure
    after_s: float = 0.02


class Cut(msgspec.Struct, frozen=True, tag=True):
    """A stream's body ends in good HTTP order before its answer is finished."""

    after_s: float = 0.02


ScriptStep = Connect | Respond | Output | Complete | Reject | ErrorEvent | Break | Cut
Script = tuple[ScriptStep, ...]
"""After its last step an upstream is silent."""


Upstreams = Callable[[int, int, ReplicaId, float, bool], Script]
"""(request, attempt, replica, seconds since the start, stream) -> how that attempt goes: for upstreams that follow a schedule."""


class ScriptedRequest(msgspec.Struct, frozen=True):
    at_s: float
    body: bytes
    operation: Operation = Operation.CHAT
    credential: str = "key"
    calls: tuple[Script, ...] = ()
    """One script for each attempt; more attempts than scripts hang."""
    leaves_after_s: float | None = None
    counted_tokens: int | None = 20
    """What an exact count of the prompt gives; None: the counter is down."""
    path_argument: str = ""
    feature: str = ""
    session: str = ""
    color: str = ""


class HealthReport(msgspec.Struct, frozen=True):
    """A health check, here or on another node, has found a replica dead or alive."""

    at_s: float
    replica: ReplicaId
    alive: bool
    reason: str = ""
    doubted: bool = False


class Resilience(msgspec.Struct, frozen=True):
    """What a scenario configures beyond targets; everything is off, as in a configuration that says nothing."""

    ladders: dict[str, Ladder] = {}
    leave: dict[UpstreamName, LeavePolicy] = {}
    commit_after_s: float | None = None
    budget_ratio: float = 0.2
    budget_floor: int = 10
    holding: dict[str, HeldAnswer] = {}
    hold_for_s: float = 60.0
    rule_book: RuleBook | None = None
    hand_over: str = "Please ask a person."
    classes: dict[str, ClassSettings] = {}
    rules: tuple[Rule, ...] = ()
    settings: tuple[RouteSettings, ...] = ()
    read_features: ReadFeatures = read_features


class Scenario(msgspec.Struct, frozen=True):
    """A small world; `seed` fixes all randomness."""

    requests: tuple[ScriptedRequest, ...]
    principals: dict[str, Principal]
    replicas: tuple[Replica, ...]
    routes: tuple[Route, ...]
    listed_models: tuple[str, ...] = ("m",)
    retry: RetryPolicy = RetryPolicy()
    limit_rules: tuple[LimitRule, ...] = ()
    forecast: Forecast | None = None
    """One that learns nothing, so that the next run of the scenario is like this one."""
    pricing: Pricing | None = None
    unbilled: tuple[UnbilledColor, ...] = ()
    count_takes_s: float = 1 / 256
    lease_takes_s: float = 1 / 128
    """Until the next exchange with the store of shared limits is done."""
    drain_at_s: float | None = None
    seed: int = 7
    resilience: Resilience = Resilience()
    reports: tuple[HealthReport, ...] = ()
    upstreams: Upstreams | None = None
    """Where given, requests need no `calls`."""

    def script(self, request: int, attempt: int, replica: ReplicaId, at_s: float, *, stream: bool) -> Script:
        """Give how an attempt goes that starts at `at_s`."""
        if self.upstreams is not None:
            return self.upstreams(request, attempt, replica, at_s, stream)
        calls = self.requests[request].calls
        return calls[attempt - 1] if attempt <= len(calls) else ()

    def policies(
        self,
        *,
        shape: Callable[[ParsedRequest], ParsedRequest] = shape,
        look_up: Callable[[ParsedRequest], bytes | None] = look_up,
        counters: CounterSource | None = None,
    ) -> Policies:
        wanted = self.resilience
        return Policies(
            limits=Limiter(LocalCounters() if counters is None else counters, self.limit_rules),
            routes=RouteTable(self.routes, self.listed_models),
            fleet=Fleet(self.replicas),
            retry=self.retry,
            rng=Random(self.seed),  # noqa: S311  jitter, not a secret
            shape=shape,
            look_up=look_up,
            router=Router(self.routes, settings=wanted.settings, rules=wanted.rules, read_features=wanted.read_features),
            budget=RetryBudget(ratio=wanted.budget_ratio, floor=wanted.budget_floor),
            ladders=wanted.ladders,
            leave=wanted.leave,
            commit_after_s=wanted.commit_after_s,
            degradation=self._degradation(),
            forecast=self.forecast,
            pricing=self.pricing,
            unbilled=self.unbilled,
            classes=ClassHealth(wanted.classes) if wanted.classes else None,
        )

    def _degradation(self) -> Degradation | None:
        wanted = self.resilience
        if not wanted.holding and wanted.rule_book is None:
            return None
        return Degradation(wanted.holding, wanted.hold_for_s, wanted.rule_book, wanted.hand_over)
