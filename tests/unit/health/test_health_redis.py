"""Sharing through a real Redis that is killed, frozen, slow, or comes back empty."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from random import Random

import pytest

from tidegate.adapters.health.news import News, NewsSource
from tidegate.adapters.health.redis_link import RedisLink, check_address
from tidegate.adapters.health.share import HealthShare, LinkLost, ShareSettings
from tidegate.domain.units import Secret
from tidegate.errors import ConfigurationError
from tidegate.testing import RedisServer

pytestmark = pytest.mark.skipif(not RedisServer.is_installed(), reason="redis-server is not installed: apt-get install redis-server")

ADDRESS = "http://10.0.0.5:8000/v1"
PASSWORD = "canary-of-the-store"


@pytest.fixture
def store() -> Iterator[RedisServer]:
    with RedisServer(password=PASSWORD) as server:
        yield server


class Node:
    """One node's share, and what it heard."""

    def __init__(self, url: str, seed: int, *, timeout_s: float = 0.5) -> None:
        self.heard: list[News] = []
        self.share = HealthShare(
            ShareSettings(Secret(url), "fleet-a", timeout_s),
            rng=Random(seed),
            clock=time.monotonic,
            on_news=self.heard.append,
            addresses=lambda: [ADDRESS],
        )


async def until(condition: Callable[[], bool], deadline_s: float) -> None:
    async with asyncio.timeout(deadline_s):
        while not condition():  # noqa: ASYNC110  what is waited for happens in another process
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def two_nodes(url: str, *, timeout_s: float = 0.5) -> AsyncIterator[tuple[Node, Node]]:
    one, two = Node(url, 1, timeout_s=timeout_s), Node(url, 2, timeout_s=timeout_s)
    one.share.start()
    two.share.start()
    try:
        await until(lambda: one.share.statistics().connected and two.share.statistics().connected, 5.0)
        yield one, two
    finally:
        await asyncio.gather(one.share.aclose(), two.share.aclose())


def connected(*nodes: Node) -> bool:
    return all(node.share.statistics().connected for node in nodes)


def test_a_change_reaches_the_other_node(store: RedisServer) -> None:
    """Down and up arrive in their order, the sender does not hear itself, and a later node finds what is down."""

    async def story() -> None:
        async with two_nodes(store.url) as (one, two):
            one.share.publish(ADDRESS, alive=False, source=NewsSource.CHECK, reason="refused")
            await until(lambda: len(two.heard) == 1, 2.0)
            late = Node(store.url, 3)
            late.share.start()
            await until(lambda: len(late.heard) == 1, 2.0)
            await late.share.aclose()
            assert (late.heard[0].address, late.heard[0].alive, late.heard[0].reason) == (ADDRESS, False, "refused")
            one.share.publish(ADDRESS, alive=True, source=NewsSource.CHECK)
            await until(lambda: len(two.heard) == 2, 2.0)
            assert [news.alive for news in two.heard] == [False, True]
            assert one.heard == []
            assert store.command("EXISTS", f"fleet-a:down:{ADDRESS}") == b":0\r\n"

    asyncio.run(story())


def test_what_is_kept_expires(store: RedisServer) -> None:
    """A node that dies leaves its word for half a minute, not for ever."""

    async def story() -> None:
        async with two_nodes(store.url) as (one, two):
            one.share.publish(ADDRESS, alive=False, source=NewsSource.CHECK)
            await until(lambda: bool(two.heard), 2.0)

    asyncio.run(story())
    left_ms = int(store.command("PTTL", f"fleet-a:down:{ADDRESS}").strip(b":\r\n"))
    assert 20_000 < left_ms <= 30_000


def test_a_store_that_is_killed_and_comes_back_empty(store: RedisServer) -> None:
    """kill -9: both notice at once; what was down is said again to the empty store, and what changed meanwhile arrives."""

    async def story() -> None:
        async with two_nodes(store.url) as (one, two):
            one.share.publish(ADDRESS, alive=False, source=NewsSource.CHECK)
            await until(lambda: len(two.heard) == 1, 2.0)
            store.kill()
            await until(lambda: not connected(one) and not connected(two), 2.0)
            two.share.publish(ADDRESS, alive=False, source=NewsSource.BREAKER)
            store.start()
            await until(lambda: connected(one, two), 6.0)
            await until(lambda: len(two.heard) >= 2 and len(one.heard) >= 1, 3.0)
            assert two.heard[-1].source is NewsSource.CHECK
            assert one.heard[-1].source is NewsSource.BREAKER
            assert store.command("EXISTS", f"fleet-a:down:{ADDRESS}") == b":1\r\n"

    asyncio.run(story())


