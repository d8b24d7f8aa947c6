"""What follows when a replica goes down or comes back: here, and by another node's word."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import msgspec
import pytest

from tidegate.adapters.health.checker import HealthTarget
from tidegate.adapters.health.news import VERSION, News, NewsSource
from tidegate.adapters.health.share import ShareSettings
from tidegate.config.schema import Configuration
from tidegate.domain.units import ModelName, ReplicaId, Secret, UpstreamName
from tidegate.domain.upstream import FailureScope, Replica, Route, Target, UpstreamFailure
from tidegate.gateway.owned_tasks import OwnedTasks
from tidegate.policy.resilience.health import HealthSettings
from tidegate.policy.routing.fleet import Fleet
from tidegate.ports import CallReceiver, UpstreamRequest
from tidegate.testing import run_virtual
from tidegate.wiring.health import HOLD_S, Lookout, WatchPlan, watch_plan

ONE = ReplicaId("pool/0")
FAR = "https://models.example.com:443/v1"
SETTINGS = HealthSettings(every_s=2.0, timeout_s=1.5, failures=2)


class Server:
    """Answers its questions while `up`."""

    def __init__(self) -> None:
        self.up = True
        self.closed = False

    def start(self, _: UpstreamRequest, receiver: CallReceiver) -> Server:
        if self.up:
            asyncio.get_running_loop().call_soon(receiver.response_started, 200, ())
        return self

    def cancel(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    async def aclose(self) -> None:
        self.closed = True


class StandInGateway:
    """Remembers which losses it was told of."""

    def __init__(self) -> None:
        self.tasks = OwnedTasks()
        self.lost: list[tuple[ReplicaId, str]] = []

    def replica_lost(self, replica: ReplicaId, reason: str) -> int:
        self.lost.append((replica, reason))
        return 3


class Scene:
    """A lookout over a fleet of one replica; `server` given, it is asked."""

    def __init__(self, server: Server | None, address: str = FAR) -> None:
        self.gateway = StandInGateway()
        self.fleet = Fleet([Replica(ONE, UpstreamName("pool"), "openai")])
        self.lookout = Lookout(self.gateway, clock=asyncio.get_running_loop().time, rng=Random(4))
        targets = (HealthTarget(ONE, server, "/health", (), SETTINGS),) if server is not None else ()
        self.plan = WatchPlan(targets, {ONE: address}, None)
        self.lookout.commit(self.plan, self.fleet)

    def available(self) -> bool:
        route = Route("*", (Target(UpstreamName("pool")),))
        now = asyncio.get_running_loop().time()
        return self.fleet.choose(route, ModelName("m"), (), now=now, rng=Random(1)) is not None

    def hear(self, *, alive: bool, source: NewsSource = NewsSource.CHECK, address: str = FAR) -> None:
        self.lookout._on_news(News(VERSION, "another", 1, address, alive=alive, source=source, reason="refused"))


def scene(story: Callable[[Scene, Server], Awaitable[None]], *, asked: bool, address: str = FAR) -> None:
    async def run() -> None:
        server = Server()
        made = Scene(server if asked else None, address)
        await story(made, server)
        await made.lookout.aclose()
        await made.lookout.aclose()
        await made.gateway.tasks.aclose()
        assert server.closed is asked

    run_virtual(run())


def test_a_dead_replica_is_not_chosen_and_its_calls_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """One line when it goes, with the calls that moved, and one when it is back; both counted."""
    caplog.set_level("INFO")

    async def story(made: Scene, server: Server) -> None:
        await asyncio.sleep(10.0)
        assert made.available()
        server.up = False
        await asyncio.sleep(30.0)
        assert not made.available()
        assert made.gateway.lost == [(ONE, "it did not answer a health check within 1.5 s")]
        server.up = True
        await asyncio.sleep(30.0)
        assert made.available()
        assert made.lookout.upstream_counters(UpstreamName("pool")) == {"health_went_down": 1.0, "health_came_back": 1.0}
        assert made.lookout.upstream_counters(UpstreamName("other")) == {}
        assert (made.lookout.levels(), made.lookout.counters()) == ({}, {})

    scene(story, asked=True)
    assert [record.getMessage() for record in caplog.records] == [
        "upstream.went_down replica=pool/0 calls=3 reason='it did not answer a health check within 1.5 s'",
        "upstream.came_back replica=pool/0",
    ]


def test_anothers_word_is_looked_into_where_the_replica_is_asked() -> None:
    """The other node cannot reach it, this one can: nothing happens. This one cannot either: it is out at once."""

    async def story(made: Scene, server: Server) -> None:
        await asyncio.sleep(10.0)
        made.hear(alive=False)
        await asyncio.sleep(1.0)
        assert made.available()
        server.up = False
        made.hear(alive=False)
        await asyncio.sleep(2.0)
        assert not made.available()

    scene(story, asked=True)


def test_anothers_word_is_believed_for_a_while_where_nobody_asks() -> None:
    """A hosted server that another node found dead is left alone for ten seconds, and calls that wait there are told."""

    async def story(made: Scene, _: Server) -> None:
        made.hear(alive=False)
        assert not made.available()
        assert made.gateway.lost == [(ONE, "another node found it down: refused")]
        await asyncio.sleep(HOLD_S - 1.0)
        made.hear(alive=False)  # said again: the time begins anew
        await asyncio.sleep(HOLD_S - 1.0)
        assert not made.available()
        await asyncio.sleep(1.1)
        assert made.available()
        assert len(made.gateway.lost) == 1

    scene(story, asked=False)


def test_another_node_also_brings_it_back() -> None:
    """Up from another node ends the wait; up without a down changes nothing."""

    async def story(made: Scene, _: Server) -> None:
        made.hear(alive=True)
        assert made.lookout.upstream_counters(UpstreamName("pool")) == {}
        made.hear(alive=False)
        made.hear(alive=True)
        assert made.available()

    scene(story, asked=False)


def test_loopback_addresses_are_somebody_elses() -> None:
    """Another node's 127.0.0.1 is another server."""

    async def story(made: Scene, _: Server) -> None:
        made.hear(alive=False, address="http://127.0.0.1:8000/v1")
        assert made.available()

    scene(story, asked=False, address="http://127.0.0.1:8000/v1")


