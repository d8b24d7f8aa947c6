"""Laws of shared limits in simulated time: however messages are lost, repeated and late, workers die and the store forgets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.policy.lease_world import World

from tidegate.domain.limits import CounterSpec, Meter, Period, StoreDown

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
