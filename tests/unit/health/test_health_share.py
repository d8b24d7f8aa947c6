"""Sharing through a store that is away, slow or forgetful, in virtual time; `test_health_redis.py` has the real one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random

import pytest

from tidegate.adapters.health.news import VERSION, News, NewsSource, decode, encode
from tidegate.adapters.health.share import HealthShare, LinkLost, ShareSettings, StoreLink
from tidegate.domain.units import Secret
from tidegate.testing import run_virtual

ADDRESS = "http://10.0.0.5:8000/v1"
OTHER = "http://10.0.0.6:8000/v1"


class StandInStore:
    """A store that nodes can reach while `up`; keeps what is said and what is kept."""

    def __init__(self) -> None:
        self.up = True
        self.opened = 0
        self.closed = 0
        self.said: list[News] = []
        self.kept: dict[str, bytes] = {}
        self.keeps = 0
        self.channel: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def open(self) -> StoreLink:
        self.opened += 1
        if not self.up:
            raise LinkLost("refused")
        return StandInLink(self)


class StandInLink:
    def __init__(self, store: StandInStore) -> None:
        self._store = store

    async def say(self, message: bytes, key: str, *, keep_s: float | None) -> None:
        if not self._store.up:
            raise LinkLost("gone while speaking")
        news = decode(message)
        assert news is not None
        self._store.said.append(news)
        if keep_s is None:
            self._store.kept.pop(key, None)
        else:
            self._store.kept[key] = message

    async def keep(self, messages: Sequence[tuple[str, bytes]], *, keep_s: float) -> None:
        assert keep_s > 0
        self._store.keeps += 1
        self._store.kept.update(messages)

    async def recall(self, keys: Sequence[str]) -> list[bytes]:
        return [self._store.kept[key] for key in keys if key in self._store.kept]

    async def hear(self) -> bytes:
        message = await self._store.channel.get()
        if message is None:
            raise LinkLost("it did not answer a ping within 1 s")
        return message

    async def aclose(self) -> None:
        self._store.closed += 1


class Sharing:
    """One node's share over a stand-in store, and what it heard."""

    def __init__(self, store: StandInStore) -> None:
        self.heard: list[News] = []
        self.share = HealthShare(
            ShareSettings(Secret("redis://user:canary@store:6379/0?x=1")),
            rng=Random(5),
            clock=asyncio.get_running_loop().time,
            on_news=self.heard.append,
            addresses=lambda: [ADDRESS, OTHER],
            open_link=store.open,
        )
        self.share.start()


def sharing_story(story: Callable[[StandInStore, Sharing], Awaitable[None]]) -> StandInStore:
    """Run a story in virtual time, and see to it that every link was closed."""

    async def run() -> StandInStore:
        store = StandInStore()
        sharing = Sharing(store)
        await story(store, sharing)
        await sharing.share.aclose()
        await sharing.share.aclose()
        return store

    return run_virtual(run())


def foreign(number: int, *, alive: bool = False, address: str = ADDRESS) -> bytes:
    return encode(News(VERSION, "another", number, address, alive=alive, source=NewsSource.CHECK, reason="refused"))


def test_a_change_is_said_and_kept_and_its_end_said_and_forgotten() -> None:
    """Down is said once and kept for those who come later; up is said once, and nothing is kept."""

    async def story(store: StandInStore, sharing: Sharing) -> None:
        sharing.share.publish(ADDRESS, alive=False, source=NewsSource.CHECK, reason="refused")
        await asyncio.sleep(1.0)
        assert [(news.address, news.alive, news.reason) for news in store.said] == [(ADDRESS, False, "refused")]
        assert list(store.kept) == [f"tidegate:health:down:{ADDRESS}"]
        sharing.share.publish(ADDRESS, alive=True, source=NewsSource.CHECK)
        await asyncio.sleep(1.0)
        assert [news.alive for news in store.said] == [False, True]
        assert store.said[0].number < store.said[1].number
        assert store.kept == {}
        assert sharing.share.statistics().sent == 2

    assert sharing_story(story).closed == 1


def test_that_a_replica_lives_is_no_message_unless_it_was_dead() -> None:
    """The first good answer of each replica at each start would be noise."""

    async def story(store: StandInStore, sharing: Sharing) -> None:
        sharing.share.publish(ADDRESS, alive=True, source=NewsSource.CHECK)
        await asyncio.sleep(1.0)
        assert store.said == []

    sharing_story(story)