def test_failing_calls_elsewhere_do_not_outweigh_good_ones_here() -> None:
    """Another node's breaker may have opened for its own key: while calls succeed here it is not believed, a dead server is."""

    async def story(made: Scene, _: Server) -> None:
        now = asyncio.get_running_loop().time()
        made.fleet.begin(ONE, now=now)
        made.fleet.end(ONE, None, now=now)
        made.hear(alive=False, source=NewsSource.BREAKER)
        assert made.available()
        made.hear(alive=False, source=NewsSource.CHECK)
        assert not made.available()

    scene(story, asked=False)


def test_a_replica_never_called_is_left_alone_when_calls_fail_elsewhere() -> None:
    """Nothing is known of it here, so the other node's breaker counts."""

    async def story(made: Scene, _: Server) -> None:
        made.hear(alive=False, source=NewsSource.BREAKER)
        assert not made.available()

    scene(story, asked=False)


def test_a_reload_that_ends_the_questions_ends_the_verdict() -> None:
    """A replica held dead that is asked no more would never be found alive again."""

    async def story(made: Scene, server: Server) -> None:
        server.up = False
        await asyncio.sleep(10.0)
        assert not made.available()
        made.lookout.commit(WatchPlan((), {ONE: FAR}, None), made.fleet)
        assert made.available()
        await asyncio.sleep(1.0)
        assert server.closed

    scene(story, asked=True)


def test_a_reload_keeps_a_dead_replica_out_until_it_answers() -> None:
    """The questions begin anew; what the fleet knew stays, and the first answer brings the replica back."""

    async def run() -> None:
        server = Server()
        server.up = False
        made = Scene(server)
        await asyncio.sleep(10.0)
        again = Server()
        again.up = False
        fleet = Fleet([Replica(ONE, UpstreamName("pool"), "openai")], before=made.fleet)
        made.fleet = fleet
        made.lookout.commit(WatchPlan((HealthTarget(ONE, again, "/health", (), SETTINGS),), {ONE: FAR}, None), fleet)
        assert not made.available()
        again.up = True
        await asyncio.sleep(5.0)
        assert made.available()
        await made.lookout.aclose()
        await made.gateway.tasks.aclose()
        assert server.closed
        assert again.closed

    run_virtual(run())


