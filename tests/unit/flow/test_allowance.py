"""What a call holds of its limits: a slice more while it flows, something else after a failover, never more than its cap, never twice."""

from __future__ import annotations

from tidegate.domain.demand import Demand
from tidegate.domain.limits import CounterSpec, LimitRule, LimitSubject, Meter, Resource
from tidegate.domain.money import Price, PriceBook, PriceEntry, PriceTier
from tidegate.domain.principal import Limits
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import KeyId, ModelName, ReplicaId, TenantId, UpstreamName, UserId
from tidegate.domain.upstream import Choice, Replica
from tidegate.flow.allowance import UNREACHED, Allowance, allowance_of
from tidegate.policy.billing.pricing import Pricing
from tidegate.policy.metering.limiter import Limiter
from tidegate.policy.metering.local_counters import LocalCounters
from tidegate.ports import Denied, Permit, Short

SUBJECT = LimitSubject(KeyId("k"), TenantId("t"), UserId("u"), model=ModelName("m"))
HERE, THERE = (Choice(Replica(ReplicaId(f"{name}/0"), UpstreamName(name), "openai"), ModelName("m"), 0) for name in ("here", "there"))
PRICES = Pricing(
    PriceBook("1", "EUR", tuple(PriceEntry(name, "*", Price((PriceTier(0, rate * 10**6),))) for name, rate in (("here", 1), ("there", 10))))
)


class World:
    """One key with a limit on tokens, and one request of it that holds some."""

    def __init__(self, tokens: int | None, *, output: int = 40, rules: tuple[LimitRule, ...] = (), cost_micro: int = 0) -> None:
        self.limiter = Limiter(LocalCounters(), rules)
        self.limits = Limits(tokens_per_minute=tokens)
        self.permit = self.admit()
        self.reserved = Demand(20, output, cost_micro)
        assert self.permit.reserve(self.reserved, now=0.0) is None

    def admit(self) -> Permit:
        permit = self.limiter.admit(SUBJECT, self.limits, now=0.0)
        assert not isinstance(permit, Denied | Short)
        return permit

    def allowance(self, *, cap: int | None = None, choices: int = 1, pricing: Pricing | None = None) -> Allowance:
        request = ParsedRequest(Operation.CHAT, ModelName("m"), b"{}", choices=choices)
        made = allowance_of(self.permit, self.reserved, request, cap, pricing=pricing, at=0.0)
        assert made is not None
        assert made.move(HERE, cap, now=0.0) is None
        return made

    @property
    def left(self) -> int | None:
        return self.permit.remaining_tokens(now=0.0)


def test_nothing_is_watched_where_nothing_is_limited() -> None:
    """A stream without limits never stops to ask."""
    world = World(None)
    request = ParsedRequest(Operation.CHAT, ModelName("m"), b"{}")
    assert allowance_of(world.permit, world.reserved, request, None, pricing=None, at=0.0) is None


def test_a_slice_is_a_quarter_of_what_is_held_and_at_least_a_second_of_output() -> None:
    """So that a long answer asks less and less often, beside what it has had."""
    world = World(10_000)
    allowance = world.allowance()
    reached = [allowance.extend_at]
    for _ in range(6):
        assert allowance.extend(reached[-1], now=0.0) is None
        reached.append(allowance.extend_at)
    assert [40, 104, 168, 232, 296, 370, 462] == reached
    assert world.left == 10_000 - 20 - 462
    assert repr(allowance) == "Allowance(20 in, 462 out, 0 micro)"


def test_several_choices_ask_for_as_many_slices() -> None:
    """They flow at the same time."""
    allowance = World(10_000).allowance(choices=3)
    assert allowance.extend(40, now=0.0) is None
    assert allowance.extend_at == 40 + 3 * 64


def test_a_leap_beyond_what_is_held_is_held_with_it() -> None:
    """A chunk of five hundred tokens at once needs no second question."""
    allowance = World(10_000).allowance()
    assert allowance.extend(540, now=0.0) is None
    assert allowance.extend_at == 604


def test_the_last_of_a_limit_is_used_before_a_stream_is_ended() -> None:
    """Less than a slice is left, but more than nothing."""
    world = World(100)
    allowance = world.allowance()
    assert allowance.extend(40, now=0.0) is None
    assert (80, 0) == (allowance.extend_at, world.left)
    denied = allowance.extend(80, now=0.0)
    assert denied is not None
    assert ("key-tokens", Resource.TOKENS, 0, 64) == (denied.rule, denied.resource, denied.remaining, denied.requested)
    assert allowance.extend_at == 80


def test_a_rest_that_is_too_little_ends_a_stream() -> None:
    """Fifteen tokens are not worth another stop, nor is a rest that has flowed already."""
    assert World(75).allowance().extend(40, now=0.0) is not None
    assert World(100).allowance().extend(85, now=0.0) is not None


def test_nothing_beyond_a_cap_is_held() -> None:
    """The upstream keeps to it; what it says beyond is settled in the end."""
    allowance = World(10_000).allowance(cap=50, choices=2)
    assert allowance.extend(40, now=0.0) is None
    assert allowance.extend_at == UNREACHED
    assert repr(allowance) == "Allowance(20 in, 100 out, 0 micro)"
    assert World(10_000, output=100).allowance(cap=100).extend_at == UNREACHED


def test_a_shorter_answer_holds_less_and_a_long_one_its_own_again() -> None:
    """One in place of the other."""
    world = World(1000, output=100)
    allowance = world.allowance(cap=100)
    assert allowance.move(HERE, 70, now=0.0) is None
    assert world.left == 1000 - 90
    assert allowance.move(THERE, 100, now=0.0) is None
    assert world.left == 1000 - 120


def test_what_another_request_took_in_the_meantime_is_not_taken_twice() -> None:
    """A refusal leaves what is held."""
    world = World(130, output=100)
    allowance = world.allowance(cap=100)
    allowance.move(HERE, 70, now=0.0)
    other = world.admit()
    assert other.reserve(Demand(0, 20), now=0.0) is None
    denied = allowance.move(THERE, 100, now=0.0)
    assert denied is not None
    assert (30, 20) == (denied.requested, denied.remaining)
    assert repr(allowance) == "Allowance(20 in, 70 out, 0 micro)"


def test_a_cost_follows_its_target_and_grows_with_the_answer() -> None:
    """The same tokens at a dearer place hold more money, and more tokens too."""
    budget = LimitRule("budget", Resource.COST, CounterSpec(Meter.CALENDAR, 2000))
    world = World(None, rules=(budget,), cost_micro=40)
    allowance = world.allowance(pricing=PRICES)
    assert allowance.move(THERE, None, now=0.0) is None
    assert repr(allowance) == "Allowance(20 in, 40 out, 400 micro)"
    assert allowance.extend(40, now=0.0) is None
    assert repr(allowance) == "Allowance(20 in, 104 out, 1040 micro)"
    denied = allowance.extend(150, now=0.0)
    assert denied is not None
    assert ("budget", Resource.COST, 960) == (denied.rule, denied.resource, denied.remaining)
    assert allowance.move(HERE, None, now=0.0) is None
    assert repr(allowance) == "Allowance(20 in, 40 out, 40 micro)"
