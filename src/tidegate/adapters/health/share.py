"""Tells other nodes which replicas went down and came back, and hears what they tell, through a store with channels (Redis, Valkey).

Invariants: nothing here makes anybody wait, `publish` only notes what is to be said; the store may be away, frozen, slow or forgetful, and
all that changes is that each node finds out by itself; one line is logged when it goes and one when it is back. What waits to be said is
the latest of each address, so it is bounded and still true when it can be said at last.

A channel has no memory. So what is down is kept beside it, under a key of its own for each address that expires unless it is repeated;
whoever connects, or connects again, asks for the keys of the addresses it knows, and says again what it holds for down itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from tidegate.adapters.ending import end
from tidegate.adapters.health.news import VERSION, Hearing, News, NewsSource, decode, encode
from tidegate.domain.units import Secret

_LOG = logging.getLogger("tidegate.health")

KEEP_S = 30.0
"""How long what is down is remembered after its node has fallen silent."""
_REPEAT_S = 10.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_STEADY_S = 5.0
"""A connection that held this long was a good one: after it the pauses begin anew."""


class LinkLost(Exception):
    """The store cannot be used; the text says why, without a password."""


class StoreLink(Protocol):
    """Implemented by `redis_link.RedisLink`; what goes wrong there is a `LinkLost`."""

    async def say(self, message: bytes, key: str, *, keep_s: float | None) -> None: ...
    async def keep(self, messages: Sequence[tuple[str, bytes]], *, keep_s: float) -> None: ...
    async def recall(self, keys: Sequence[str]) -> list[bytes]: ...
    async def hear(self) -> bytes: ...
    async def aclose(self) -> None: ...


class ShareSettings(msgspec.Struct, frozen=True):
    """As in the configuration's `shared`."""

    redis_url: Secret
    channel: str = "tidegate:health"
    timeout_s: float = 1.0


class ShareStatistics(msgspec.Struct, frozen=True):
    """`connected` at this instant; the others since the start."""

    connected: bool
    sent: int
    received: int
    """From other nodes, and later than what was known."""
    lost: int
    """Times the store went away."""


class HealthShare:
    """Speaks and listens from `start` to `aclose`. `on_news` hears what other nodes say, in the event loop."""

    def __init__(
        self,
        settings: ShareSettings,
        *,
        rng: Random,
        clock: Callable[[], float],
        on_news: Callable[[News], None],
        addresses: Callable[[], Iterable[str]],
        open_link: Callable[[], Awaitable[StoreLink]] | None = None,
    ) -> None:
        self.settings = settings
        self.node = f"{rng.getrandbits(64):016x}"
        """Of this process and this run: numbers count from one."""
        self._rng = rng
        self._clock = clock
        self._on_news = on_news
        self._addresses = addresses
        self._open_link = open_link or self._open_redis
        self._hearing = Hearing(self.node)
        self._number = 0
        self._unsaid: dict[tuple[str, NewsSource], News] = {}
        self._down: dict[tuple[str, NewsSource], News] = {}
        self._wake = asyncio.Event()
        self._connected: bool | None = None
        self._sent = self._received = self._lost = 0
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"HealthShare({self._store}, connected={bool(self._connected)}, down={len(self._down)})"

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="health share")

    def publish(self, address: str, *, alive: bool, source: NewsSource, reason: str = "") -> None:
        """Say that this node found a replica dead, or alive again. Never waits."""
        subject = (address, source)
        news = News(VERSION, self.node, 0, address, alive, source, reason)
        if not alive:
            self._down[subject] = news
        elif self._down.pop(subject, None) is None:
            return  # nobody was told that it was down
        self._unsaid[subject] = news
        self._wake.set()

    def forget(self, addresses: Iterable[str]) -> None:
        """Say no more of addresses that are configured no longer."""
        gone = set(addresses)
        for waiting in (self._down, self._unsaid):
            for subject in [subject for subject in waiting if subject[0] in gone]:
                del waiting[subject]

    def statistics(self) -> ShareStatistics:
        return ShareStatistics(bool(self._connected), self._sent, self._received, self._lost)

    async def aclose(self) -> None:
        """Fall silent; safe to repeat."""
        if self._task is not None:
            await end(self._task)

    # ── connecting ────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            began_at = self._clock()
            try:
                await self._converse()
            except LinkLost as problem:
                self._note_lost(str(problem))
            except Exception:  # noqa: BLE001  the task's outermost frame: a fault of ours must not end the sharing
                _LOG.exception("shared.fault store=%s", self._store)
                self._note_lost("a fault of the gateway, see the lines above")
            if self._clock() - began_at >= _STEADY_S:
                pause_s = _FIRST_PAUSE_S
            await asyncio.sleep(pause_s * (0.5 + 0.5 * self._rng.random()))
            pause_s = min(2.0 * pause_s, _LONGEST_PAUSE_S)

    async def _converse(self) -> None:
        """Connect, and speak and listen until the store is lost."""
        link = await self._open_link()
        try:
            for message in await link.recall([self._key(address) for address in self._addresses()]):
                self._take(message)
            self._unsaid = self._down | self._unsaid
            self._note_connected()
            await _first_failure(self._speak(link), self._listen(link))
        finally:
            await link.aclose()

    async def _open_redis(self) -> StoreLink:
        from tidegate.adapters.health.redis_link import RedisLink  # imported only where a store is configured

        return await RedisLink.open(self.settings.redis_url, self.settings.channel, timeout_s=self.settings.timeout_s)

    def _note_connected(self) -> None:
        self._connected = True
        _LOG.info("shared.connected store=%s channel=%s", self._store, self.settings.channel)

    def _note_lost(self, reason: str) -> None:
        if self._connected is not False:
            self._connected = False
            self._lost += 1
            _LOG.warning("shared.lost store=%s reason=%r; this node judges replicas by itself until the store is back", self._store, reason)

    @property
    def _store(self) -> str:
        """The address without user, password and options."""
        parts = urlsplit(self.settings.redis_url.reveal())
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    # ── speaking ──────────────────────────────────────────────────────────────

    async def _speak(self, link: StoreLink) -> None:
        while True:
            self._wake.clear()
            for subject, news in list(self._unsaid.items()):
                await link.say(self._encoded(news), self._key(news.address), keep_s=None if news.alive else KEEP_S)
                self._sent += 1
                if self._unsaid.get(subject) is news:
                    del self._unsaid[subject]
            try:
                async with asyncio.timeout(_REPEAT_S):
                    await self._wake.wait()
            except TimeoutError:
                kept = [(self._key(news.address), self._encoded(news)) for news in self._down.values()]
                if kept:
                    await link.keep(kept, keep_s=KEEP_S)

    def _encoded(self, news: News) -> bytes:
        self._number += 1
        return encode(msgspec.structs.replace(news, number=self._number))

    def _key(self, address: str) -> str:
        return f"{self.settings.channel}:down:{address}"

    # ── listening ─────────────────────────────────────────────────────────────

    async def _listen(self, link: StoreLink) -> None:
        while True:
            self._take(await link.hear())

    def _take(self, message: bytes) -> None:
        news = decode(message)
        if news is not None and self._hearing.is_fresh(news):
            self._received += 1
            self._on_news(news)


async def _first_failure(*works: Awaitable[None]) -> None:
    """Run these until one fails, and then none; raise its failure."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(*tasks)
    for task in tasks:
        if not task.cancelled() and (failure := task.exception()) is not None:
            raise failure
