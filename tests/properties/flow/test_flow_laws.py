"""The laws of flows (docs/design.md), over random worlds run in the simulator."""

from __future__ import annotations

from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.domain.limits import CounterSpec, LimitRule, LimitSubject, Meter, Resource
from tidegate.domain.money import Price, PriceBook, PriceEntry, PriceTier
from tidegate.domain.outcome import Outcome
from tidegate.domain.principal import Limits, Principal
from tidegate.domain.request import Operation
from tidegate.domain.units import KeyId, ModelName, ReplicaId, Secret, TenantId, UpstreamName, UserId
from tidegate.domain.upstream import FailureScope, Replica, Route, Target, Timeouts, UpstreamFailure
from tidegate.errors import InvalidJson, Unauthenticated
from tidegate.flow.actions import (
    Action,
    Answer,
    CancelAttempt,
    Detach,
    EndStream,
    Finish,
    HoldCost,
    InterruptStream,
    Relay,
    Reply,
    SendError,
    StartAttempt,
    TruncateStream,
)
from tidegate.flow.events import (
    AttemptCompleted,
    AttemptFailed,
    Authenticated,
    AuthenticationRefused,
    BodyReceived,
    BodyRefused,
    ClientLeft,
    DrainExpired,
    DriverFailed,
    Event,
    LeaseAnswered,
    OutputReached,
    OutputStarted,
    ReplicaLost,
    TokensCounted,
)
from tidegate.flow.facts import RequestFacts
from tidegate.flow.request_flow import RequestFlow
from tidegate.policy.billing.pricing import Pricing
from tidegate.policy.degradation.answers import HeldAnswer
from tidegate.policy.degradation.class_health import ClassSettings
from tidegate.policy.metering.forecast import FixedForecast
from tidegate.policy.metering.limiter import counter_name
from tidegate.policy.metering.local_counters import LocalCounters
from tidegate.policy.resilience.ladder import Ladder
from tidegate.policy.resilience.leave import LeavePolicy
from tidegate.ports import CallFailure, CallFailureKind, TokenCount
from tidegate.simulator.driver import Simulation, TracedAction, simulate
from tidegate.simulator.scenario import (
    Break,
    Complete,
    Connect,
    Cut,
    ErrorEvent,
    HealthReport,
    Output,
    Reject,
    Resilience,
    Respond,
    Scenario,
    ScriptedRequest,
    ScriptStep,
)

BODIES = {
    Operation.CHAT: (
        b'{"model":"m","messages":[{"role":"user","content":"hello"}],"stream":true}',
        b'{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":100}',
        b'{"model":"unknown","messages":[{"role":"user","content":"hello"}]}',
        b"not json",
    ),
    Operation.EMBEDDING: (b'{"model":"m","input":"hello"}',),
    Operation.TOKENIZE: (b'{"model":"m","prompt":"hello"}',),
    Operation.COUNT_MESSAGES: (b'{"model":"m","messages":[{"role":"user","content":"hello"}]}', b'{"model":"m","messages":[]}'),
    Operation.COUNT_RESPONSES: (b'{"model":"m","input":"hello"}', b'{"model":"m","input":7}'),
    Operation.ESTIMATE: (b'{"model":"m","messages":[{"role":"user","content":"hello"}],"stream":true}',),
    Operation.MODELS: (b"",),
}
CLOCKS = Timeouts(connect_s=1.0, first_byte_s=2.0, first_token_s=3.0, stall_s=1.5, total_s=8.0)

PRICES = Pricing(
    PriceBook("1", "EUR", tuple(PriceEntry(name, "*", Price((PriceTier(10**6, rate * 10**6),))) for name, rate in (("a", 1), ("b", 3))))
)
ALL_TOKENS = LimitRule("all", Resource.TOKENS, CounterSpec(Meter.CALENDAR, 10**9))
BUDGET = LimitRule("budget", Resource.COST, CounterSpec(Meter.CALENDAR, 2000))

