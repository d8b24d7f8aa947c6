"""The fleet with real client processes: what they bring back, and that none is left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import msgspec
import psutil
import pytest
from tests.unit.bench.carrying_out import WORDS, requests

from tidegate.bench import fleet as fleet_module
from tidegate.bench.bodies import UnusableRequestsError
from tidegate.bench.fleet import ClientFleet, ClientProcessError
from tidegate.bench.plan import Plan, Scenario, Stage, Target
from tidegate.bench.sample import End, Sample
from tidegate.testing import Script, ScriptedUpstream

SCENARIOS = {WORDS.name: WORDS}


def plan(count: int, *, every_s: float, concurrency: int | None = None) -> Plan:
    length_s = count * every_s
    return Plan(1, "constant", tuple(requests(count, every_s=every_s)), (Stage("all", 0.0, length_s, 1 / every_s),), length_s, concurrency)


async def all_of(fleet: ClientFleet) -> list[Sample]:
    return [sample async for batch in fleet.samples() for sample in batch]


def pids(fleet: ClientFleet) -> list[int]:
    return [client._process.pid for client in fleet._clients if client._process is not None]


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def until(condition: Callable[[], bool], within_s: float) -> bool:
    end = time.monotonic() + within_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def test_a_plan_is_carried_out_by_two_clients() -> None:
    """Every request once, by the client whose share it is; from one origin, with the figures of both. The key is on no command line."""

    async def story() -> None:
        async with ScriptedUpstream(Script(per_token_s=0.01), api_key="sesame") as upstream:
            target = Target(upstream.base_url, "m", key="sesame")
            async with ClientFleet(target, plan(40, every_s=0.01), SCENARIOS, clients=2) as fleet:
                before = time.time()  # noqa: TID251  what the origin is compared with
                assert 0.0 == fleet.began_at
                children = pids(fleet)
                assert not any("sesame" in word for pid in children for word in psutil.Process(pid).cmdline())
                samples = await all_of(fleet)
            assert list(range(40)) == sorted(sample.index for sample in samples)
            assert {End.COMPLETE} == {sample.end for sample in samples}
            assert all(sample.index % 2 == sample.client for sample in samples)
            assert [0, 1] == [report.health.client for report in fleet.reports]
            assert [1, 1] <= [report.health.connections_opened for report in fleet.reports]
            assert 160 == sum(report.chunk_gaps[0].total for report in fleet.reports)
            assert 160 == sum(report.token_gaps[0].total for report in fleet.reports)
            assert 0.0 <= fleet.began_at - before < 1.0
            assert 0 == fleet.in_flight
            assert all(map(is_gone, children))

    asyncio.run(story())


def test_a_closed_loop_shares_its_places() -> None:
    """Three places are two and one; a stage of its own number has that."""
    closed = msgspec.structs.replace(
        plan(2, every_s=1.0, concurrency=3), stages=(Stage("a", 0.0, 1.0), Stage("b", 1.0, 1.0, concurrency=5))
    )
    fleet = ClientFleet(Target("http://127.0.0.1:9/v1", "m"), closed, SCENARIOS, clients=2)
    assert [{0: 2, 1: 3}, {0: 1, 1: 2}] == [fleet._setup(number, 2).places for number in (0, 1)]
    bare = ClientFleet(Target("http://127.0.0.1:9/v1", "m"), msgspec.structs.replace(closed, stages=()), SCENARIOS)
    assert {0: 3} == bare._setup(0, 1).places


def test_stopping_gives_what_there_was() -> None:
    """Those under way are ended, and everybody reports."""

    async def story() -> None:
        async with (
            ScriptedUpstream(Script(headers_s=60.0)) as upstream,
            ClientFleet(Target(upstream.base_url, "m"), plan(500, every_s=0.02), SCENARIOS) as fleet,
        ):
            gathering = asyncio.ensure_future(all_of(fleet))
            await upstream.wait_for(lambda: len(upstream.requests) >= 3, 5.0)
            fleet.stop()
            samples = await asyncio.wait_for(gathering, 5.0)
            assert 3 <= len(samples) < 500
            assert {End.NOT_SENT} == {sample.end for sample in samples}
            assert 1 == len(fleet.reports)

    asyncio.run(story())


def test_leaving_in_the_middle_leaves_nobody_behind() -> None:
    """Whoever does not want the rest may just go."""

    async def story() -> None:
        async with ScriptedUpstream() as upstream:
            async with ClientFleet(Target(upstream.base_url, "m"), plan(2_000, every_s=0.01), SCENARIOS) as fleet:
                children = pids(fleet)
                async for _ in fleet.samples():
                    break
            assert all(map(is_gone, children))

    asyncio.run(story())


def test_a_client_that_dies_is_an_error_and_not_a_wait() -> None:
    """Its last words are told, and the others are ended."""

    children: list[int] = []

    async def story() -> None:
        target = Target("http://127.0.0.1:9/v1", "m")
        async with ClientFleet(target, plan(5_000, every_s=0.01), SCENARIOS, clients=2) as fleet:
            children.extend(pids(fleet))
            async for _ in fleet.samples():
                os.kill(children[1], signal.SIGKILL)

    with pytest.raises(ClientProcessError, match="Client process 1 ended too early"):
        asyncio.run(story())
    assert all(map(is_gone, children))


def test_a_client_that_is_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process says nothing; it is killed in the end."""
    monkeypatch.setattr(fleet_module, "SILENCE_S", 0.5)
    monkeypatch.setattr(fleet_module, "GRACE_S", 0.1)

    children: list[int] = []

    async def story() -> None:
        target = Target("http://127.0.0.1:9/v1", "m")
        async with ClientFleet(target, plan(5_000, every_s=0.01), SCENARIOS) as fleet:
            children.extend(pids(fleet))
            async for _ in fleet.samples():
                os.kill(children[0], signal.SIGSTOP)

    with pytest.raises(ClientProcessError, match=r"said nothing for 0\.5 s"):
        asyncio.run(story())
    assert all(map(is_gone, children))


