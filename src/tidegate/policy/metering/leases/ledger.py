"""The authority's side of shared limits: real counters, and who holds how much of each.

A lease is taken from the counter when it is given, and taken anew at each renewal: so what is used lies at most one exchange after where
it is counted. Invariants: a claim counts once, however often it arrives; what is leased and not reported as spent returns to the
counter when the lease is given back or dies; what was spent of a lease that had died is charged, so nothing is forgotten; a claim that
goes on with a counter's former life changes nothing, so nothing is counted twice.
"""

from __future__ import annotations

import msgspec

from tidegate.domain.leases import LEASE_S, LeaseAnswer, LeaseBatch, LeaseClaim, LeaseGrant, open_s
from tidegate.domain.limits import CounterSpec, Meter, Period, most_at_once
from tidegate.policy.metering.counter import Counter
from tidegate.policy.metering.local_counters import make_counter

ALIVE_S = 3.0
"""A worker that was silent for so long does not share the ceiling any more; it gives a sign of life twice a second."""
REMEMBERED_S = 10.0
"""Added to the time in which a use matters: for so long a claim may be late and still be known as one that counted."""

_SWEEP_EVERY_S = 10.0
_ORIGIN_BEFORE_S = 40 * 86_400.0  # slots of windows count from here: a use of the longest window that is told late has one too
_LIVES_PER_EPOCH = 1 << 24  # an epoch is at most 28 bits: together exact in msgpack, JSON and a float

_Key = tuple[str, Meter, float, Period]


class _Lease:
    """What one worker holds of one counter, and the last claim that counted."""

    __slots__ = ("amount", "grant", "heard_at", "slot")

    def __init__(self) -> None:
        self.amount = 0
        self.slot = 0
        self.heard_at = 0.0
        self.grant: LeaseGrant | None = None


class _Account:
    """One counter and its leases by worker."""

    __slots__ = ("counter", "leases", "life")

    def __init__(self, counter: Counter, life: int) -> None:
        self.counter = counter
        self.life = life
        self.leases: dict[str, _Lease] = {}


class LedgerStatistics(msgspec.Struct, frozen=True):
    counters: int
    workers: int
    leased: int
    """Units that workers hold, of all counters together."""
    expired: int
    """Units of leases that died, since the start: what was used of them is charged if their worker is ever heard of again."""


