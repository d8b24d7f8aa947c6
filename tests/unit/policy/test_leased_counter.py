"""What a worker does with leases: when it asks, for how much, what it says, and when it judges by itself."""

from __future__ import annotations

import pytest

from tidegate.domain.leases import LeaseAnswer, LeaseBatch, LeaseClaim, open_s
from tidegate.domain.limits import CounterSpec, Meter, Period, StoreDown
from tidegate.policy.metering.leases.leased_counter import CONTENDED_S, LeasedCounter
from tidegate.policy.metering.leases.leased_counters import MOST_CLAIMS, LeasedCounters, is_covered
from tidegate.policy.metering.leases.ledger import LeaseLedger

NAME = "rule;key=a"
SLIDING = CounterSpec(Meter.SLIDING, 1000, 60.0)
PLACES = CounterSpec(Meter.PLACES, 10)
PLACES_OF_ONE = CounterSpec(Meter.PLACES, 1)


class Pair:
    """One worker and the ledger, with a clock that both follow."""

    def __init__(self, spec: CounterSpec = SLIDING, policy: StoreDown = StoreDown.DENY) -> None:
        self.now = 1000.0
        self.ledger = LeaseLedger(epoch=7, now=0.0)
        self.counters = LeasedCounters()
        self.spec = spec
        self.policy = policy
        self.worker = "w"

    @property
    def counter(self) -> LeasedCounter:
        return self.counters.counter(NAME, self.spec, self.policy, now=self.now)

    def send(self) -> tuple[LeaseClaim, ...]:
        claims = self.counters.claims(now=self.now)
        self.counters.note_asked(now=self.now)
        return claims

    def exchange(self, after_s: float = 0.05) -> tuple[LeaseClaim, ...]:
        self.now += after_s
        claims = self.send()
        self.counters.receive(self.answer(claims), now=self.now)
        self.counters.serve_waiting()
        return claims

    def answer(self, claims: tuple[LeaseClaim, ...]) -> LeaseAnswer:
        return self.ledger.exchange(LeaseBatch(self.worker, claims), now=self.now)

    def take(self, amount: int) -> int | None:
        return self.counter.take(amount, now=self.now)

    def need(self, amount: int) -> bool:
        return self.counter.may_come(amount, now=self.now)

    def leased(self) -> int:
        return self.ledger.statistics().leased

    def use(self, amount: int) -> int:
        """Take, with one wait for the store; give the slot."""
        if (slot := self.take(amount)) is None:
            assert self.need(amount)
            self.exchange()
            slot = self.take(amount)
        assert slot is not None
        return slot


def claim_of(sequence: int, *, held: int = 1, want: int = 0) -> LeaseClaim:
    """Say what another worker says of the one place."""
    life = 0 if sequence == 1 else 7 << 24 | 1
    return LeaseClaim(counter=NAME, spec=PLACES_OF_ONE, sequence=sequence, life=life, spent=0, held=held, spare=0, want=want)


def test_a_cold_counter_is_asked_for_once() -> None:
    """The first take is short; the next claim wants as much, and then it fits."""
    pair = Pair()
    assert pair.take(30) is None
    assert pair.need(30)
    assert pair.counters.is_pressed()
    [claim] = pair.exchange()
    assert 30 <= claim.want <= 30 + 1000 // 64
    assert 0 == pair.take(30)
    assert not pair.counters.is_pressed()


def test_what_was_granted_for_those_who_wait_is_theirs() -> None:
    """A request that comes between the grant and those who waited for it does not get their units; it waits for the next exchange."""
    pair = Pair(CounterSpec(Meter.SLIDING, 20, 60.0))
    assert pair.take(2) is None
    assert pair.need(2)
    pair.counters.receive(pair.answer(pair.send()), now=pair.now)
    assert pair.take(1) is None
    assert pair.need(1)
    pair.counters.serve_waiting()
    assert pair.take(2) is not None
    pair.exchange()
    assert pair.take(1) is not None


