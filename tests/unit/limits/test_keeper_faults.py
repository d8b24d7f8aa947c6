"""Leases from a real Redis that freezes, is slow, is cut off, is flushed, or comes back empty; and from a ledger process that is killed."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tidegate.adapters.limits.keeper import EXCHANGE_S, Keeper
from tidegate.adapters.limits.redis_store import RedisStore
from tidegate.adapters.limits.socket_store import SocketStore
from tidegate.adapters.limits.store import LeaseStore, StoreLost
from tidegate.domain.leases import LeaseBatch
from tidegate.domain.limits import CounterSpec, Meter, StoreDown
from tidegate.domain.units import Secret
from tidegate.policy.metering.leases.leased_counter import LeasedCounter
from tidegate.policy.metering.leases.leased_counters import LeasedCounters
from tidegate.testing import RedisServer
from tidegate.testing.tcp_relay import TcpRelay

pytestmark = pytest.mark.skipif(not RedisServer.is_installed(), reason="redis-server is not installed: apt-get install redis-server")

CEILING = 1000
SPEC = CounterSpec(Meter.SLIDING, CEILING, 60.0)
NAME = "tenant-requests;tenant=acme"
DEADLINE_S = 0.25
ENOUGH_S = 20.0
"""For what comes by itself, on a busy machine."""


class Process:
    """One worker's counters and their keeper."""

    def __init__(self, store: LeaseStore, policy: StoreDown = StoreDown.LOCAL_SHARE) -> None:
        self.name = NAME
        self.counters = LeasedCounters()
        self.keeper = Keeper(
            self.counters, store, worker=f"{Random().getrandbits(64):016x}", name="store", clock=time.monotonic, rng=Random()
        )
        self.policy = policy
        self.used = 0

    @property
    def counter(self) -> LeasedCounter:
        return self.counters.counter(self.name, SPEC, self.policy, now=time.monotonic())

    async def ask(self, amount: int = 1, *, deadline_s: float = DEADLINE_S) -> bool:
        """Do what a request does: take; when short, wait once and take again."""
        counter = self.counter
        if counter.take(amount, now=time.monotonic()) is None:
            if not counter.may_come(amount, now=time.monotonic()):
                return False
            await self.keeper.replenished(deadline_s=deadline_s)
            if counter.take(amount, now=time.monotonic()) is None:
                return False
        self.used += amount
        return True

    async def timed(self, amount: int = 1, *, deadline_s: float = DEADLINE_S) -> tuple[bool, float]:
        began = time.monotonic()
        return await self.ask(amount, deadline_s=deadline_s), time.monotonic() - began

    def level(self, name: str) -> float:
        return self.keeper.levels()[f"limits.{name}"]


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(ENOUGH_S):
        while not condition():  # noqa: ASYNC110  what is waited for happens in another process
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def workers(number: int, make: Callable[[], LeaseStore], policy: StoreDown = StoreDown.LOCAL_SHARE) -> AsyncIterator[list[Process]]:
    made = [Process(make(), policy) for _ in range(number)]
    for each in made:
        each.keeper.start()
    try:
        await asyncio.gather(*(each.keeper.wait_connected(deadline_s=ENOUGH_S) for each in made))
        await until(lambda: all(each.level("store_workers") == number and not each.level("store_settling") for each in made))
        yield made
    finally:
        await asyncio.gather(*(each.keeper.aclose() for each in made))


async def left(made: list[Process]) -> int:
    """Ask the store for what is left once nobody holds anything any more: idle leases are given back after a second."""
    await until(lambda: not any(each.level("lease_units") for each in made))
    await until(lambda: not any(each.keeper._under_way for each in made))  # the store has heard of it
    process = made[-1]
    process.counter.may_come(1, now=time.monotonic())
    await process.keeper.replenished(deadline_s=ENOUGH_S)
    return process.counter.available(now=time.monotonic())


async def come_to_have_left(made: list[Process], expected: int) -> None:
    """Wait until the store has heard of all that was used, with some later exchange, and see that it hears of nothing twice."""
    until_s = time.monotonic() + ENOUGH_S
    while expected != (found := await left(made)):
        assert time.monotonic() < until_s, f"{found} are left, not {expected}"
    assert expected == await left(made)