delays = st.integers(0, 128).map(lambda ticks: ticks / 64)
quick = st.integers(0, 32).map(lambda ticks: ticks / 64)
"""Within `connect_s` and `first_byte_s`: most attempts shall come to an answer. What is rare stands last or at the top of its range, since
hypothesis tries the least values first."""
texts = st.sampled_from(["word ", "x" * 400, *["x" * 4000] * 3])
"""One token, fifty, five hundred: beside limits of hundreds, and a forecast of twenty."""
resets = st.builds(Break, st.just(CallFailure(CallFailureKind.RESET, "reset")), delays)
endings: st.SearchStrategy[ScriptStep] = st.one_of(
    st.builds(Complete, quick),
    st.builds(Complete, quick, st.none()),
    st.builds(Complete, delays),
    resets,
    st.builds(Cut, delays),
    st.builds(ErrorEvent, delays),
)


@st.composite
def scripts(draw: st.DrawFn) -> tuple[ScriptStep, ...]:
    """An attempt as HTTP allows it: connect, then an answer or a refusal; it may end, break or fall silent at any point."""
    script: list[ScriptStep] = []
    if draw(st.integers(0, 9)) == 9:
        return tuple(draw(st.lists(resets, max_size=1)))
    script.append(Connect(draw(quick)))
    if draw(st.integers(0, 3)) == 3:
        status = draw(st.sampled_from([400, 401, 404, 429, 500, 503]))
        return (*script, Reject(status, draw(delays), retry_after_s=draw(st.none() | st.integers(1, 9))))
    script.append(Respond(draw(quick)))
    script += draw(st.lists(st.builds(Output, delays, texts), max_size=3))
    if draw(st.integers(0, 4)) == 4:
        return tuple(script)  # silent from here on
    return (*script, draw(endings))


@st.composite
def requests(draw: st.DrawFn) -> ScriptedRequest:
    operation = draw(st.sampled_from([Operation.CHAT] * 5 + list(BODIES)))
    body = draw(st.sampled_from((*BODIES[operation][:2] * 3, *BODIES[operation])))
    streams = b'"stream":true' in body
    calls = draw(st.lists(scripts(), min_size=1, max_size=4))
    if not streams:  # a whole answer has no pieces and no error events
        calls = [tuple(step for step in call if not isinstance(step, Output | ErrorEvent | Cut)) for call in calls]
    return ScriptedRequest(
        at_s=draw(st.integers(0, 640)) / 64,
        body=body,
        operation=operation,
        credential=draw(st.sampled_from([*["key"] * 8, "other", "wrong"])),
        calls=tuple(calls),
        leaves_after_s=draw(st.none() | delays | delays.map(lambda delay: delay * 4)),
        counted_tokens=draw(st.none() | st.integers(1, 50)),
    )


@st.composite
def worlds(draw: st.DrawFn) -> Scenario:
    limits = Limits(
        tokens_per_minute=draw(st.none() | st.integers(50, 3000)),
        requests_per_minute=draw(st.none() | st.integers(1, 6)),
        concurrency=draw(st.none() | st.integers(1, 3)),
    )
    principals = {
        name: Principal(KeyId(name), TenantId("t"), UserId("u"), limits=limits, models=draw(st.sampled_from([*[("*",)] * 7, ("x*",)])))
        for name in ("key", "other")
    }
    replicas = (
        Replica(ReplicaId("a/0"), UpstreamName("a"), "vllm", CLOCKS),
        Replica(ReplicaId("a/1"), UpstreamName("a"), "vllm", CLOCKS),
        Replica(ReplicaId("b/0"), UpstreamName("b"), "llamacpp", CLOCKS),
    )
    route = Route("m", (Target(UpstreamName("a")), Target(UpstreamName("b"), ModelName("small"))))
    priced = draw(st.integers(0, 2)) == 2
    return Scenario(
        requests=tuple(draw(st.lists(requests(), min_size=2, max_size=6))),
        principals=principals,
        replicas=replicas[draw(st.integers(0, 2)) :],
        routes=(route,),
        drain_at_s=draw(st.none() | delays.map(lambda delay: delay * 8)),
        seed=draw(st.integers(0, 1000)),
        resilience=draw(resiliences()),
        reports=tuple(draw(st.lists(reports, max_size=3))),
        forecast=draw(st.sampled_from([FixedForecast(20, heeds_cap=False), None])),
        limit_rules=(BUDGET,) if priced else (),
        pricing=PRICES if priced else None,
    )