def test_what_is_given_back_before_it_was_said_is_there_to_be_used_again() -> None:
    """An attempt that one of many limits refused uses up no lease of the others; the store hears nothing of it."""
    pair = Pair()
    slot = pair.use(10)
    pair.counter.give_back(10, slot, now=pair.now)
    assert slot == pair.take(10)
    pair.counter.give_back(4, slot, now=pair.now)
    [claim] = pair.exchange()
    assert (6, ()) == (claim.spent, claim.returned)
    pair.counter.give_back(6, slot, now=pair.now)
    [claim] = pair.exchange()
    assert (0, [6]) == (claim.spent, [amount for _, amount in claim.returned])


def test_a_dry_limit_refuses_at_once_until_it_is_asked_again() -> None:
    """After a grant below what was wanted nobody waits; a while later the store is asked again."""
    pair = Pair()
    pair.use(1000)
    assert pair.take(1) is None
    assert pair.need(1)
    pair.exchange()
    assert pair.take(1) is None
    assert not pair.need(1)
    assert pair.counter.wait_s(1, now=pair.now) == pytest.approx(60.1, abs=0.2)
    pair.now += 0.2
    assert pair.need(1)


def test_what_can_never_fit_is_not_waited_for() -> None:
    """An amount over the ceiling is refused at once and has no waiting time."""
    pair = Pair()
    assert not pair.need(1001)
    assert pair.counter.wait_s(1001, now=pair.now) is None


def test_a_busy_counter_leases_ahead_and_an_idle_one_gives_back() -> None:
    """The lease follows the rate, is bounded by a part of the ceiling, is renewed, and goes back after a second."""
    pair = Pair(CounterSpec(Meter.SLIDING, 64_000, 60.0))
    for _ in range(30):
        pair.use(100)
        pair.exchange()
    ahead = pair.counter.spare(now=pair.now)
    assert 100 < ahead <= 1000
    [renewal] = pair.exchange(0.3)
    assert 0 < renewal.spare <= ahead
    assert pair.counter.wait_s(1, now=pair.now) == 0.0
    pair.exchange(0.9)
    assert 0 == pair.leased()
    assert pair.exchange() == ()


def test_what_is_given_back_returns_to_its_slot() -> None:
    """A settled request frees at the store what it did not use; twice, or long after, changes nothing."""
    pair = Pair()
    slot = pair.use(500)
    pair.exchange(0.5)
    pair.counter.give_back(300, slot, now=pair.now)
    pair.exchange(1.0)
    assert 800 == pair.counter.available(now=pair.now)
    pair.counter.give_back(500, slot, now=pair.now)
    pair.exchange(1.0)
    assert 1000 == pair.counter.available(now=pair.now)
    pair.now += 100.0
    pair.exchange()
    pair.exchange()
    pair.counter.give_back(1, slot, now=pair.now)
    assert pair.exchange() == ()


def test_debt_is_charged_of_the_lease_and_then_owed() -> None:
    """An answer longer than its hold is charged: first of what is leased, the rest is said with the next claim."""
    pair = Pair()
    pair.use(10)
    pair.need(20)
    pair.exchange()
    pair.counter.charge(5, now=pair.now)
    pair.counter.charge(45, now=pair.now)
    assert 0 == pair.counter.spare(now=pair.now)
    [claim] = pair.exchange()
    [(age_s, owed)] = claim.owed
    assert age_s == pytest.approx(0.05)
    assert 15 <= owed <= 30
    assert 940 == pair.counter.available(now=pair.now)


def test_what_is_owed_and_given_back_is_not_said() -> None:
    """A charge that is undone before the next claim leaves no trace."""
    pair = Pair(policy=StoreDown.ALLOW)
    pair.exchange()
    pair.counters.lost(())
    slot = pair.take(40)
    assert slot is not None
    pair.counter.give_back(40, slot, now=pair.now)
    [claim] = pair.exchange()
    assert ((), ()) == (claim.owed, claim.returned)


