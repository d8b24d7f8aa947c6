"""One worker's lookout: who is asked, what follows when a replica goes down or comes back, and what other nodes say of it.

Invariants: a change is told to the fleet first, then logged once, then to the calls that wait there; what another node says is never
believed for longer than `HOLD_S` where this one cannot ask for itself; a reload begins with what the fleet knew, and ends every question
of the configuration before. The local engine has its supervisor and is not asked.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from tidegate.adapters.health.checker import HealthChecker, HealthTarget
from tidegate.adapters.health.news import News, NewsSource
from tidegate.adapters.health.share import HealthShare, ShareSettings
from tidegate.config.schema import Configuration, UpstreamSection
from tidegate.config.words import is_loopback
from tidegate.domain.units import ReplicaId, UpstreamName
from tidegate.domain.upstream import BreakerPhase, ReplicaPhase
from tidegate.errors import ConfigurationError
from tidegate.gateway.owned_tasks import OwnedTasks
from tidegate.http.client import PoolSettings, UpstreamPool, proxy_from_environment
from tidegate.http.origin import Origin
from tidegate.policy.resilience.health import HealthSettings, HealthVerdict
from tidegate.policy.routing.fleet import Fleet
from tidegate.wire.dialects import DIALECTS
from tidegate.wiring.parts import LOCAL_REPLICA, members_of, upstream_headers

_LOG = logging.getLogger("tidegate.health")

HOLD_S = 10.0
"""How long another node's word takes a replica out that is not asked from here."""
_LOOK_S = 1.0
"""How often breakers are looked at, to tell other nodes of those that opened."""
_CONNECTIONS = 2  # one question at a time, and the last one's socket may still be closing
_IDLE_S = 0.2  # shorter than any useful pause between two questions: each opens a connection of its own
_BROKEN = frozenset({BreakerPhase.OPEN, BreakerPhase.HALF_OPEN})


class WatchPlan(msgspec.Struct, frozen=True):
    """What a configuration says about health, made ready; nothing is open yet."""

    targets: tuple[HealthTarget, ...]
    addresses: Mapping[ReplicaId, str]
    """How nodes name replicas to each other: scheme, host, port and path."""
    shared: ShareSettings | None


class LookoutOwner(Protocol):
    """What the lookout needs of the gateway."""

    tasks: OwnedTasks

    def replica_lost(self, replica: ReplicaId, reason: str) -> int: ...


class _Changes:
    __slots__ = ("came_back", "went_down")

    def __init__(self) -> None:
        self.went_down = self.came_back = 0


def watch_plan(configuration: Configuration) -> WatchPlan:
    """Find out who is asked and how; `ConfigurationError` when the store for sharing cannot be used at all."""
    targets, addresses = [], {}
    for name, section in configuration.upstreams.items():
        for replica, each in members_of(name, section):
            origin = Origin.parse(each.base_url)
            addresses[replica] = f"{origin.label}{origin.prefix}"
            if section.health.enabled is True or (section.health.enabled is None and origin.scheme == "http"):
                targets.append(_target(replica, section, origin))
    return WatchPlan(tuple(targets), addresses, _share_settings(configuration))


def _target(replica: ReplicaId, section: UpstreamSection, origin: Origin) -> HealthTarget:
    """Ask over a pool that begins at the server's root, so that a path beside the base URL needs no dots."""
    health = section.health
    root = f"{origin.scheme}://{origin.authority}"
    pool = UpstreamPool(
        PoolSettings(
            base_url=root,
            max_connections=_CONNECTIONS,
            max_waiting=_CONNECTIONS,
            idle_timeout_s=_IDLE_S,
            connect_timeout_s=health.timeout_s,
            verify_tls=section.verify_tls,
            proxy=proxy_from_environment(root, os.environ),
        )
    )
    path = health.path or DIALECTS[section.dialect].health_path or f"{origin.prefix}/models"
    settings = HealthSettings(health.every_s, health.timeout_s, health.failures)
    return HealthTarget(replica, pool, path, upstream_headers(section), settings)