def test_what_is_down_is_kept_alive_in_the_store() -> None:
    """A node that comes an hour into an outage still finds it there."""

    async def story(store: StandInStore, sharing: Sharing) -> None:
        sharing.share.publish(ADDRESS, alive=False, source=NewsSource.BREAKER, reason="5 failures")
        await asyncio.sleep(3600.0)
        assert 350 <= store.keeps <= 361
        assert len(store.said) == 1
        sharing.share.forget([ADDRESS])
        keeps = store.keeps
        await asyncio.sleep(100.0)
        assert store.keeps == keeps

    sharing_story(story)


def test_whoever_connects_asks_what_it_missed() -> None:
    """What another node left is heard at the first connection, and not again at the next."""

    async def run() -> None:
        store = StandInStore()
        store.kept[f"tidegate:health:down:{ADDRESS}"] = foreign(7)
        sharing = Sharing(store)
        await asyncio.sleep(1.0)
        assert [news.number for news in sharing.heard] == [7]
        store.channel.put_nowait(None)
        await asyncio.sleep(1.0)
        assert store.opened == 2
        assert [news.number for news in sharing.heard] == [7]
        await sharing.share.aclose()

    run_virtual(run())


def test_own_stale_and_strange_messages_are_passed_over() -> None:
    """Only news of others counts as received."""

    async def story(store: StandInStore, sharing: Sharing) -> None:
        own = encode(News(VERSION, sharing.share.node, 50, ADDRESS, alive=False, source=NewsSource.CHECK))
        for message in (foreign(2), foreign(1), own, b"hello", foreign(3, alive=True)):
            store.channel.put_nowait(message)
        await asyncio.sleep(1.0)
        assert [(news.number, news.alive) for news in sharing.heard] == [(2, False), (3, True)]
        assert sharing.share.statistics().received == 2

    sharing_story(story)


def test_a_store_that_is_away_costs_one_line_and_ever_rarer_tries(caplog: pytest.LogCaptureFixture) -> None:
    """An hour without the store: one line, tries up to five seconds apart, the latest word of each address said when it is back."""
    caplog.set_level("INFO")

    async def run() -> None:
        store = StandInStore()
        store.up = False
        sharing = Sharing(store)
        for number in range(100):
            sharing.share.publish(ADDRESS, alive=False, source=NewsSource.CHECK, reason=f"cause {number}")
        sharing.share.publish(OTHER, alive=False, source=NewsSource.CHECK)
        sharing.share.publish(OTHER, alive=True, source=NewsSource.CHECK)
        await asyncio.sleep(3600.0)
        assert 700 <= store.opened <= 1500
        assert not sharing.share.statistics().connected
        assert len(caplog.records) == 1
        store.up = True
        await asyncio.sleep(10.0)
        assert [(news.address, news.alive, news.reason) for news in store.said] == [(ADDRESS, False, "cause 99"), (OTHER, True, "")]
        assert [record.getMessage().split()[0] for record in caplog.records] == ["shared.lost", "shared.connected"]
        assert sharing.share.statistics().lost == 1
        await sharing.share.aclose()

    run_virtual(run())
    assert "store=redis://store:6379/0" in caplog.text
    assert "canary" not in caplog.text


def test_what_could_not_be_said_is_said_at_the_next_connection() -> None:
    """The store goes while a change is being said: it is said again, and so is all that is down, for the store may have come back empty."""

    async def story(store: StandInStore, sharing: Sharing) -> None:
        sharing.share.publish(ADDRESS, alive=False, source=NewsSource.CHECK)
        await asyncio.sleep(1.0)
        store.up = False
        sharing.share.publish(OTHER, alive=False, source=NewsSource.CHECK)
        await asyncio.sleep(1.0)
        assert not sharing.share.statistics().connected
        store.up = True
        store.kept.clear()
        await asyncio.sleep(10.0)
        assert sorted(news.address for news in store.said[1:]) == [ADDRESS, OTHER]
        assert len(store.kept) == 2
        assert "connected=True" in repr(sharing.share)

    sharing_story(story)


def test_a_listener_that_throws_is_a_fault_of_ours_and_passes(caplog: pytest.LogCaptureFixture) -> None:
    """The fault is logged with its trace, and sharing goes on over a fresh connection."""

    async def run() -> None:
        store = StandInStore()

        def fail(news: News) -> None:
            raise LookupError(news)

        share = HealthShare(
            ShareSettings(Secret("redis://store")),
            rng=Random(5),
            clock=asyncio.get_running_loop().time,
            on_news=fail,
            addresses=list,
            open_link=store.open,
        )
        share.start()
        store.channel.put_nowait(foreign(1))
        await asyncio.sleep(10.0)
        assert share.statistics().connected
        assert (store.opened, store.closed) == (2, 1)
        await share.aclose()

    run_virtual(run())
    assert "shared.fault" in caplog.text
