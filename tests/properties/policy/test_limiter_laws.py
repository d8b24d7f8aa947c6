"""Laws of the limiter: all or nothing, nothing left over, and rules in shadow mode refuse nobody."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tidegate.domain.demand import Demand
from tidegate.domain.limits import CounterSpec, LimitMode, LimitRule, LimitSubject, Meter, Resource, Scope, ScopeMatch, StoreDown
from tidegate.domain.principal import Limits
from tidegate.domain.units import KeyId, ModelName, TenantId, UserId
from tidegate.policy.metering.limiter import Limiter, counter_name
from tidegate.policy.metering.local_counters import LocalCounters
from tidegate.policy.metering.permit import LimiterPermit

SUBJECTS = [
    LimitSubject(KeyId(key), TenantId(tenant), UserId("u"), model=ModelName(model)) for key in "ab" for tenant in "xy" for model in "mn"
]
OVER_TIME = [Resource.TOKENS, Resource.INPUT_TOKENS, Resource.OUTPUT_TOKENS, Resource.REQUESTS, Resource.COST]

ceilings = st.none() | st.integers(1, 60)
key_limits = st.builds(Limits, ceilings, ceilings, ceilings)
demands = st.builds(Demand, st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))


@st.composite
def rules(draw: st.DrawFn) -> tuple[LimitRule, ...]:
    made = []
    for number in range(draw(st.integers(0, 4))):
        resource = draw(st.sampled_from([*OVER_TIME, Resource.CONCURRENCY]))
        meter = Meter.PLACES if resource is Resource.CONCURRENCY else draw(st.sampled_from([Meter.SLIDING, Meter.GCRA, Meter.CALENDAR]))
        ceiling = draw(st.integers(1, 100))
        spec = CounterSpec(meter, ceiling, burst=max(1, ceiling // 2))
        scope = ScopeMatch(draw(st.sampled_from([Scope.KEY, Scope.TENANT, Scope.MODEL])), "*", draw(st.booleans()))
        made.append(LimitRule(f"r{number}", resource, spec, (scope,), draw(st.sampled_from(LimitMode))))
    return tuple(made)


verbs = st.sampled_from(["admit", "reserve", "move", "settle", "cancel", "look"])
moves = st.lists(st.tuples(st.integers(0, 64), verbs, st.integers(0, 7), demands), max_size=50)
"""Seconds to wait, what to do, to which subject or permit, and how much."""


class Play:
    """Makes the moves that a flow could make, and keeps what came of them."""

    def __init__(self, store: Limiter, limits: Limits) -> None:
        self.store = store
        self.limits = limits
        self.now = 0.0
        self.permits: list[LimiterPermit] = []
        self.reserved: set[int] = set()
        self.answers: list[str] = []

    def move(self, wait: int, verb: str, number: int, demand: Demand) -> None:
        self.now += wait / 4
        if verb == "admit" or not self.permits:
            admitted = self.store.admit(SUBJECTS[number], self.limits, now=self.now)
            self.answers.append(type(admitted).__name__)
            if isinstance(admitted, LimiterPermit):
                self.permits.append(admitted)
            return
        permit = self.permits[number % len(self.permits)]
        held = id(permit) in self.reserved
        if verb in ("settle", "cancel"):
            self.permits.remove(permit)
            self.reserved.discard(id(permit))
            permit.settle(demand, now=self.now) if verb == "settle" else permit.cancel(now=self.now)
        elif verb == "reserve" and not held:
            refused = permit.reserve(demand, now=self.now)
            self.answers.append(type(refused).__name__)
            if refused is None:
                self.reserved.add(id(permit))
        elif verb == "move" and held:
            self.answers.append(type(permit.move(demand, now=self.now)).__name__)
        else:
            self.store.state(SUBJECTS[number], self.limits, now=self.now)
            self.store.statistics(now=self.now)


def play(store: Limiter, limits: Limits, script: list[tuple[int, str, int, Demand]]) -> Play:
    played = Play(store, limits)
    for move in script:
        played.move(*move)
    return played


@given(rules(), key_limits, moves)
def test_nothing_is_left_when_all_permits_have_ended(
    ruled: tuple[LimitRule, ...], limits: Limits, script: list[tuple[int, str, int, Demand]]
) -> None:
    """Law: outstanding permits and held tokens return to zero, and whoever did nothing has used nothing."""
    source = LocalCounters()
    store = Limiter(source, ruled)
    played = play(store, limits, [move for move in script if move[1] != "settle"])
    for permit in played.permits:
        permit.cancel(now=played.now)
    assert (0, 0) == (store.outstanding, store.held_tokens)
    for rule in ruled:
        for subject in SUBJECTS:
            counter = source.counter(counter_name(rule, subject), rule.spec, StoreDown.DENY, now=played.now)
            assert counter.available(now=played.now) == (rule.spec.burst if rule.spec.meter is Meter.GCRA else rule.spec.ceiling)


@given(rules(), key_limits, moves)
def test_a_refusal_changes_nothing(ruled: tuple[LimitRule, ...], limits: Limits, script: list[tuple[int, str, int, Demand]]) -> None:
    """Law: what every counter has left is the same before and after a refusal, whichever rule refused."""
    enforced = tuple(msgspec.structs.replace(rule, mode=LimitMode.ENFORCE) for rule in ruled)
    source = LocalCounters()
    played = Play(Limiter(source, enforced), limits)

    def left() -> list[int]:
        return [
            source.counter(counter_name(rule, subject), rule.spec, StoreDown.DENY, now=played.now).available(now=played.now)
            for rule in enforced
            for subject in SUBJECTS
        ]

    for wait, verb, number, demand in script:
        played.move(wait, "look", 0, Demand())
        before, answers = left(), len(played.answers)
        played.move(0, verb, number, demand)
        if played.answers[answers:] == ["Denied"]:
            assert before == left()


@given(rules(), key_limits, moves)
def test_a_rule_in_shadow_mode_changes_no_answer(
    ruled: tuple[LimitRule, ...], limits: Limits, script: list[tuple[int, str, int, Demand]]
) -> None:
    """Law: with rules that only watch, everybody gets what they would get without them."""
    shadows = [msgspec.structs.replace(rule, name=f"s{rule.name}", mode=LimitMode.SHADOW) for rule in ruled]
    without, with_shadows = (play(Limiter(LocalCounters(), rules), limits, script) for rules in (ruled, (*shadows, *ruled)))
    assert without.answers == with_shadows.answers


@given(rules(), key_limits, moves)
def test_a_shifted_clock_changes_nothing(ruled: tuple[LimitRule, ...], limits: Limits, script: list[tuple[int, str, int, Demand]]) -> None:
    """Law: adding a constant to all times gives the same answers; the calendar's epoch shifts against it."""
    shift = 2.0**20 + 0.25
    here, there = Play(Limiter(LocalCounters(), ruled), limits), Play(Limiter(LocalCounters(epoch_s=-shift), ruled), limits)
    there.now = shift
    for move in script:
        here.move(*move)
        there.move(*move)
    assert here.answers == there.answers