def test_what_cannot_be_sent_is_refused_before_the_run() -> None:
    """In the client's own words."""
    lost = {WORDS.name: Scenario(WORDS.name)}

    async def story() -> None:
        async with ClientFleet(Target("http://127.0.0.1:9/v1", "m"), plan(1, every_s=1.0), lost):
            raise AssertionError("it should not have begun")

    with pytest.raises(UnusableRequestsError, match="neither texts"):
        asyncio.run(story())


def test_a_process_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its standard error is in the message."""
    monkeypatch.setattr(fleet_module, "CLIENT_MODULE", "tidegate.bench.no_such_module")

    async def story() -> None:
        async with ClientFleet(Target("http://127.0.0.1:9/v1", "m"), plan(1, every_s=1.0), SCENARIOS):
            raise AssertionError("it should not have begun")

    with pytest.raises(ClientProcessError, match="no_such_module"):
        asyncio.run(story())


def test_clients_end_with_their_parent() -> None:
    """Killed, it can do nothing for them; they end by themselves, in the middle of a run."""
    program = """
import asyncio, sys
import msgspec
from tests.unit.bench.test_fleet import SCENARIOS, pids, plan
from tidegate.bench.fleet import ClientFleet
from tidegate.bench.plan import Target

async def main():
    async with ClientFleet(Target("http://127.0.0.1:9/v1", "m"), plan(5_000, every_s=0.01), SCENARIOS, clients=2) as fleet:
        print(*pids(fleet), flush=True)
        async for _ in fleet.samples():
            pass

asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        children = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert 2 == len(children)
    assert until(lambda: all(map(is_gone_or_reaped, children)), 3.0)


def is_gone_or_reaped(pid: int) -> bool:
    """An orphan may stay a zombie where nobody reaps."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