reports = st.builds(HealthReport, delays.map(lambda delay: delay * 5), st.sampled_from(["a/0", "b/0"]).map(ReplicaId), st.booleans())


@st.composite
def resiliences(draw: st.DrawFn) -> Resilience:
    """A quarter of the worlds configure nothing; the others some of what there is."""
    if draw(st.integers(0, 3)) == 3:
        return Resilience()
    keep = LeavePolicy(draw(st.none() | delays))
    smaller = Target(UpstreamName("b"), ModelName("tiny"))
    return Resilience(
        ladders=draw(st.sampled_from([{}, {"m": Ladder(smaller=smaller)}, {"m": Ladder()}])),
        leave=draw(st.sampled_from([{UpstreamName("a"): keep}, {}])),
        commit_after_s=draw(st.none() | st.integers(1, 64).map(lambda ticks: ticks / 16)),
        budget_floor=draw(st.sampled_from([0, 10])),
        holding=draw(st.sampled_from([{}, {"default": HeldAnswer("One moment.")}])),
        classes=draw(st.sampled_from([{}, {"m": ClassSettings(smaller, min_calls=1)}])),
    )


class _CoarseRandom(Random):
    """Draws whole 1024ths, so that sums of times are exact whatever the epoch."""

    def uniform(self, a: float, b: float) -> float:
        return int(super().uniform(a, b) * 1024) / 1024


def _run(world: Scenario, *, epoch: float = 0.0, simulation: type[Simulation] = Simulation) -> list[TracedAction]:
    policies = msgspec.structs.replace(world.policies(), rng=_CoarseRandom(world.seed))
    return simulation(world, policies=policies, epoch=epoch).run()


def _of(trace: list[TracedAction], request: int) -> list[Action]:
    return [entry.action for entry in trace if entry.request == request]


def _plain(trace: list[TracedAction]) -> list[tuple[float, int, object]]:
    rows: list[tuple[float, int, object]] = []
    for entry in trace:
        action = entry.action
        what: object = action
        if isinstance(action, Finish):
            record = action.record
            what = (record.outcome, record.status, record.usage, round(record.duration_s, 6), record.reserved_tokens, len(record.attempts))
        elif isinstance(action, SendError | InterruptStream):
            error = action.error
            what = (type(error), error.message, None if error.retry_after_s is None else round(error.retry_after_s, 6))
        rows.append((round(entry.at_s, 6), entry.request, what))
    return rows


def test_the_drawn_worlds_hold_what_the_laws_speak_of() -> None:
    """Without streams, their ends, whole answers and clients that leave a kept call, the laws below would hold of nothing."""
    missing: set[type[Action]] = {Relay, EndStream, InterruptStream, TruncateStream, Detach, Reply, Answer, SendError, CancelAttempt}

    # What is drawn depends on the modules that are loaded: hence more worlds than one order of the tests needs.
    @settings(derandomize=True, database=None, max_examples=400)
    @given(worlds())
    def meet(world: Scenario) -> None:
        if missing:
            missing.difference_update(type(entry.action) for entry in simulate(world))

    meet()
    assert missing == set()


@given(worlds())
def test_every_request_finishes_once_and_nothing_follows(world: Scenario) -> None:
    """Law: one `Finish`, and it is the last action."""
    trace = simulate(world)
    for index in range(len(world.requests)):
        actions = _of(trace, index)
        assert [type(action) for action in actions].count(Finish) == 1
        assert isinstance(actions[-1], Finish)


@given(worlds())
def test_every_permit_and_every_attempt_is_ended(world: Scenario) -> None:
    """Law: after the last event nothing is outstanding: no permit, no held token, no call in flight."""
    simulation = Simulation(world)
    simulation.run()
    limits = simulation.policies.limits.statistics(now=simulation.now)
    assert (0, 0) == (limits.outstanding, limits.held_tokens)
    assert all(status.in_flight == 0 for status in simulation.policies.fleet.statistics(now=simulation.now))


