"""The script in a real Redis grants what the ledger grants."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tidegate.adapters.limits.redis_store import RedisStore
from tidegate.domain.leases import LeaseBatch, LeaseClaim, LeaseGrant
from tidegate.domain.limits import CounterSpec, Meter, Period
from tidegate.domain.units import Secret
from tidegate.policy.metering.leases.ledger import LeaseLedger
from tidegate.testing import RedisServer

pytestmark = pytest.mark.skipif(not RedisServer.is_installed(), reason="redis-server is not installed: apt-get install redis-server")

SPECS = (
    CounterSpec(Meter.SLIDING, 100, 6.0),
    CounterSpec(Meter.SLIDING, 1000, 60.0),
    CounterSpec(Meter.GCRA, 50, 5.0, burst=20),
    CounterSpec(Meter.CALENDAR, 200, period=Period.HOUR),
    CounterSpec(Meter.CALENDAR, 200, period=Period.DAY),
    CounterSpec(Meter.CALENDAR, 200, period=Period.MONTH),
    CounterSpec(Meter.PLACES, 20),
)
BEGAN_AT = 1_700_000_000.0

steps = st.lists(
    st.tuples(
        st.sampled_from([1, 3, 8, 40, 100, 500, 64 * 3600, 64 * 86_400]),  # ticks of 1/64 s: exact in a float
        st.integers(0, 2),  # which worker
        st.integers(0, 30),  # spent, at most what is leased and some more
        st.integers(0, 10),  # kept
        st.integers(0, 60),  # wanted
        st.integers(0, 15),  # returned of the lease before
        st.sampled_from([(), ((0.0, 7),), ((0.5, 3), (0.25, 4)), ((3.0, 200),)]),  # owed
        st.booleans(),  # said twice
        st.sampled_from([1.0, 1.0, 1.0, 0.5, 1.5]),  # the ceiling that holds
    ),
    min_size=1,
    max_size=25,
)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.meter}-{spec.span_s:g}-{spec.period}")
def test_ledger_and_script_agree(server: RedisServer, spec: CounterSpec) -> None:
    """The same claims at the same times give the same grants, whatever the meter."""

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(steps=steps)
    def law(steps: list[tuple[int, int, int, int, int, int, tuple[tuple[float, int], ...], bool, float]]) -> None:
        server.command("FLUSHALL")
        asyncio.run(compare(server.url, spec, steps))

    law()


async def compare(
    url: str, spec: CounterSpec, steps: list[tuple[int, int, int, int, int, int, tuple[tuple[float, int], ...], bool, float]]
) -> None:
    store = RedisStore(Secret(url))
    ledger = LeaseLedger(epoch=1, now=BEGAN_AT)
    last: dict[str, tuple[LeaseGrant, LeaseGrant]] = {}
    lives = (0, 0)
    now = BEGAN_AT
    try:
        for sequence, (ticks, number, spent, kept, want, returned, owed, twice, part) in enumerate(steps, start=1):
            now += ticks / 64
            worker = f"w{number}"
            before = last.get(worker)
            is_places = spec.meter is Meter.PLACES
            claim = LeaseClaim(
                counter="rule;key=a}b",
                spec=replace(spec, ceiling=int(spec.ceiling * part)),
                sequence=sequence,
                life=0,
                spent=0 if is_places else spent,
                held=spent % 5 if is_places else 0,
                spare=min(kept, before[0].granted if before else 0),
                want=want,
                owed=() if is_places else owed,
            )
            mine, theirs = claim, claim
            if before and returned and not is_places:
                mine = replace(claim, returned=((before[0].slot, returned),))
                theirs = replace(claim, returned=((before[1].slot, returned),))
            for _ in range(1 + twice):
                store.clock = ledger._swept_at = now  # the ledger forgets by its clock, Redis by one that nobody can move
                [one] = ledger.exchange(LeaseBatch(worker, (replace(mine, life=lives[0]),)), now=now).grants
                [two] = (await store.exchange(LeaseBatch(worker, (replace(theirs, life=lives[1]),)), deadline_s=5.0)).grants
                assert strip(one) == strip(two)
                assert one.reset_s == pytest.approx(two.reset_s, abs=1e-5)
                assert one.wait_s == pytest.approx(two.wait_s, abs=1e-5)
                now += 1 / 64
            lives = (one.life, two.life)
            last[worker] = (one, two)
    finally:
        await store.aclose()


def strip(grant: LeaseGrant) -> LeaseGrant:
    """Leave out what names a life or a slot, and the times that are compared by and by."""
    return replace(grant, life=min(grant.life, 1), slot=0, reset_s=0.0, wait_s=0.0)
