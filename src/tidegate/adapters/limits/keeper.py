"""One worker's exchange with the store that it shares limits with: about twenty times a second, and at once when a request waits.

Invariants: nobody waits for the store but who calls `replenished`, and that only until its deadline; a few exchanges are under way at
most; while the store is away it is tried again after growing pauses, and one line is logged when it goes and one when it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from random import Random

from tidegate.adapters.ending import end
from tidegate.adapters.limits.store import LeaseStore, StoreLost
from tidegate.domain.leases import LeaseBatch, LeaseClaim
from tidegate.policy.metering.leases.leased_counters import MOST_CLAIMS, LeasedCounters, Shortage, is_covered

TICK_S = 0.05
"""From one exchange to the next while there is something to say."""
BEAT_S = 0.5
"""From one sign of life to the next."""
EXCHANGE_S = 0.75
"""For one answer: less than a lease lives, more than a slow network takes."""
MOST_UNDER_WAY = 4
"""So that a slow store does not make a request wait for the exchange of others before its own."""
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.5

_LOG = logging.getLogger("tidegate.limits")


class Keeper:
    """Implements `ports.LeaseKeeper`, from `start` to `aclose`. `name`: for the log, without a password."""

    def __init__(
        self, counters: LeasedCounters, store: LeaseStore, *, worker: str, name: str, clock: Callable[[], float], rng: Random
    ) -> None:
        """`worker` names this process and this run: numbers of claims count from one."""
        self._counters = counters
        self._store = store
        self._name = name
        self._clock = clock
        self._rng = rng
        self._worker = worker
        self._wake = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()
        self._waiting: dict[asyncio.Future[None], tuple[Shortage, ...]] = {}
        self._asked_at = self._pause_ends_at = float("-inf")
        self._pause_s = _FIRST_PAUSE_S
        self._connected: bool | None = None
        self._first_answer = asyncio.Event()
        self._answered = float("-inf")
        """When the latest of the exchanges began that were answered."""
        self._exchanges = self._failures = 0
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"Keeper({self._name}, connected={bool(self._connected)}, exchanges={self._exchanges})"

    def start(self) -> None:
        self._counters.when_pressed(self._wake.set)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="leases")

    async def replenished(self, *, deadline_s: float) -> None:
        """Wait until what the counters are short of has been asked for and answered, or the store is lost, or the time is up."""
        shortages = self._counters.shortages()
        if not shortages or self._counters.is_away(now=self._clock()):
            self._counters.serve_waiting()
            return
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[None] = loop.create_future()
        self._waiting[answered] = shortages
        if self._counters.is_pressed():
            self._wake.set()
        timer = loop.call_later(deadline_s, _resolve, answered)
        try:
            await answered  # itself, and no `asyncio.wait`: whoever waits is to take its units before the next claims are made
        finally:
            timer.cancel()
            del self._waiting[answered]
            self._counters.serve_waiting()  # whoever waits for this asks again in the same turn of the loop

    async def wait_connected(self, *, deadline_s: float) -> None:
        """Wait for the first answer of the store, so that a process begins as one of many; or until the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                await self._first_answer.wait()

    def levels(self) -> dict[str, float]:
        return {f"limits.{name}": value for name, value in self._counters.levels(now=self._clock()).items()}

    def counters(self) -> dict[str, float]:
        return {"limits.exchanges": float(self._exchanges), "limits.exchange_failures": float(self._failures)}

    async def aclose(self) -> None:
        """Stop; leases that are left die by themselves. Safe to repeat."""
        await end(*([self._task] if self._task is not None else []), *self._under_way)
        await self._store.aclose()

    async def _run(self) -> None:
        while True:
            await self._wait()
            now = self._clock()
            if now < self._pause_ends_at or len(self._under_way) >= MOST_UNDER_WAY:
                continue
            claims = self._counters.claims(now=now)
            if not claims and now - self._asked_at < BEAT_S:
                continue
            self._asked_at = now
            self._counters.note_asked(now=now)
            task = asyncio.get_running_loop().create_task(self._exchange(claims), name="lease exchange")
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            if len(claims) == MOST_CLAIMS:
                self._wake.set()  # there is more to say

    async def _wait(self) -> None:
        """Wait for the next tick, or until a request waits for what was not asked yet."""
        waker = asyncio.get_running_loop().call_later(TICK_S * (0.8 + 0.4 * self._rng.random()), self._wake.set)
        await self._wake.wait()
        self._wake.clear()
        waker.cancel()

    async def _exchange(self, claims: tuple[LeaseClaim, ...]) -> None:
        began_at = self._clock()
        try:
            answer = await self._store.exchange(LeaseBatch(self._worker, claims), deadline_s=EXCHANGE_S)
            self._counters.receive(answer, now=self._clock())
        except StoreLost as problem:
            if began_at < self._answered:  # what was asked later has its answer: this went astray, and nothing is lost but it
                self._failures += 1
                self._counters.unanswered(claims)
            else:
                self._note_lost(claims, str(problem))
        except Exception:  # noqa: BLE001  the task's outermost frame: a fault of ours must not end the exchange
            _LOG.exception("limits.fault store=%s", self._name)
            self._note_lost(claims, "a fault of the gateway, see the lines above")
        else:
            self._exchanges += 1
            self._answered = max(self._answered, began_at)
            self._first_answer.set()
            self._pause_s = _FIRST_PAUSE_S
            self._pause_ends_at = float("-inf")
            if not self._connected:
                self._connected = True
                _LOG.info("limits.store_connected store=%s", self._name)
        self._tell_waiting()
        if self._counters.is_pressed():
            self._wake.set()

    def _note_lost(self, claims: tuple[LeaseClaim, ...], reason: str) -> None:
        self._failures += 1
        self._counters.lost(claims)
        self._pause_ends_at = self._clock() + self._pause_s * (0.5 + 0.5 * self._rng.random())
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        if self._connected is not False:
            self._connected = False
            _LOG.warning("limits.store_lost store=%s reason=%r; limits follow their on_store_down until it is back", self._name, reason)

    def _tell_waiting(self) -> None:
        is_lost = self._connected is False
        for answered, shortages in self._waiting.items():
            if is_lost or all(is_covered(shortage) for shortage in shortages):
                _resolve(answered)


def _resolve(waited_for: asyncio.Future[None]) -> None:
    if not waited_for.done():
        waited_for.set_result(None)