def test_a_frozen_store_is_noticed_and_nobody_waits(store: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """SIGSTOP: publishing returns at once, both call the store lost within a few seconds, once each, and are back after SIGCONT."""
    caplog.set_level("INFO")

    async def story() -> None:
        async with two_nodes(store.url) as (one, two):
            store.freeze()
            try:
                began = time.monotonic()
                for _ in range(1000):
                    one.share.publish(ADDRESS, alive=False, source=NewsSource.CHECK)
                assert time.monotonic() - began < 0.5
                await until(lambda: not connected(one), 2.0)  # it had something to say
                await until(lambda: not connected(two), 2.0 + 1.0 + 1.0)  # it only listened: a quiet time, a ping, and some room
                await asyncio.sleep(1.5)  # several tries to connect: the frozen server accepts each and answers none
            finally:
                store.thaw()
            await until(lambda: connected(one, two), 8.0)
            await until(lambda: bool(two.heard), 2.0)

    asyncio.run(story())
    lines = [record.getMessage().split()[0] for record in caplog.records if record.name == "tidegate.health"]
    assert sorted(lines) == ["shared.connected"] * 4 + ["shared.lost"] * 2
    assert PASSWORD not in caplog.text


def test_closing_does_not_wait_for_a_frozen_store(store: RedisServer) -> None:
    """A worker that ends is not held up by its store."""

    async def story() -> float:
        async with two_nodes(store.url, timeout_s=30.0) as (one, two):
            store.freeze()
            one.share.publish(ADDRESS, alive=False, source=NewsSource.CHECK)
            await asyncio.sleep(0.05)
            began = time.monotonic()
            await asyncio.gather(one.share.aclose(), two.share.aclose())
            return time.monotonic() - began

    try:
        assert asyncio.run(story()) < 3.0
    finally:
        store.thaw()


def test_a_slow_store_is_slow_and_nothing_else(store: RedisServer) -> None:
    """200 ms on each way: messages arrive late, and the store is not called lost."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while piece := await reader.read(65_536):
            loop.call_later(0.2, writer.write, piece)
        await asyncio.sleep(0.3)  # after what was read last
        writer.close()

    async def story() -> None:
        relaying = 0

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal relaying
            relaying += 1
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", store.port)
            await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer), return_exceptions=True)
            relaying -= 1

        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            async with two_nodes(f"redis://:{PASSWORD}@127.0.0.1:{port}/0", timeout_s=1.5) as (one, two):
                one.share.publish(ADDRESS, alive=False, source=NewsSource.CHECK)
                await until(lambda: bool(two.heard), 5.0)
                await asyncio.sleep(2.5)  # longer than a quiet time, so that a ping went over the slow way too
                assert (one.share.statistics().lost, two.share.statistics().lost) == (0, 0)
        await until(lambda: relaying == 0, 3.0)

    asyncio.run(story())


def test_a_wrong_password_is_said_without_the_password(store: RedisServer) -> None:
    """The reason names what the server answered."""

    async def story() -> str:
        with pytest.raises(LinkLost) as lost:
            await RedisLink.open(Secret(f"redis://:wrong-canary@127.0.0.1:{store.port}/0"), "fleet-a", timeout_s=1.0)
        return str(lost.value)

    reason = asyncio.run(story())
    assert "password" in reason
    assert "wrong-canary" not in reason


@pytest.mark.parametrize("url", ["http://store", "store:6379", "redis://h:99999999/0", "redis://h/0?socket_timeout=soon"])
def test_an_address_that_cannot_work_is_refused(url: str) -> None:
    """What is wrong with it is told at the start, and the address, which may hold a password, is not repeated."""
    with pytest.raises(ConfigurationError, match=r"shared\.redis_url") as refused:
        check_address(Secret(url))
    assert url not in str(refused.value)


def test_the_kits_server_says_what_it_is(store: RedisServer) -> None:
    """It has a process, and a port that stays the same when it is started again."""
    port = store.port
    assert store.pid > 0
    store.kill()
    store.start()
    assert store.port == port
    assert store.command("DBSIZE") == b":0\r\n"
