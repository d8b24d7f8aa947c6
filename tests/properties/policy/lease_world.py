"""A store and several workers in simulated time, with a network that loses, repeats and delays, and a judge that counts by itself."""

from __future__ import annotations

from bisect import bisect_right
from random import Random

from tidegate.domain.leases import LeaseAnswer, LeaseBatch, LeaseClaim
from tidegate.domain.limits import CounterSpec, StoreDown
from tidegate.policy.metering.leases.leased_counter import LeasedCounter
from tidegate.policy.metering.leases.leased_counters import LeasedCounters
from tidegate.policy.metering.leases.ledger import LeaseLedger

NAME = "tenant-tokens;tenant=acme"
TICK_S = 0.05
TIMEOUT_S = 0.5


class Judge:
    """Notes what is used and when, and slides the window over it."""

    def __init__(self) -> None:
        self.uses: list[tuple[float, int]] = []

    def note(self, at: float, amount: int) -> int:
        """Give the number of the use, for `undo`."""
        self.uses.append((at, amount))
        return len(self.uses) - 1

    def undo(self, number: int, amount: int) -> None:
        at, used = self.uses[number]
        self.uses[number] = (at, used - amount)

    def most_in_any(self, span_s: float) -> int:
        times = [at for at, _ in self.uses]
        sums = [0]
        for _, amount in self.uses:
            sums.append(sums[-1] + amount)
        return max((sums[i + 1] - sums[bisect_right(times, times[i] - span_s)] for i in range(len(times))), default=0)


class Worker:
    """One worker whose clock is off by some amount."""

    def __init__(self, name: str, skew_s: float, spec: CounterSpec, policy: StoreDown) -> None:
        self.name = name
        self.skew_s = skew_s
        self.spec = spec
        self.policy = policy
        self.counters = LeasedCounters()
        self.held: list[tuple[int, int, int]] = []
        """(slot, amount, number at the judge) of requests that run."""
        self.dead = False

    def counter(self, now: float) -> LeasedCounter:
        return self.counters.counter(NAME, self.spec, self.policy, now=now + self.skew_s)

    def take(self, amount: int, now: float) -> int | None:
        counter = self.counter(now)
        slot = counter.take(amount, now=now + self.skew_s)
        if slot is None:
            counter.may_come(amount, now=now + self.skew_s)
        return slot

    def give_back(self, amount: int, slot: int, now: float) -> None:
        self.counter(now).give_back(amount, slot, now=now + self.skew_s)


class World:
    """All of it. With `trouble` a fifth of the messages is lost and another comes twice, each up to 150 ms late."""

    def __init__(
        self,
        spec: CounterSpec,
        *,
        workers: int,
        seed: int,
        trouble: bool = False,
        policy: StoreDown = StoreDown.DENY,
    ) -> None:
        self.rng = Random(seed)
        self.spec = spec
        self.policy = policy
        self.now = 100.0
        self.epoch = 1
        self.ledger = LeaseLedger(epoch=1, now=self.now - 60.0)
        self.judge = Judge()
        self.lose, self.repeat, self.delay_s = (0.2, 0.2, 0.15) if trouble else (0.0, 0.0, 0.0)
        self.partitioned: set[str] = set()
        self.workers: list[Worker] = []
        self.most_leased = 0
        self.expired = 0
        self.on_way: list[tuple[float, int, Worker, LeaseBatch | LeaseAnswer, tuple[LeaseClaim, ...]]] = []
        self.exchanges: list[tuple[float, Worker, tuple[LeaseClaim, ...]]] = []
        self._number = 0
        for _ in range(workers):
            self.add_worker()

    def add_worker(self) -> Worker:
        worker = Worker(f"w{len(self.workers)}", self.rng.uniform(-1e4, 1e4), self.spec, self.policy)
        self.workers.append(worker)
        return worker

    def restart_store(self) -> None:
        """It comes up empty."""
        self.expired += self.ledger.statistics().expired
        self.epoch += 1
        self.ledger = LeaseLedger(epoch=self.epoch, now=self.now)

    def kill(self, worker: Worker) -> None:
        worker.dead = True

    def use(self, worker: Worker, amount: int) -> bool:
        slot = worker.take(amount, self.now)
        if slot is None:
            return False
        worker.held.append((slot, amount, self.judge.note(self.now, amount)))
        return True

    def settle(self, worker: Worker, keep: float) -> None:
        """End the oldest request of a worker; a part of what it held was used."""
        slot, amount, number = worker.held.pop(0)
        back = amount - int(amount * keep)
        worker.give_back(back, slot, self.now)
        self.judge.undo(number, back)

    def exchange(self, worker: Worker) -> None:
        if worker.dead:
            return
        claims = worker.counters.claims(now=self.now + worker.skew_s)
        worker.counters.note_asked(now=self.now + worker.skew_s)
        self.exchanges.append((self.now + TIMEOUT_S, worker, claims))
        self._send(worker, LeaseBatch(worker.name, claims), claims)

    def advance(self, seconds: float) -> None:
        """Let time pass, and messages arrive."""
        until = self.now + seconds
        while self.on_way and min(self.on_way)[0] <= until:
            message = min(self.on_way)
            self.on_way.remove(message)
            self.now = max(self.now, message[0])
            self._arrive(*message[2:])
        self.now = until
        for late in [late for late in self.exchanges if late[0] <= self.now]:
            self.exchanges.remove(late)
            late[1].counters.lost(late[2])

    def run(self, seconds: float, *, demand: int = 0, biggest: int = 1) -> int:
        """Let every worker try `demand` requests per tick and talk to the store; give how many were admitted."""
        admitted = 0
        for _ in range(round(seconds / TICK_S)):
            for worker in self.workers:
                if worker.dead:
                    continue
                for _ in range(demand):
                    admitted += self.use(worker, self.rng.randint(1, biggest))
                self.exchange(worker)
                self.advance(TICK_S / len(self.workers) * self.rng.uniform(0.5, 1.5))
            self.most_leased = max(self.most_leased, self.ledger.statistics().leased)
        return admitted

    def allowance(self) -> int:
        """Units that may be used beyond the ceiling: what was leased at one time, and what died with a worker or a message."""
        return self.most_leased + self.expired + self.ledger.statistics().expired

    def _send(self, worker: Worker, message: LeaseBatch | LeaseAnswer, claims: tuple[LeaseClaim, ...]) -> None:
        for _ in range(1 + (self.rng.random() < self.repeat)):
            if self.rng.random() >= self.lose and worker.name not in self.partitioned:
                self._number += 1
                self.on_way.append((self.now + self.rng.uniform(0.0, self.delay_s), self._number, worker, message, claims))

    def _arrive(self, worker: Worker, message: LeaseBatch | LeaseAnswer, claims: tuple[LeaseClaim, ...]) -> None:
        if isinstance(message, LeaseBatch):
            self._send(worker, self.ledger.exchange(message, now=self.now), claims)
        elif not worker.dead:
            self.exchanges = [under_way for under_way in self.exchanges if under_way[2] is not claims]
            worker.counters.receive(message, now=self.now + worker.skew_s)
            worker.counters.serve_waiting()