@given(worlds())
def test_no_attempt_starts_after_the_commit_point(world: Scenario) -> None:
    """Law: once output went downstream there is no second try, and the client gets exactly one response."""
    trace = simulate(world)
    for index, request in enumerate(world.requests):
        actions = _of(trace, index)
        kinds = [type(action) for action in actions]
        if Relay in kinds:
            after = kinds[kinds.index(Relay) + 1 :]
            assert StartAttempt not in after
            assert Reply not in after
            assert SendError not in after
            assert Answer not in after
        responses = kinds.count(Relay) + kinds.count(Reply) + kinds.count(SendError) + kinds.count(Answer)
        record = next(action.record for action in actions if isinstance(action, Finish))
        left_unanswered = record.outcome == "client_cancelled" and record.status == 0
        if request.operation.is_call and not left_unanswered:
            assert responses == 1
        assert kinds.count(EndStream) + kinds.count(InterruptStream) + kinds.count(TruncateStream) <= kinds.count(Relay)


@given(worlds())
def test_a_truncated_stream_is_over(world: Scenario) -> None:
    """Law: its attempt was cancelled, nothing follows its end, its record says so, and it is not charged more than what flowed."""
    simulation = _Measuring(world)
    for entry in simulation.run():
        if isinstance(entry.action, TruncateStream):
            cancel, end, finish = _of(simulation.trace, entry.request)[-3:]
            assert isinstance(cancel, CancelAttempt)
            assert end is entry.action
            assert isinstance(finish, Finish)
            assert (Outcome.TRUNCATED, "length") == (finish.record.outcome, finish.record.finish_reason)
            assert end.usage == finish.record.usage
            assert simulation.flowed[entry.request] == end.usage.completion_tokens