def test_a_lost_claim_is_said_again_as_it_was() -> None:
    """The same number, the same content; and it counts once, whether or not it had arrived."""
    pair = Pair()
    pair.use(100)
    first = pair.send()
    pair.answer(first)
    pair.counters.lost(first)
    assert pair.counters.is_away(now=pair.now)
    pair.now += 0.1
    assert first == pair.send()
    pair.counters.receive(pair.answer(first), now=pair.now)
    assert 900 == pair.counter.available(now=pair.now)
    assert 1 == len(pair.ledger.exchange(LeaseBatch("w", first), now=pair.now).grants)


def test_a_claim_too_old_to_matter_is_dropped() -> None:
    """After a window's time nobody needs to know what became of it."""
    pair = Pair()
    pair.use(100)
    first = pair.send()
    pair.counters.lost(first)
    pair.now += 61.0
    assert pair.send() == ()
    pair.counters.lost(first)
    assert pair.counter.is_idle(now=pair.now)


def test_what_was_given_back_of_a_dropped_claim_waits_for_a_slot() -> None:
    """Where it was counted is not known before the next answer; until then it is kept."""
    pair = Pair(policy=StoreDown.ALLOW)
    pair.exchange()
    pair.counters.lost(())
    slot = pair.take(40)
    assert slot is not None
    pair.counters.lost(pair.send())
    pair.now += 0.9
    assert slot == pair.take(5)
    pair.counter.give_back(20, slot, now=pair.now)
    pair.now += 59.5
    [claim] = pair.exchange(0.0)
    assert ((), ()) == (claim.returned, claim.owed)
    [claim] = pair.exchange()
    assert [15] == [amount for _, amount in claim.returned]


def test_an_answer_that_comes_after_the_lease_is_not_used() -> None:
    """A lease is counted from when it was asked for; late or wrong answers give nothing."""
    pair = Pair()
    assert pair.take(10) is None
    assert pair.need(10)
    claims = pair.send()
    assert pair.send() == ()
    answer = pair.answer(claims)
    pair.now += 1.0
    pair.counters.receive(answer, now=pair.now)
    pair.counters.receive(answer, now=pair.now)
    assert 0 == pair.counter.spare(now=pair.now)
    assert pair.take(0) is not None


def test_a_lease_that_was_not_renewed_is_dead_on_both_sides() -> None:
    """What was spent of it is charged when it is said; the rest has returned."""
    pair = Pair()
    pair.use(10)
    pair.need(90)
    pair.exchange()
    pair.take(40)
    pair.now += 1.5
    assert pair.take(1) is None
    other = LeaseClaim(counter=NAME, spec=SLIDING, sequence=1, life=0, spent=0, held=0, spare=0, want=0)
    assert 990 == pair.ledger.exchange(LeaseBatch("other", (other,)), now=pair.now).grants[0].available
    assert 90 <= pair.ledger.statistics().expired <= 105
    pair.exchange()
    assert 950 == pair.counter.available(now=pair.now)


@pytest.mark.parametrize(("policy", "left"), [(StoreDown.DENY, 0), (StoreDown.LOCAL_SHARE, 990), (StoreDown.ALLOW, 1000)])
def test_what_is_left_without_a_store(policy: StoreDown, left: int) -> None:
    """Headers say what the policy leaves."""
    pair = Pair(policy=policy)
    pair.use(10)
    pair.counters.lost(())
    pair.now += 1.1
    assert left == pair.counter.available(now=pair.now)
    assert (0.0 if left else 0.05) == pair.counter.wait_s(1, now=pair.now), "who lets it through is not the one that refuses"
    assert not pair.need(1)


def test_a_store_without_an_answer_is_away_after_a_lease() -> None:
    """Nobody has to say so."""
    pair = Pair()
    pair.send()
    assert not pair.counters.is_away(now=pair.now + 0.9)
    assert pair.counters.is_away(now=pair.now + 1.0)


def test_use_without_a_store_is_said_by_age() -> None:
    """Stretches of a second; what has left the window is not said at all."""
    pair = Pair(policy=StoreDown.ALLOW)
    pair.exchange()
    pair.counters.lost(())
    for _ in range(130):
        pair.take(1)
        pair.now += 0.5
    [claim] = pair.exchange(0.0)
    assert 38 < len(claim.owed) <= 62
    assert 118 <= sum(amount for _, amount in claim.owed) <= 122
    ages = [age_s for age_s, _ in claim.owed]
    assert ages == sorted(ages, reverse=True)