def test_open_breakers_are_told_once_and_so_is_their_end() -> None:
    """Calls that fail here open a breaker; other nodes hear of it, and of its end, once each."""

    async def run() -> None:
        made = Scene(None)
        said: list[tuple[str, bool, NewsSource]] = []

        class Share:
            def publish(self, address: str, *, alive: bool, source: NewsSource, reason: str = "") -> None:
                said.append((address, alive, source))
                assert alive or reason

        share: Any = Share()
        looking = asyncio.ensure_future(made.lookout._look_at_breakers(share))
        loop = asyncio.get_running_loop()
        refused = UpstreamFailure(FailureScope.REPLICA, retryable=True, message="refused", connect=True)
        for _ in range(2):
            made.fleet.begin(ONE, now=loop.time())
            made.fleet.end(ONE, refused, now=loop.time())
        await asyncio.sleep(1.5)
        assert said == [(FAR, False, NewsSource.BREAKER)]
        await asyncio.sleep(30.0)
        for _ in range(10):
            if made.available():
                made.fleet.begin(ONE, now=loop.time())
                began = loop.time()
                await asyncio.sleep(0.1)
                made.fleet.end(ONE, None, now=loop.time(), began_at=began)
        await asyncio.sleep(1.5)
        assert said == [(FAR, False, NewsSource.BREAKER), (FAR, True, NewsSource.BREAKER)]
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        await made.lookout.aclose()

    run_virtual(run())


def plan_of(**settings: object) -> WatchPlan:
    upstreams = {"pool": {"dialect": "openai", "base_url": "http://10.0.0.5:8000/v1", **settings}}
    return watch_plan(msgspec.convert({"upstreams": upstreams}, Configuration))


def test_plain_servers_are_asked_and_hosted_ones_are_not() -> None:
    """Without a word of the operator's the scheme decides; with one, the operator does."""
    assert [target.replica for target in plan_of().targets] == [ONE]
    assert plan_of(base_url="https://models.example.com/v1").targets == ()
    assert len(plan_of(base_url="https://models.example.com/v1", health={"enabled": True}).targets) == 1
    assert plan_of(health={"enabled": False}).targets == ()


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({}, "/v1/models"),
        ({"dialect": "vllm"}, "/health"),
        ({"dialect": "llamacpp"}, "/health"),
        ({"dialect": "vllm", "base_url": "http://10.0.0.5:8000/team/v1", "health": {"path": "/team/ready"}}, "/team/ready"),
        ({"base_url": "http://10.0.0.5:8000/team/v1"}, "/team/v1/models"),
    ],
)
def test_the_path_is_the_dialects_or_the_operators(settings: dict[str, object], path: str) -> None:
    """vLLM and llama.cpp have a path of their own at the root; others are asked for their models."""
    [target] = plan_of(**settings).targets
    assert target.path == path


def test_every_replica_is_asked_and_named_by_its_address() -> None:
    """Two nodes may call an upstream differently; address and path are the same, and no key is in them."""
    plan = plan_of(replicas=[{"base_url": "http://Second:8000/v1/"}], api_key=Secret("sk-canary"))
    assert plan.addresses == {ONE: "http://10.0.0.5:8000/v1", ReplicaId("pool/1"): "http://second:8000/v1"}
    assert [target.replica for target in plan.targets] == [ONE, ReplicaId("pool/1")]
    assert plan.targets[0].headers == ((b"authorization", b"Bearer sk-canary"),)


def test_the_store_comes_from_the_configuration() -> None:
    """The section `shared` becomes the settings of the share."""
    configuration = msgspec.convert({"shared": {"redis_url": Secret("redis://store:6379/1"), "timeout_s": 0.5}}, Configuration)
    assert watch_plan(configuration).shared == ShareSettings(Secret("redis://store:6379/1"), "tidegate:health", 0.5)


def test_a_store_that_cannot_be_reached_is_counted_and_kept_over_a_reload() -> None:
    """Levels say that sharing is wanted and lost; the same settings keep the share, others replace it, and counts never fall."""

    async def run() -> None:
        made = Scene(None)
        settings = ShareSettings(Secret("redis://127.0.0.1:9/0"), timeout_s=0.2)
        made.lookout.commit(msgspec.structs.replace(made.plan, shared=settings), made.fleet)
        async with asyncio.timeout(5.0):
            while not made.lookout.counters()["shared.lost"]:  # noqa: ASYNC110  a connection must be refused
                await asyncio.sleep(0.01)
        assert made.lookout.levels() == {"shared.workers": 1.0, "shared.connected": 0.0}
        before = made.lookout._share
        made.lookout.commit(msgspec.structs.replace(made.plan, shared=settings), made.fleet)
        assert made.lookout._share is before
        made.lookout.commit(made.plan, made.fleet)
        assert made.lookout.levels() == {}
        assert made.lookout.counters()["shared.lost"] == 1.0
        await made.lookout.aclose()
        await made.gateway.tasks.aclose()

    asyncio.run(run())