def _share_settings(configuration: Configuration) -> ShareSettings | None:
    shared = configuration.shared
    if shared is None:
        return None
    try:
        from tidegate.adapters.health.redis_link import check_address  # imported only where a store is configured
    except ModuleNotFoundError:
        raise ConfigurationError(
            "shared.redis_url needs the package redis, which is not installed: pip install 'tidegate[redis]', or delete the section shared"
        ) from None
    check_address(shared.redis_url)
    return ShareSettings(shared.redis_url, shared.channel, shared.timeout_s)


class Lookout:
    """Watches from the first `commit` to `aclose`. `clock` is the gateway's."""

    def __init__(self, gateway: LookoutOwner, *, clock: Callable[[], float], rng: Random) -> None:
        self._gateway = gateway
        self._clock = clock
        self._rng = rng
        self._plan = WatchPlan((), {}, None)
        self._fleet = Fleet(())
        self._checker = HealthChecker((), clock=clock, rng=rng, on_verdict=self._on_verdict)
        self._share: HealthShare | None = None
        self._look: asyncio.Task[None] | None = None
        self._held: dict[ReplicaId, asyncio.TimerHandle] = {}
        """Replicas that are out on another node's word, until their timers run."""
        self._broken: set[ReplicaId] = set()
        """Replicas whose open breaker other nodes were told of."""
        self._changes: dict[UpstreamName, _Changes] = {}
        self._said_before = self._heard_before = self._lost_before = 0
        """Counts of earlier shares: counters must not fall at a reload."""

    def __repr__(self) -> str:
        return f"Lookout({self._checker!r}, {self._share!r})"

    def commit(self, plan: WatchPlan, fleet: Fleet) -> None:
        """Watch the replicas of this plan, and no others."""
        gone = set(self._plan.addresses.values()) - set(plan.addresses.values())
        retired, shared_before = self._checker, self._plan.shared
        retired.stop()
        self._plan, self._fleet = plan, fleet
        for replica in list(self._held):
            self._held.pop(replica).cancel()
        self._broken &= set(plan.addresses)
        self._checker = HealthChecker(plan.targets, clock=self._clock, rng=self._rng, on_verdict=self._on_verdict)
        for replica in fleet.replicas:
            if replica not in self._checker.asked and replica != LOCAL_REPLICA:
                self._report(replica, alive=True)  # nobody would ever say so
        self._checker.start()
        if retired.asked:
            self._gateway.tasks.start(retired.aclose())
        if self._share is not None and plan.shared == shared_before:
            self._share.forget(gone)
        else:
            self._replace_share(plan.shared)

    def levels(self) -> dict[str, float]:
        if self._share is None:
            return {}
        return {"shared.workers": 1.0, "shared.connected": float(self._share.statistics().connected)}

    def counters(self) -> dict[str, float]:
        if self._share is None and not self._said_before + self._heard_before + self._lost_before:
            return {}
        sent, received, lost = self._said_before, self._heard_before, self._lost_before
        if self._share is not None:
            now = self._share.statistics()
            sent, received, lost = sent + now.sent, received + now.received, lost + now.lost
        return {"shared.sent": float(sent), "shared.received": float(received), "shared.lost": float(lost)}

    def upstream_counters(self, upstream: UpstreamName) -> dict[str, float]:
        """Give how often a replica of an upstream went down or came back."""
        changes = self._changes.get(upstream)
        if changes is None:
            return {}
        return {"health_went_down": float(changes.went_down), "health_came_back": float(changes.came_back)}

    async def aclose(self) -> None:
        """Ask, hear and say no more; safe to repeat."""
        for timer in self._held.values():
            timer.cancel()
        self._held.clear()
        await asyncio.gather(self._checker.aclose(), self._stop_sharing())

    # ── what was found here ───────────────────────────────────────────────────

    def _on_verdict(self, replica: ReplicaId, verdict: HealthVerdict) -> None:
        self._report(replica, alive=verdict.alive, reason=verdict.reason, doubted=verdict.doubted)
        if verdict.doubted:
            return  # no news for other nodes: they ask for themselves
        address = self._plan.addresses.get(replica)
        if self._share is not None and address is not None:
            self._share.publish(address, alive=verdict.alive, source=NewsSource.CHECK, reason=verdict.reason)

    def _report(self, replica: ReplicaId, *, alive: bool, reason: str = "", doubted: bool = False) -> None:
        """Tell the fleet; when it is news there, tell people, and the calls that wait for a dead replica."""
        if not self._fleet.report(replica, alive=alive, reason=reason, now=self._clock(), doubted=doubted):
            return
        changes = self._changes.setdefault(self._fleet.replicas[replica].upstream, _Changes())
        if alive:
            changes.came_back += 1
            _LOG.info("upstream.came_back replica=%s", replica)
        else:
            changes.went_down += 1
            moved = self._gateway.replica_lost(replica, reason)
            _LOG.warning("upstream.went_down replica=%s calls=%d reason=%r", replica, moved, reason)

    async def _look_at_breakers(self, share: HealthShare) -> None:
        """Tell other nodes of breakers that opened, and closed again."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                self._tell_of_breakers(share)
            except Exception:  # noqa: BLE001  the task's outermost frame: a fault of ours must not end the sharing
                _LOG.exception("health.fault breakers")

    def _tell_of_breakers(self, share: HealthShare) -> None:
        for status in self._fleet.statistics(now=self._clock()):
            address = self._plan.addresses.get(status.replica)
            broken = status.breaker in _BROKEN
            if address is None or broken is (status.replica in self._broken):
                continue
            self._broken ^= {status.replica}
            share.publish(address, alive=not broken, source=NewsSource.BREAKER, reason=status.why)

    # ── what was found elsewhere ──────────────────────────────────────────────

    def _on_news(self, news: News) -> None:
        for replica, address in self._plan.addresses.items():
            if address == news.address and not self._checker.suspect(replica, alive=news.alive):
                self._believe(replica, news)

    def _believe(self, replica: ReplicaId, news: News) -> None:
        """Go by another node's word, since nobody asks from here.

        Not about a loopback address, which is another server there; and not that calls fail there while they succeed here: its key may be
        what is wrong.
        """
        if is_loopback(urlsplit(news.address).hostname or ""):
            return
        if news.alive:
            self._release(replica)
        elif news.source is NewsSource.CHECK or not self._works_here(replica):
            held = self._held.pop(replica, None)
            if held is not None:
                held.cancel()
            self._held[replica] = asyncio.get_running_loop().call_later(HOLD_S, self._release, replica)
            self._report(replica, alive=False, reason=f"another node found it down: {news.reason}")

    def _works_here(self, replica: ReplicaId) -> bool:
        statuses = self._fleet.statistics(now=self._clock())
        return any(status.replica == replica and status.phase is ReplicaPhase.READY for status in statuses)

    def _release(self, replica: ReplicaId) -> None:
        held = self._held.pop(replica, None)
        if held is not None:
            held.cancel()
            self._report(replica, alive=True)

    # ── the share ─────────────────────────────────────────────────────────────

    def _replace_share(self, settings: ShareSettings | None) -> None:
        if self._share is not None:
            retired = self._share.statistics()
            self._said_before += retired.sent
            self._heard_before += retired.received
            self._lost_before += retired.lost
            self._gateway.tasks.start(_close(self._share, self._look))
        self._share = self._look = None
        self._broken.clear()
        if settings is not None:
            self._share = HealthShare(
                settings,
                rng=self._rng,
                clock=self._clock,
                on_news=self._on_news,
                addresses=lambda: dict.fromkeys(self._plan.addresses.values()),
            )
            self._share.start()
            looking: Coroutine[None, None, None] = self._look_at_breakers(self._share)
            self._look = asyncio.get_running_loop().create_task(looking, name="health breakers")

    async def _stop_sharing(self) -> None:
        if self._share is not None:
            await _close(self._share, self._look)


async def _close(share: HealthShare, look: asyncio.Task[None] | None) -> None:
    if look is not None:
        look.cancel()
        await asyncio.gather(look, return_exceptions=True)
    await share.aclose()