def test_a_store_that_forgot_one_counter_is_told_of_it() -> None:
    """Its claim is refused and nothing of it counted; the next one tells all, and what was waited for is asked for again."""
    pair = Pair()
    pair.use(200)
    pair.exchange()
    pair.ledger = LeaseLedger(epoch=7, now=pair.now - 10.0)
    assert pair.take(50) is None
    assert pair.need(50)
    shortages = pair.counters.shortages()
    pair.exchange()
    assert not any(is_covered(shortage) for shortage in shortages)
    [claim] = pair.exchange()
    assert 0 == claim.life
    assert 50 <= claim.want <= 65
    assert all(is_covered(shortage) for shortage in shortages)
    assert 800 - claim.want == pair.ledger.exchange(LeaseBatch("w", (claim,)), now=pair.now).grants[0].available


def test_another_store_makes_everybody_tell_before_they_ask() -> None:
    """A new epoch: counters without a claim tell all they know, nobody leases, and the policy decides for a moment."""
    pair = Pair()
    pair.use(200)
    pair.exchange()
    idle = pair.counters.counter("rule;key=idle", SLIDING, StoreDown.DENY, now=pair.now)
    pair.ledger = LeaseLedger(epoch=8, now=pair.now)
    pair.counters.receive(pair.answer(()), now=pair.now)
    assert 1.0 == pair.counters.levels(now=pair.now)["store_settling"]
    assert pair.take(1) is None
    assert not pair.need(1)
    [claim] = pair.exchange()
    assert ([200], 0) == ([amount for _, amount in claim.owed], claim.want)
    assert idle.is_idle(now=pair.now)
    pair.now += 1.5
    assert 800 == pair.counter.available(now=pair.now)


def test_places_are_kept_while_they_are_used() -> None:
    """Places in use are renewed, not spent; idle ones go back, and charges and a forgetful store change nothing of that."""
    pair = Pair(PLACES)
    assert 0 == pair.use(3)
    [claim] = pair.exchange()
    assert (3, 0) == (claim.held, claim.spent)
    [renewal] = pair.exchange(0.3)
    assert 3 == renewal.held
    pair.counter.charge(1, now=pair.now)
    pair.exchange()
    assert 6 == pair.counter.available(now=pair.now)
    assert 1.0 == pair.counter.reset_s(now=pair.now)
    pair.counter.give_back(2, 0, now=pair.now)
    pair.ledger = LeaseLedger(epoch=8, now=pair.now)
    pair.exchange()
    pair.exchange()
    assert 2 == pair.leased()
    pair.counter.give_back(2, 0, now=pair.now)
    pair.exchange(2.0)
    assert 0 == pair.leased()
    assert pair.counter.is_idle(now=pair.now)


def test_a_place_that_others_have_is_waited_for() -> None:
    """A patient request asks again with the next exchange, until the place is given back; an impatient one is refused."""
    mine, other = Pair(PLACES_OF_ONE), Pair(PLACES_OF_ONE)
    other.ledger, other.worker = mine.ledger, "other"
    other.use(1)
    assert mine.take(1) is None
    assert mine.need(1)
    mine.exchange(0.0)
    assert mine.take(1) is None
    assert not mine.counter.may_come(1, now=mine.now)
    assert mine.counter.may_come(1, now=mine.now, is_patient=True)
    assert not mine.counters.is_pressed(), "the next exchange is soon enough"
    shortages = mine.counters.shortages()
    assert not any(map(is_covered, shortages))
    other.counter.give_back(1, 0, now=other.now)
    other.exchange(0.0)
    mine.exchange()
    assert all(map(is_covered, shortages))
    assert 0 == mine.take(1)
    assert other.take(1) is None


