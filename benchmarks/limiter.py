"""Four processes ask one limit for more than it has; an independent count slides the window: `python -m benchmarks.limiter`.

Each process has the product's own limiter over leases from a real Redis (or the ledger process), offers its share of the admissions on
schedule, and logs what it settled by the machine's monotonic clock. The judge knows nothing of slots and leases.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from bisect import bisect_right
from collections import deque
from itertools import accumulate
from pathlib import Path
from random import Random

import uvloop

from tidegate.adapters.limits.keeper import Keeper
from tidegate.adapters.limits.redis_store import RedisStore
from tidegate.adapters.limits.socket_store import SocketStore
from tidegate.adapters.limits.store import LeaseStore
from tidegate.domain.demand import Demand
from tidegate.domain.limits import CounterSpec, LimitRule, LimitSubject, Meter, Resource, Scope, ScopeMatch, StoreDown
from tidegate.domain.principal import Limits
from tidegate.domain.units import KeyId, Secret, TenantId, UserId
from tidegate.policy.metering.leases.leased_counters import LeasedCounters
from tidegate.policy.metering.limiter import Limiter
from tidegate.ports import Denied, Permit, Short
from tidegate.testing import RedisServer

PROCESSES = 4
ADMISSIONS_PER_S = 15_000
MEAN_TOKENS = 180.0
WARM_UP_S = 2.0
TICK_S = 0.002
RUNS_FOR_TICKS = 5
"""A request is settled this long after it was admitted: ten milliseconds."""
DEADLINE_S = 0.25


class Offering:
    """One process's part."""

    def __init__(self, store: LeaseStore, *, seed: int, ceiling: int, span_s: float) -> None:
        spec = CounterSpec(Meter.SLIDING, ceiling, span_s)
        rule = LimitRule("tenant-tokens", Resource.TOKENS, spec, (ScopeMatch(Scope.TENANT),), on_store_down=StoreDown.DENY)
        counters = LeasedCounters()
        self.limiter = Limiter(counters, (rule,))
        self.rng = Random(seed)  # noqa: S311  load, not secrets
        rng = Random(os.urandom(8))  # noqa: S311  a name, not a secret
        self.keeper = Keeper(counters, store, worker=f"{rng.getrandbits(64):016x}", name="store", clock=time.monotonic, rng=rng)
        self.subject = LimitSubject(KeyId("key"), TenantId("acme"), UserId("user"))
        self.running: deque[list[tuple[Permit, Demand]]] = deque()
        self.settled_at, self.settled = array("d"), array("q")
        self.costs_ns = array("q")
        self.admitted = self.denied = self.waited = 0

    def ask(self) -> bool:
        """Admit, reserve, and in a while settle one request; False when it has to wait for a lease."""
        rng, now = self.rng, time.monotonic()
        demand = Demand(rng.randint(50, 150), rng.randint(80, 120))
        used = Demand(demand.input_tokens, rng.randint(40, 120))
        began = time.perf_counter_ns()
        permit = self.limiter.admit(self.subject, Limits(), now=now)
        assert not isinstance(permit, Denied | Short)
        refusal = permit.reserve(demand, now=now)
        self.costs_ns.append(time.perf_counter_ns() - began)
        if refusal is None:
            self.admitted += 1
            self.running[-1].append((permit, used))
            return True
        permit.cancel(now=now)
        if isinstance(refusal, Short):
            return False
        self.denied += 1
        return True

    async def ask_again(self) -> None:
        self.waited += 1
        await self.keeper.replenished(deadline_s=DEADLINE_S)
        if not self.ask():
            self.denied += 1

    def settle(self) -> None:
        """End what was admitted a while ago."""
        if len(self.running) > RUNS_FOR_TICKS:
            self.settle_all(self.running.popleft())

    def settle_all(self, ended: list[tuple[Permit, Demand]]) -> None:
        now = time.monotonic()
        began = time.perf_counter_ns()
        for permit, used in ended:
            permit.settle(used, now=now)
        if ended:
            self.costs_ns[-1] += (time.perf_counter_ns() - began) // len(ended)
            self.settled_at.append(now)
            self.settled.append(sum(used.tokens for _, used in ended))

    async def run(self, seconds: float, rate: float) -> None:
        self.keeper.start()
        began, asked, waiting = time.monotonic(), 0, set[asyncio.Task[None]]()
        while (passed := time.monotonic() - began) < seconds:
            self.running.append([])
            for _ in range(int(passed * rate) - asked):
                asked += 1
                if not self.ask():
                    task = asyncio.ensure_future(self.ask_again())
                    waiting.add(task)
                    task.add_done_callback(waiting.discard)
            self.settle()
            await asyncio.sleep(TICK_S)
        while self.running:
            self.settle_all(self.running.popleft())
        await self.keeper.aclose()