class _Measuring(Simulation):
    """Keeps what flowed of each request's last attempt."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.flowed: dict[int, int] = {}

    def note(self, request: int, action: Action) -> None:
        super().note(request, action)
        call = self.running[request].flow.call
        self.flowed[request] = 0 if call is None else max(call.progress.chunks, call.progress.text_bytes // 8)


@given(worlds())
def test_a_limit_ends_with_what_was_used(world: Scenario) -> None:
    """Law: however reservations grew, shrank and moved, in the end a counter has what the records say, and no more."""
    counters = LocalCounters()
    world = msgspec.structs.replace(world, limit_rules=(*world.limit_rules, ALL_TOKENS))
    trace = Simulation(world, policies=world.policies(counters=counters)).run()
    subject = LimitSubject(KeyId("key"), TenantId("t"), UserId("u"))
    counter = counters.counter(counter_name(ALL_TOKENS, subject), ALL_TOKENS.spec, ALL_TOKENS.on_store_down, now=100.0)
    used = sum(entry.action.record.usage.total_tokens for entry in trace if isinstance(entry.action, Finish))
    assert used == ALL_TOKENS.spec.ceiling - counter.available(now=100.0)


@given(worlds())
def test_nothing_is_sent_or_begun_for_a_client_that_is_gone(world: Scenario) -> None:
    """Law: after a client left, its call may end, hold what it comes to cost, and be recorded, and that is all."""
    trace = simulate(world)
    for index in range(len(world.requests)):
        kinds = [type(action) for action in _of(trace, index)]
        if Detach in kinds:
            assert set(kinds[kinds.index(Detach) + 1 :]) <= {CancelAttempt, HoldCost, Finish}


@given(worlds())
def test_extra_attempts_stay_within_their_budget(world: Scenario) -> None:
    """Law: beyond the share and the floor no attempt starts, but for calls that leave a dead replica or an option of ours."""
    trace = simulate(world)
    records = [entry.action.record for entry in trace if isinstance(entry.action, Finish)]
    extra = sum(max(0, len(record.attempts) - 1) for record in records)
    forced = sum(attempt.result in ("lost", "status_400") for record in records for attempt in record.attempts)
    began = sum(bool(record.attempts) for record in records)
    assert extra - forced <= world.resilience.budget_floor + world.resilience.budget_ratio * began
    assert all(len(record.attempts) <= world.retry.max_attempts for record in records)


@given(worlds())
def test_the_same_seed_and_events_give_the_same_actions(world: Scenario) -> None:
    """Law: nothing but the facts decides."""
    assert _plain(simulate(world)) == _plain(simulate(world))


@given(worlds())
def test_a_shifted_epoch_changes_nothing(world: Scenario) -> None:
    """Law: a policy that read a clock, or compared an instant with a constant, would show here."""
    assert _plain(_run(world)) == _plain(_run(world, epoch=16 * 86_400.0))  # whole days, since a budget knows the calendar


class _Nervous(Simulation):
    """Calls every timer early and often."""

    def run(self) -> list[TracedAction]:
        world_end = 16 * 64
        for tick in range(world_end):
            self.at(self.now + tick / 64, self._poke)
        return super().run()

    def _poke(self) -> None:
        for client in list(self.running.values()):
            wake_at = client.flow.next_timer()
            if wake_at is not None and wake_at > self.now:
                assert client.flow.handle_timer(now=self.now) == []


@settings(max_examples=40)
@given(worlds())
def test_early_and_repeated_timers_do_nothing(world: Scenario) -> None:
    """Law: a driver may wake a flow as often as it likes."""
    assert _plain(_run(world)) == _plain(_run(world, simulation=_Nervous))


PRINCIPAL = Principal(KeyId("k"), TenantId("t"), UserId("u"), limits=Limits(tokens_per_minute=5000))
FAILURE = UpstreamFailure(FailureScope.REPLICA, retryable=True, message="down")
EVENTS: tuple[Event, ...] = (
    Authenticated(PRINCIPAL),
    AuthenticationRefused(Unauthenticated("no")),
    BodyReceived(BODIES[Operation.CHAT][0]),
    BodyReceived(BODIES[Operation.CHAT][1]),
    BodyRefused(InvalidJson("no")),
    TokensCounted(TokenCount(5, "t", exact=True)),
    TokensCounted(None),
    LeaseAnswered(),
    *(make(attempt) for attempt in (1, 2, 3) for make in (OutputStarted, OutputReached)),
    *(AttemptCompleted(attempt, None, "stop") for attempt in (1, 2)),
    *(AttemptFailed(attempt, FAILURE) for attempt in (1, 2, 3)),
    ReplicaLost(ReplicaId("a/0"), "silent"),
    ReplicaLost(ReplicaId("a/1"), "silent"),
    ClientLeft(),
    DrainExpired(),
    DriverFailed(),
)


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 64)), max_size=25), resiliences())
def test_any_sequence_of_events_is_survived(moves: list[tuple[Event, int]], resilience: Resilience) -> None:
    """Law: whatever a driver reports, in whatever order, a flow ends at most once and leaves nothing outstanding when told to end."""
    replicas = tuple(Replica(ReplicaId(f"a/{index}"), UpstreamName("a"), "vllm", CLOCKS) for index in range(2))
    world = Scenario((), {}, replicas, (Route("m", (Target(UpstreamName("a")),)),), resilience=resilience)
    policies = world.policies()
    flow = RequestFlow(RequestFacts("r", Operation.CHAT, Secret("s"), 0.0), policies)
    now = 0.0
    actions = flow.begin(now=now)
    for event, ticks in moves:
        now += ticks / 64
        actions += flow.receive(event, now=now)
        actions += flow.handle_timer(now=now)
    actions += flow.receive(ClientLeft(), now=now)
    actions += flow.receive(DrainExpired(), now=now)  # a call that outlived its client ends now
    assert [type(action) for action in actions].count(Finish) == 1
    assert isinstance(actions[-1], Finish)
    statistics = policies.limits.statistics(now=now)
    assert (0, 0) == (statistics.outstanding, statistics.held_tokens)
    assert all(status.in_flight == 0 for status in policies.fleet.statistics(now=now))
    assert msgspec.json.encode(actions[-1].record)