def test_a_place_that_others_miss_is_given_back_at_once() -> None:
    """Who was short of a place that others had does not keep one until the next exchange; some seconds later it does again."""
    pair = Pair(PLACES_OF_ONE)
    pressed: list[float] = []
    pair.counters.when_pressed(lambda: pressed.append(pair.now))
    pair.use(1)
    pair.counter.give_back(1, 0, now=pair.now)
    assert not pressed
    assert not pair.counters.is_pressed()
    pair.exchange()
    pair.ledger.exchange(LeaseBatch("other", (claim_of(1),)), now=pair.now)
    assert pair.take(1) is None
    assert pair.need(1)
    pair.exchange()
    assert pair.counter.may_come(1, now=pair.now, is_patient=True)
    pair.ledger.exchange(LeaseBatch("other", (claim_of(2, held=0, want=0),)), now=pair.now)
    pair.exchange()
    assert 0 == pair.take(1)
    pair.counter.give_back(1, 0, now=pair.now)
    assert [pair.now] == pressed
    assert pair.counters.is_pressed()
    pair.now += CONTENDED_S
    pair.exchange()
    pair.use(1)
    pair.counter.give_back(1, 0, now=pair.now)
    assert 1 == len(pressed)


def test_places_that_are_all_ones_own_are_not_waited_for() -> None:
    """Nobody else can give one back."""
    pair = Pair(PLACES_OF_ONE)
    pair.use(1)
    assert pair.take(1) is None
    assert pair.need(1)
    pair.exchange()
    assert not pair.counter.may_come(1, now=pair.now, is_patient=True)


def test_places_without_a_store() -> None:
    """A worker keeps to its share, and says what it holds when the store is back."""
    pair = Pair(PLACES, StoreDown.LOCAL_SHARE)
    pair.exchange()
    pair.counters.lost(())
    assert [0] * 10 == [pair.take(1) for _ in range(10)]
    assert pair.take(1) is None
    pair.counter.give_back(4, 0, now=pair.now)
    [claim] = pair.exchange()
    assert 6 == claim.held


def test_a_steady_rate_is_leased_too() -> None:
    """Every grant of a rate has a slot of its own; the account does not grow with them."""
    pair = Pair(CounterSpec(Meter.GCRA, 6000, 60.0, burst=200))
    for _ in range(60):
        slot = pair.use(5)
        pair.counter.give_back(2, slot, now=pair.now)
        pair.exchange(0.05)
    assert pair.counter.available(now=pair.now) > 0
    assert not pair.need(201)
    pair.exchange(5.0)
    assert pair.counter.is_idle(now=pair.now)


def test_a_calendar_counts_from_boundary_to_boundary() -> None:
    """What was used yesterday does not matter today, with a store and without."""
    pair = Pair(CounterSpec(Meter.CALENDAR, 100, period=Period.DAY), StoreDown.LOCAL_SHARE)
    pair.use(100)
    pair.exchange()
    pair.counters.lost(())
    assert pair.take(1) is None
    pair.now = 86_400.0
    assert pair.take(1) is not None
    pair.exchange()
    assert 99 == pair.counter.available(now=pair.now)


def test_counters_follow_their_rules() -> None:
    """Another ceiling keeps what is in use; another way to count begins anew."""
    pair = Pair()
    pair.use(100)
    same = pair.counter
    pair.spec = CounterSpec(Meter.SLIDING, 2000, 60.0)
    assert same is pair.counter
    pair.exchange()
    assert 1900 == pair.counter.available(now=pair.now)
    pair.spec = CounterSpec(Meter.SLIDING, 2000, 30.0)
    assert same is not pair.counter
    assert "LeasedCounter('rule;key=a'" in repr(same)
    assert "LeasedCounters(1" in repr(pair.counters)
    assert "LeaseLedger(epoch=7" in repr(pair.ledger)


