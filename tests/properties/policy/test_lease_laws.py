"""Laws of shared limits in simulated time: however messages are lost, repeated and late, workers die and the store forgets."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.policy.lease_world import World

from tidegate.domain.leases import LeaseBatch
from tidegate.domain.limits import CounterSpec, Meter, Period, StoreDown
from tidegate.flow.lease_waits import LEAST_LEASE_WAITS
from tidegate.policy.metering.leases.leased_counters import LeasedCounters
from tidegate.policy.metering.leases.ledger import LeaseLedger

SPAN_S = 6.0
SLIDING = CounterSpec(Meter.SLIDING, 6000, SPAN_S)


def test_a_saturated_limit_is_used_up_and_kept() -> None:
    """Four workers that want more than there is use at least 99 % of a limit, and never more than the leases above it."""
    world = World(CounterSpec(Meter.SLIDING, 600_000, 60.0), workers=4, seed=1)
    world.run(130.0, demand=5, biggest=250)
    most = world.judge.most_in_any(60.0)
    assert 600_000 * 0.993 <= most <= 600_000 * 1.007


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), workers=st.integers(1, 5), demand=st.integers(1, 4), trouble=st.booleans())
def test_no_window_holds_more_than_limit_and_leases(seed: int, workers: int, demand: int, trouble: bool) -> None:
    """Skewed clocks, lost, repeated and late messages: use in any window stays within the ceiling and what is leased or died."""
    world = World(SLIDING, workers=workers, seed=seed, trouble=trouble)
    for _ in range(8):
        world.run(1.5, demand=demand, biggest=100)
        for worker in world.workers:
            while worker.held and world.rng.random() < 0.9:
                world.settle(worker, world.rng.random())
    assert world.judge.most_in_any(SPAN_S) <= SLIDING.ceiling + world.allowance()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), trouble=st.booleans())
def test_nothing_leaks(seed: int, trouble: bool) -> None:
    """Workers die and are parted from the store; after a quiet time a fresh worker can use the whole ceiling."""
    world = World(SLIDING, workers=3, seed=seed, trouble=trouble)
    world.run(2.0, demand=3, biggest=100)
    world.kill(world.workers[0])
    world.partitioned.add("w1")
    world.run(3.0, demand=3, biggest=100)
    world.partitioned.clear()
    world.lose = world.repeat = world.delay_s = 0.0
    world.run(2 * SPAN_S + 3.0)
    assert world.ledger.statistics().leased == 0
    fresh = world.add_worker()
    world.run(0.1)
    world.use(fresh, SLIDING.ceiling)
    world.exchange(fresh)
    world.advance(0.2)
    assert world.use(fresh, SLIDING.ceiling)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), workers=st.integers(1, 4), trouble=st.booleans())
def test_a_store_that_forgot_is_told(seed: int, workers: int, trouble: bool) -> None:
    """A store that comes up empty in the middle of a saturated window admits no more than if it had remembered."""
    world = World(SLIDING, workers=workers, seed=seed, trouble=trouble)
    world.run(3.0, demand=4, biggest=100)
    world.restart_store()
    world.run(3 * SPAN_S, demand=4, biggest=100)
    assert world.judge.most_in_any(SPAN_S) <= SLIDING.ceiling + world.allowance()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_store_that_forgot_counts_nothing_twice(seed: int) -> None:
    """What the store is told after it forgot is exactly what the workers had used."""
    spec = CounterSpec(Meter.CALENDAR, 100_000, period=Period.MONTH)
    world = World(spec, workers=3, seed=seed)
    world.run(1.0, demand=3, biggest=100)
    world.restart_store()
    world.run(4.0, demand=1, biggest=100)
    world.run(3.0)
    used = sum(amount for _, amount in world.judge.uses)
    probe = world.add_worker()
    world.use(probe, 1)
    world.exchange(probe)
    world.advance(0.1)
    counter = probe.counters.counter("tenant-tokens;tenant=acme", spec, StoreDown.DENY, now=world.now + probe.skew_s)
    assert spec.ceiling - used == counter.available(now=world.now + probe.skew_s)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), trouble=st.booleans())
def test_places_come_back(seed: int, trouble: bool) -> None:
    """Never more run at once than there are places and leases; a dead worker's places are free after the lease's time."""
    spec = CounterSpec(Meter.PLACES, 20)
    world = World(spec, workers=3, seed=seed, trouble=trouble)
    most = 0
    for _ in range(30):
        world.run(0.2, demand=2)
        most = max(most, sum(len(worker.held) for worker in world.workers))
        for worker in world.workers:
            while worker.held and world.rng.random() < 0.5:
                world.settle(worker, 0.0)
    assert most <= spec.ceiling + world.ledger.statistics().expired
    world.kill(world.workers[0])
    for worker in world.workers[1:]:
        while worker.held:
            world.settle(worker, 0.0)
    world.lose = world.repeat = world.delay_s = 0.0
    world.run(3.0)
    fresh = world.add_worker()
    world.use(fresh, 20)
    world.exchange(fresh)
    world.advance(0.2)
    assert world.use(fresh, 20)


@pytest.mark.parametrize(
    ("policy", "least", "most"), [(StoreDown.DENY, 0, 0), (StoreDown.LOCAL_SHARE, 5000, 6000), (StoreDown.ALLOW, 7000, 10**9)]
)
def test_without_a_store_the_policy_decides(policy: StoreDown, least: int, most: int) -> None:
    """Parted from the store, workers deny, use their share, or allow; what they used is charged when it is back."""
    world = World(SLIDING, workers=4, seed=3, policy=policy)
    world.run(1.0)
    world.partitioned = {worker.name for worker in world.workers}
    world.run(2.0)
    before = len(world.judge.uses)
    world.run(2.0, demand=5, biggest=100)
    used = sum(amount for _, amount in world.judge.uses[before:])
    assert least <= used <= most
    world.partitioned.clear()
    world.run(1.0)
    assert 0 == world.ledger.statistics().leased
    if policy is not StoreDown.DENY:
        assert not any(world.use(worker, 6000 - min(used, 6000) + 1) for worker in world.workers)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), workers=st.integers(2, 4), places=st.integers(1, 4))
def test_as_many_clients_as_places_are_never_refused(seed: int, workers: int, places: int) -> None:
    """Each client sends its next request when the last one has ended, to any worker: within the waits of one gate it has its place."""
    rng = Random(seed)
    spec = CounterSpec(Meter.PLACES, places)
    ledger = LeaseLedger(epoch=1, now=0.0)
    sources = [LeasedCounters() for _ in range(workers)]
    now = 100.0
    due = [now + rng.random() * 0.06 for _ in sources]

    def exchange(index: int) -> None:
        claims = sources[index].claims(now=now)
        sources[index].note_asked(now=now)
        sources[index].receive(ledger.exchange(LeaseBatch(f"w{index}", claims), now=now), now=now)
        sources[index].serve_waiting()
        due[index] = now + rng.uniform(0.04, 0.06)

    for index, source in enumerate(sources):
        source.when_pressed(partial(exchange, index))
    runs: list[tuple[float, int]] = []
    for _ in range(150):
        if len(runs) == places:
            runs.sort(reverse=True)
            ends_at, index = runs.pop()
            while min(due) < ends_at:
                now = max(now, min(due))
                exchange(due.index(min(due)))
            now = max(now, ends_at)
            sources[index].counter("r", spec, StoreDown.DENY, now=now).give_back(1, 0, now=now)
        index = rng.randrange(workers)
        counter = sources[index].counter("r", spec, StoreDown.DENY, now=now)
        waits = 0
        while counter.take(1, now=now) is None:
            assert waits < LEAST_LEASE_WAITS
            assert counter.may_come(1, now=now, is_patient=True)
            while not sources[index].is_pressed() and min(due) != due[index]:
                now = max(now, min(due))
                exchange(due.index(min(due)))
            now = now if sources[index].is_pressed() else max(now, due[index])
            exchange(index)
            waits += 1
        runs.append((now + rng.choice((0.001, 0.02, 0.3)), index))