class LeaseLedger:
    """Grants leases. Counters are as many as the workers' rules allow; see `counter_register.MOST_PER_RULE`."""

    def __init__(self, *, epoch: int, now: float, epoch_s: float = 0.0, lease_s: float = LEASE_S) -> None:
        """`epoch`: drawn anew for each ledger, 1 to 2^28 - 1. `epoch_s`: see `calendar_window`."""
        self._epoch = epoch
        self._began_at = self._swept_at = now
        self._epoch_s = epoch_s
        self._lease_s = lease_s
        self._accounts: dict[_Key, _Account] = {}
        self._lives = 0
        self._expired = 0
        self._workers: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"LeaseLedger(epoch={self._epoch}, counters={len(self._accounts)}, workers={len(self._workers)})"

    def exchange(self, batch: LeaseBatch, *, now: float) -> LeaseAnswer:
        """Count what a worker reports and grant what it wants, as far as there is any."""
        self._sweep(now)
        self._workers[batch.worker] = now
        grants = tuple(self._settle(batch.worker, claim, now) for claim in batch.claims)
        alive = sum(now - heard_at < ALIVE_S for heard_at in self._workers.values())
        return LeaseAnswer(self._epoch, self.age_s(now=now), alive, grants)

    def age_s(self, *, now: float) -> float:
        """Give for how long it has been heard of."""
        return now - self._began_at

    def begin_with(self, counter: str, spec: CounterSpec, used: int, *, now: float) -> None:
        """Charge a counter for a use that was counted elsewhere, before anything is leased of it."""
        key = _key(counter, spec)
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = self._open(spec)
        account.counter.charge(used, now=now)

    def has_counter(self, counter: str, spec: CounterSpec) -> bool:
        """Tell whether something was counted already."""
        return _key(counter, spec) in self._accounts

    def statistics(self) -> LedgerStatistics:
        leased = sum(lease.amount for account in self._accounts.values() for lease in account.leases.values())
        return LedgerStatistics(len(self._accounts), len(self._workers), leased, self._expired)

    def _settle(self, worker: str, claim: LeaseClaim, now: float) -> LeaseGrant:
        key = _key(claim.counter, claim.spec)
        account = self._accounts.get(key)
        if claim.life and (account is None or account.life != claim.life):
            return LeaseGrant(counter=claim.counter, sequence=claim.sequence, life=0)
        if account is None:
            account = self._accounts[key] = self._open(claim.spec)
        account.counter.spec = claim.spec
        self._expire(account, now)
        lease = account.leases.get(worker)
        if lease is None:
            lease = account.leases[worker] = _Lease()
        if lease.grant is not None and claim.sequence <= lease.grant.sequence:
            return lease.grant
        _settle_up(account.counter, lease, claim, now)
        asked = claim.spare + claim.want
        lease.slot, granted = _take(account.counter, asked, now)
        lease.amount = claim.held + granted
        lease.heard_at = now
        lease.grant = LeaseGrant(
            counter=claim.counter,
            sequence=claim.sequence,
            life=account.life,
            granted=granted,
            slot=lease.slot,
            available=account.counter.available(now=now),
            reset_s=account.counter.reset_s(now=now),
            wait_s=_wait_s(account.counter, asked - granted, now),
        )
        return lease.grant

    def _open(self, spec: CounterSpec) -> _Account:
        self._lives += 1
        counter = make_counter(spec, origin=self._began_at - _ORIGIN_BEFORE_S, epoch_s=self._epoch_s)
        return _Account(counter, self._epoch * _LIVES_PER_EPOCH + self._lives % _LIVES_PER_EPOCH)

    def _expire(self, account: _Account, now: float) -> None:
        """Take back what was not renewed in time."""
        for lease in account.leases.values():
            if lease.amount and now - lease.heard_at >= self._lease_s:
                account.counter.give_back(lease.amount, lease.slot, now=now)
                self._expired += lease.amount
                lease.amount = 0

    def _sweep(self, now: float) -> None:
        """Forget, now and then, workers that are gone and counters that nobody uses."""
        if now - self._swept_at < _SWEEP_EVERY_S:
            return
        self._swept_at = now
        self._workers = {worker: heard_at for worker, heard_at in self._workers.items() if now - heard_at < ALIVE_S}
        for key, account in list(self._accounts.items()):
            self._expire(account, now)
            silent_s = open_s(account.counter.spec) + REMEMBERED_S
            account.leases = {worker: lease for worker, lease in account.leases.items() if now - lease.heard_at < silent_s}
            if not account.leases and account.counter.is_idle(now=now):
                del self._accounts[key]


def _key(counter: str, spec: CounterSpec) -> _Key:
    """Name a counter and how it counts: a ceiling may change while it is in use, the rest makes it another one."""
    return (counter, spec.meter, spec.span_s, spec.period)


def _settle_up(counter: Counter, lease: _Lease, claim: LeaseClaim, now: float) -> None:
    """Count what was used, and take the whole lease back."""
    covered = min(claim.spent, lease.amount)
    if lease.amount > covered:
        counter.give_back(lease.amount - covered, lease.slot, now=now)
    for slot, amount in claim.returned:
        counter.give_back(amount, slot, now=now)
    counter.charge(claim.spent - covered + claim.held, now=now)
    for age_s, amount in claim.owed:
        counter.charge(amount, now=now - age_s)


def _take(counter: Counter, asked: int, now: float) -> tuple[int, int]:
    """Take as much of what is asked for as there is; give slot and amount."""
    granted = min(asked, counter.available(now=now))
    slot = counter.take(granted, now=now)
    return (0, 0) if slot is None else (slot, granted)  # None: there is debt, and nothing to be had


def _wait_s(counter: Counter, lacking: int, now: float) -> float:
    if lacking == 0:
        return 0.0
    wait_s = counter.wait_s(min(lacking, most_at_once(counter.spec)), now=now)
    return 0.0 if wait_s is None else wait_s  # never None: it asks for no more than there could be
