"""Asks replicas how they are, each on a small pool of its own, and tells what changed.

Invariants: at most one question to a replica is under way; each has a deadline; only the status of an answer counts, its body is not read;
after `aclose` no task and no socket is left. What to believe is decided by `policy.resilience.health`.

A question opens a connection and gives it up soon after: a server that no longer accepts any is not alive, even if it would still answer
on one of yesterday.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from random import Random
from typing import Protocol

import msgspec

from tidegate.domain.units import Headers, ReplicaId
from tidegate.policy.resilience.health import HealthSettings, HealthVerdict, ReplicaHealth
from tidegate.ports import CallFailure, UpstreamClient, UpstreamRequest

_LOG = logging.getLogger("tidegate.health")


class HealthPool(UpstreamClient, Protocol):
    """Implemented by `http.client.UpstreamPool`."""

    async def aclose(self) -> None: ...


class HealthTarget(msgspec.Struct, frozen=True):
    """One replica to ask. The checker closes `pool`, which nothing else may use."""

    replica: ReplicaId
    pool: HealthPool
    path: str
    """From the pool's base URL."""
    headers: Headers
    settings: HealthSettings


class _Status:
    """Receives one call; `outcome` becomes its status, or why there was none."""

    __slots__ = ("outcome",)

    def __init__(self) -> None:
        self.outcome: asyncio.Future[int | CallFailure] = asyncio.get_running_loop().create_future()

    def call_connected(self) -> None: ...

    def response_started(self, status: int, headers: Headers) -> None:  # noqa: ARG002  the port's signature
        self._set(status)

    def response_chunk(self, chunk: bytes) -> None: ...

    def response_ended(self) -> None: ...

    def call_failed(self, failure: CallFailure) -> None:
        self._set(failure)

    def _set(self, outcome: int | CallFailure) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class _Watch:
    """One replica: its target, what is believed of it, and a way to wake its task."""

    __slots__ = ("health", "target", "wake")

    def __init__(self, target: HealthTarget, health: ReplicaHealth) -> None:
        self.target = target
        self.health = health
        self.wake = asyncio.Event()


class HealthChecker:
    """Asks from `start` to `aclose`. `on_verdict` hears each belief that is new, in the event loop; `clock` counts as its timers do."""

    def __init__(
        self,
        targets: Iterable[HealthTarget],
        *,
        clock: Callable[[], float],
        rng: Random,
        on_verdict: Callable[[ReplicaId, HealthVerdict], None],
    ) -> None:
        now = clock()
        self._watches = {target.replica: _Watch(target, ReplicaHealth(target.settings, now=now, rng=rng)) for target in targets}
        self._clock = clock
        self._on_verdict = on_verdict
        self._tasks: list[asyncio.Task[None]] = []

    def __repr__(self) -> str:
        return f"HealthChecker({', '.join(f'{name}: {watch.health.alive}' for name, watch in self._watches.items())})"

    @property
    def asked(self) -> frozenset[ReplicaId]:
        return frozenset(self._watches)

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._watch(watch), name=f"health {name}") for name, watch in self._watches.items()]

    def suspect(self, replica: ReplicaId, *, alive: bool) -> bool:
        """Ask a replica now that somebody else found dead, or alive; False when it is not asked here."""
        watch = self._watches.get(replica)
        if watch is None:
            return False
        watch.health.suspect(alive=alive, now=self._clock())
        watch.wake.set()
        return True

    def stop(self) -> None:
        """Ask and tell no more; `aclose` does the rest."""
        for task in self._tasks:
            task.cancel()

    async def aclose(self) -> None:
        """Stop asking and close every socket; safe to repeat."""
        self.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(watch.target.pool.aclose() for watch in self._watches.values()))

    async def _watch(self, watch: _Watch) -> None:
        while True:
            try:
                await self._wait_until_due(watch)
                verdict = await self._ask(watch)
                if verdict is not None:
                    self._on_verdict(watch.target.replica, verdict)
            except Exception:  # noqa: BLE001  the task's outermost frame: a fault of ours must not end the watch
                _LOG.exception("health.fault replica=%s", watch.target.replica)

    async def _wait_until_due(self, watch: _Watch) -> None:
        """Wait for the time of the next question, which `suspect` may bring forward."""
        while (delay_s := watch.health.next_at - self._clock()) > 0:
            watch.wake.clear()
            try:
                async with asyncio.timeout(delay_s):
                    await watch.wake.wait()
            except TimeoutError:
                return

    async def _ask(self, watch: _Watch) -> HealthVerdict | None:
        target, health = watch.target, watch.health
        health.ask(now=self._clock())
        status = _Status()
        call = target.pool.start(UpstreamRequest("GET", target.path, target.headers, b""), status)
        try:
            async with asyncio.timeout(target.settings.timeout_s):
                outcome = await status.outcome
        except TimeoutError:
            return health.unanswered(now=self._clock())
        finally:
            call.cancel()
        return health.unreachable(outcome.message) if isinstance(outcome, CallFailure) else health.answered(outcome)