def test_workers_use_a_limit_up_and_no_more(redis: RedisServer) -> None:
    """Four workers, 200 calls at once, ten places in the minute: ten are admitted."""

    async def story() -> int:
        async with workers(4, lambda: RedisStore(Secret(redis.url))) as made:
            return sum(await asyncio.gather(*(made[n % 4].ask(CEILING // 10) for n in range(200))))

    assert 10 == asyncio.run(story())


def test_nobody_is_refused_while_something_is_left(redis: RedisServer) -> None:
    """Calls that come one after another, at any moment of an exchange: each gets its place until there is none."""

    async def story() -> list[int]:
        async with workers(2, lambda: RedisStore(Secret(redis.url)), StoreDown.DENY) as made:
            return [await chapter(made, seed, calls) for seed, calls in ((1, 15), (2, 15), (3, 100))]

    async def chapter(made: list[Process], seed: int, calls: int) -> int:
        """Begin with a counter of which nothing was used."""
        rng = Random(seed)
        for each in made:
            each.name = f"tenant-requests;tenant={seed}"

        async def call(process: Process) -> bool:
            await asyncio.sleep(rng.uniform(0.0, 0.03))
            return await process.ask(CEILING // 20, deadline_s=ENOUGH_S)

        return sum(await asyncio.gather(*(call(made[n % 2]) for n in range(calls))))

    assert [15, 15, 20] == asyncio.run(story())


def test_a_frozen_store(redis: RedisServer) -> None:
    """SIGSTOP: no request waits longer than its deadline, each worker keeps to its share, and all is charged after SIGCONT."""

    async def story() -> None:
        async with workers(2, lambda: RedisStore(Secret(redis.url))) as made:
            assert all([await each.ask(100) for each in made])
            redis.freeze()
            try:
                waits = [await made[0].timed(100) for _ in range(12)]
                await until(lambda: made[0].level("store_away") == 1.0)
                assert max(wait for _, wait in waits) < EXCHANGE_S, "an exchange would have had longer"
                while (await made[0].timed(100))[0]:
                    pass
                assert 500 == made[0].used
                quick = [(await made[0].timed(100))[1] for _ in range(20)]
                assert statistics.median(quick) < 0.05, "one look may fall into a pause of the machine"
            finally:
                redis.thaw()
            await until(lambda: not any(each.level("store_away") for each in made))
            await come_to_have_left(made, CEILING - 600)

    asyncio.run(story())


def test_a_slow_store(redis: RedisServer) -> None:
    """200 ms for every answer: a cold counter waits once, and the store is not called lost."""

    async def story() -> None:
        async with (
            TcpRelay(redis.port) as relay,
            workers(2, lambda: RedisStore(Secret(f"redis://127.0.0.1:{relay.port}/0"))) as made,
        ):
            relay.delay_s = 0.1
            await asyncio.sleep(0.3)
            is_admitted, wait_s = await made[0].timed(100, deadline_s=ENOUGH_S)
            assert is_admitted
            assert 0.15 < wait_s < 1.5, "one exchange, not several"
            await asyncio.sleep(1.0)
            assert [0.0, 0.0] == [each.level("store_away") for each in made]
            relay.delay_s = 0.0

    asyncio.run(story())


def test_a_store_that_is_cut_off(redis: RedisServer) -> None:
    """Packets vanish: the share is used meanwhile, and what was used is charged once when the way is open again."""

    async def story() -> None:
        async with (
            TcpRelay(redis.port) as relay,
            workers(2, lambda: RedisStore(Secret(f"redis://127.0.0.1:{relay.port}/0"))) as made,
        ):
            assert await made[0].ask(50)
            relay.drops = True
            await until(lambda: made[0].level("store_away") == 1.0)
            assert await made[0].ask(150)
            assert not await made[0].ask(400)
            relay.drops = False
            await until(lambda: not any(each.level("store_away") for each in made))
            await come_to_have_left(made, CEILING - 200)

    asyncio.run(story())


@pytest.mark.parametrize("how", ["flushed", "killed"])
def test_a_store_that_comes_back_empty(redis: RedisServer, how: str) -> None:
    """FLUSHALL, or kill and start: every worker tells what it used, so that nothing is forgotten and nothing counted twice."""

    async def story() -> None:
        async with workers(3, lambda: RedisStore(Secret(redis.url))) as made:
            for each in made:
                for _ in range(20):
                    assert await each.ask(10)
            if how == "flushed":
                redis.command("FLUSHALL")
            else:
                redis.kill()
                await until(lambda: all(each.level("store_away") for each in made))
                assert await made[0].ask(10)
                redis.start()
            await until(lambda: all(each.level("store_settling") for each in made))
            await until(lambda: not any(each.level("store_away") or each.level("store_settling") for each in made))
            await come_to_have_left(made, CEILING - sum(each.used for each in made))

    asyncio.run(story())


def test_denial_is_a_policy(redis: RedisServer) -> None:
    """A rule with `deny` refuses while the store is away, at once."""

    async def story() -> None:
        async with workers(1, lambda: RedisStore(Secret(redis.url)), StoreDown.DENY) as [one]:
            redis.kill()
            await until(lambda: one.level("store_away") == 1.0)
            assert not await one.ask()
            redis.start()

    asyncio.run(story())


def test_the_ledger_process_is_killed(tmp_path: Path) -> None:
    """Its successor is told what is in use; ten of 200 calls are admitted, whatever happens between."""
    path = str(tmp_path / "ledger.sock")

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tidegate.node.ledger", "--socket", path]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert b"listening" in process.stdout.readline()
        return process

    async def story(process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        async with workers(4, lambda: SocketStore(path)) as made:
            assert 5 == sum(await asyncio.gather(*(made[n % 4].ask(CEILING // 10) for n in range(5))))
            process.kill()
            process.communicate()
            process = start()
            await until(lambda: all(each.level("store_settling") for each in made))
            await until(lambda: not any(each.level("store_away") or each.level("store_settling") for each in made))
            assert 5 == sum(await asyncio.gather(*(made[n % 4].ask(CEILING // 10) for n in range(200))))
        return process

    process = asyncio.run(story(start()))
    process.terminate()
    process.communicate(timeout=5)
    assert 0 == process.returncode
    assert not Path(path).exists()


def test_what_is_wrong_is_said_without_the_password() -> None:
    """The reason of a loss names the cause and masks the password."""

    async def story() -> str:
        with RedisServer(password="canary-right") as server:
            store = RedisStore(Secret(f"redis://:canary-wrong@127.0.0.1:{server.port}/0"))
            with pytest.raises(StoreLost) as lost:
                await store.exchange(LeaseBatch("w"), deadline_s=1.0)
            await store.aclose()
        return str(lost.value)

    reason = asyncio.run(story())
    assert "password" in reason
    assert "canary" not in reason