def test_counters_are_bounded_and_forgotten() -> None:
    """A rule with too many names lets them share one; idle counters that nobody holds go after a minute."""
    counters = LeasedCounters(most_per_rule=2)
    for number in range(4):
        counters.counter(f"rule;key={number}", SLIDING, StoreDown.DENY, now=0.0)
    held = counters.counter("rule;key=1", SLIDING, StoreDown.DENY, now=0.0)
    held.holders += 1
    assert (3, 2) == (counters.statistics().counters, counters.statistics().shared)
    counters.counter("rule;key=1", SLIDING, StoreDown.DENY, now=61.0)
    assert 1 == counters.statistics().counters
    held.holders -= 1
    counters.counter("other;key=1", SLIDING, StoreDown.DENY, now=122.0)
    assert 1 == counters.statistics().counters


def test_nobody_is_served_of_a_counter_that_is_gone() -> None:
    """A counter that counts another way now owes nothing to those who waited for the one before."""
    pair = Pair()
    pair.take(1)
    pair.need(1)
    claims = pair.send()
    pair.counters.receive(pair.answer(claims), now=pair.now)
    pair.counters._counters.clear()
    pair.counters.serve_waiting()
    assert not pair.counters._view.promised


def test_one_exchange_is_bounded() -> None:
    """What does not fit comes with the next, and what somebody waits for comes first."""
    counters = LeasedCounters()
    ledger = LeaseLedger(epoch=1, now=0.0)
    for number in range(MOST_CLAIMS + 10):
        counters.counter(f"rule;key={number}", SLIDING, StoreDown.DENY, now=10.0).take(1, now=10.0)
    waited_for = counters.counter("rule;key=zzz", SLIDING, StoreDown.DENY, now=10.0)
    waited_for.may_come(1, now=10.0)
    first = counters.claims(now=10.0)
    assert ("rule;key=zzz", MOST_CLAIMS) == (first[0].counter, len(first))
    second = counters.claims(now=10.0)
    assert 11 == len(second)
    counters.receive(ledger.exchange(LeaseBatch("w", first), now=10.0), now=10.0)
    counters.lost(second)
    assert set(second) <= set(counters.claims(now=10.0))


def test_answers_for_counters_that_are_gone_are_nobodys() -> None:
    """A counter that was forgotten between claim and answer is not made again."""
    counters, other = LeasedCounters(), LeasedCounters()
    counters.counter(NAME, SLIDING, StoreDown.DENY, now=10.0).take(1, now=10.0)
    claims = counters.claims(now=10.0)
    answer = LeaseLedger(epoch=1, now=0.0).exchange(LeaseBatch("w", claims), now=10.0)
    other.receive(answer, now=10.0)
    other.lost(claims)
    assert 0 == other.statistics().counters


def test_the_ledger_forgets_what_is_over() -> None:
    """Workers that fell silent do not share any more; their accounts and idle counters go."""
    pair = Pair()
    pair.use(10)
    pair.exchange()
    assert 2 == pair.ledger.exchange(LeaseBatch("other"), now=pair.now).workers
    pair.now += 5.0
    assert 1 == pair.ledger.exchange(LeaseBatch("other"), now=pair.now).workers
    pair.now += 90.0
    pair.ledger.exchange(LeaseBatch("other"), now=pair.now)
    assert (0, 1) == (pair.ledger.statistics().counters, pair.ledger.statistics().workers)


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        (SLIDING, 60.2),
        (CounterSpec(Meter.GCRA, 60, 60.0, burst=10), 10.0),
        (CounterSpec(Meter.CALENDAR, 1, period=Period.HOUR), 3600.0),
        (PLACES, 1.0),
    ],
)
def test_how_long_a_use_matters(spec: CounterSpec, seconds: float) -> None:
    """By the way it is counted."""
    assert seconds == pytest.approx(open_s(spec))


def test_a_counter_may_begin_with_what_was_counted_elsewhere() -> None:
    """Of a thousand, nine hundred were used before the ledger was made: a hundred are left for everybody."""
    budget = CounterSpec(Meter.CALENDAR, 1000, period=Period.MONTH)
    pair = Pair(budget)
    assert not pair.ledger.has_counter(NAME, budget)
    pair.ledger.begin_with(NAME, budget, 900, now=0.0)
    assert pair.ledger.has_counter(NAME, budget)
    assert pair.use(100) is not None
    pair.need(1)
    pair.exchange()
    assert pair.take(1) is None