def offer(options: argparse.Namespace) -> None:
    """Be one of the processes, and leave what was seen in a directory."""

    async def offering() -> Offering:
        store: LeaseStore = RedisStore(Secret(options.store)) if "://" in options.store else SocketStore(options.store)
        offered = Offering(store, seed=options.offer, ceiling=ceiling_of(options), span_s=options.span)
        await offered.run(options.seconds, options.rate / PROCESSES)
        return offered

    done = uvloop.run(offering())
    directory = Path(options.directory)
    for name, values in (("at", done.settled_at), ("tokens", done.settled), ("costs", done.costs_ns)):
        (directory / f"{name}-{options.offer}").write_bytes(values.tobytes())
    (directory / f"counts-{options.offer}").write_text(f"{done.admitted} {done.denied} {done.waited}")


def ceiling_of(options: argparse.Namespace) -> int:
    """Give a limit that is worth the given part of what is offered."""
    return int(options.rate * MEAN_TOKENS * options.span * options.worth)


def judge(options: argparse.Namespace, directory: Path) -> None:
    """Slide the window over all that was settled, and print what was found."""
    events: list[tuple[float, int]] = []
    costs, counts = array("q"), [0, 0, 0]
    for number in range(PROCESSES):
        at, tokens = array("d"), array("q")
        at.frombytes((directory / f"at-{number}").read_bytes())
        tokens.frombytes((directory / f"tokens-{number}").read_bytes())
        costs.frombytes((directory / f"costs-{number}").read_bytes())
        counts = [sum(pair) for pair in zip(counts, map(int, (directory / f"counts-{number}").read_text().split()), strict=True)]
        events += zip(at, tokens, strict=True)
    events.sort()
    times = [at for at, _ in events]
    sums = [0, *accumulate(amount for _, amount in events)]
    windows = [
        sums[index + 1] - sums[bisect_right(times, end - options.span)]
        for index, end in enumerate(times)
        if end - options.span >= times[0] + WARM_UP_S
    ]
    ceiling = ceiling_of(options)
    spread = sorted(costs)
    print(f"limit {ceiling:,} tokens in any {options.span:g} s; offered {options.rate:,.0f} admissions/s for {options.seconds:g} s")
    print(f"admitted {counts[0]:,}, denied {counts[1]:,}, waited for a lease {counts[2]:,} ({counts[2] / sum(counts[:2]):.3%})")
    least, most = min(windows) / ceiling - 1, max(windows) / ceiling - 1
    print(f"settled in a window: {least:+.3%} to {most:+.3%} of the limit ({len(windows):,} windows)")
    print(
        f"admit + reserve + settle: median {statistics.median(spread) / 1000:.1f} us, p99 {spread[len(spread) * 99 // 100] / 1000:.1f} us"
    )


def measure(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="tidegate-limiter-") as directory, RedisServer() as redis:
        store = redis.url
        ledger = None
        if options.ledger:
            store = f"{directory}/ledger.sock"
            command = [sys.executable, "-m", "tidegate.node.ledger", "--socket", store]
            ledger = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert ledger.stdout is not None
            ledger.stdout.readline()
        else:
            time.sleep(0.1)
        settings = [f"--{name}={getattr(options, name)}" for name in ("seconds", "span", "rate", "worth")]
        commands = [
            [sys.executable, "-m", "benchmarks.limiter", f"--offer={number}", f"--store={store}", f"--directory={directory}", *settings]
            for number in range(PROCESSES)
        ]
        processes = [subprocess.Popen(command) for command in commands]
        codes = [process.wait(options.seconds + 60) for process in processes]
        if ledger is not None:
            ledger.terminate()
            ledger.communicate(timeout=10)
        assert codes == [0] * PROCESSES, codes
        judge(options, Path(directory))


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.limiter", description="Exactness of a limit that four processes share.")
    parser.add_argument("--seconds", type=float, default=140.0, help="how long load is offered; more than the window")
    parser.add_argument("--span", type=float, default=60.0, help="the window of the limit")
    parser.add_argument("--rate", type=float, default=float(ADMISSIONS_PER_S), help="admissions offered in a second by all together")
    parser.add_argument("--worth", type=float, default=0.8, help="the limit, as a part of what is offered")
    parser.add_argument("--ledger", action="store_true", help="the ledger process instead of Redis")
    parser.add_argument("--offer", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.offer is not None:
        offer(options)
    else:
        measure(options)


if __name__ == "__main__":
    main()
