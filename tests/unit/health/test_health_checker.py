"""Asking replicas: in virtual time against a server that does as it is told, and over real sockets."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tidegate.adapters.health.checker import HealthChecker, HealthTarget
from tidegate.domain.units import ReplicaId
from tidegate.http.client import PoolSettings, UpstreamPool
from tidegate.policy.resilience.health import HealthSettings, HealthVerdict
from tidegate.ports import CallFailure, CallFailureKind, CallReceiver, UpstreamRequest
from tidegate.testing import ScriptedUpstream, run_virtual

ONE, TWO = ReplicaId("pool/0"), ReplicaId("pool/1")
SETTINGS = HealthSettings(every_s=2.0, timeout_s=1.5, failures=2)


class StandInCall:
    """A call that remembers whether it was given up."""

    def __init__(self) -> None:
        self.cancelled = 0

    def cancel(self) -> None:
        self.cancelled += 1

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class StandInServer:
    """Answers questions with `answer`: a status, a failure, or (None) not at all. Notes when it was asked."""

    def __init__(self, answer: int | CallFailure | None = 200) -> None:
        self.answer = answer
        self.asked_at: list[float] = []
        self.requests: list[UpstreamRequest] = []
        self.calls: list[StandInCall] = []
        self.closed = 0

    def start(self, request: UpstreamRequest, receiver: CallReceiver) -> StandInCall:
        loop = asyncio.get_running_loop()
        self.asked_at.append(loop.time())
        self.requests.append(request)
        self.calls.append(StandInCall())
        answer = self.answer
        if isinstance(answer, int):
            loop.call_soon(self._answer, receiver, answer)
        elif answer is not None:
            loop.call_soon(receiver.call_failed, answer)
        return self.calls[-1]

    @staticmethod
    def _answer(receiver: CallReceiver, status: int) -> None:
        receiver.call_connected()
        receiver.response_started(status, ())
        receiver.response_chunk(b"{}")
        receiver.response_ended()

    async def aclose(self) -> None:
        self.closed += 1


def target(server: StandInServer, replica: ReplicaId = ONE) -> HealthTarget:
    return HealthTarget(replica, server, "/health", ((b"authorization", b"Bearer key"),), SETTINGS)


class Watched:
    """A checker over one server on a virtual clock, and what it said when."""

    def __init__(self, server: StandInServer) -> None:
        self._loop = asyncio.get_running_loop()
        self.told: list[tuple[float, HealthVerdict]] = []
        self.checker = HealthChecker([target(server)], clock=self._loop.time, rng=Random(1), on_verdict=self._on_verdict)

    def _on_verdict(self, replica: ReplicaId, verdict: HealthVerdict) -> None:
        assert replica == ONE
        self.told.append((self._loop.time(), verdict))


def test_a_server_that_freezes_is_out_in_time() -> None:
    """Whenever it freezes between two questions, others go first after `every_s + timeout_s`, and one more `timeout_s` later it is out."""

    async def story(freeze_after_s: float) -> tuple[float, float]:
        server = StandInServer()
        watched = Watched(server)
        watched.checker.start()
        await asyncio.sleep(freeze_after_s)
        server.answer = None
        frozen_at = asyncio.get_running_loop().time()
        await asyncio.sleep(20.0)
        await watched.checker.aclose()
        (_, _), (doubted_at, doubted), (dead_at, dead) = watched.told
        assert (True, False) == (doubted.doubted, dead.alive)
        return doubted_at - frozen_at, dead_at - frozen_at

    for step in range(8):
        doubted_after_s, dead_after_s = run_virtual(story(10.0 + step / 4))
        assert doubted_after_s <= 2.0 + 1.5
        assert dead_after_s <= 2.0 + 2 * 1.5


def test_a_server_that_comes_back_is_in_with_its_first_answer() -> None:
    """Down and up again are told once each, however many questions are asked."""

    async def story() -> None:
        server = StandInServer(CallFailure(CallFailureKind.CONNECT, "refused"))
        watched = Watched(server)
        watched.checker.start()
        await asyncio.sleep(30.0)
        assert [verdict for _, verdict in watched.told] == [HealthVerdict(alive=False, reason="refused")]
        server.answer = 200
        asked = len(server.asked_at)
        await asyncio.sleep(30.0)
        await watched.checker.aclose()
        assert [verdict.alive for _, verdict in watched.told] == [False, True]
        assert watched.told[1][0] == server.asked_at[asked]

    run_virtual(story())


def test_a_suspicion_asks_at_once() -> None:
    """What another node found is looked into now, not at the next turn; a stranger's replica is not asked."""

    async def story() -> None:
        server = StandInServer()
        watched = Watched(server)
        watched.checker.start()
        await asyncio.sleep(10.0)
        server.answer = CallFailure(CallFailureKind.CONNECT, "refused")
        suspected_at = asyncio.get_running_loop().time()
        assert watched.checker.suspect(ONE, alive=False)
        assert not watched.checker.suspect(TWO, alive=False)
        await asyncio.sleep(0.5)
        await watched.checker.aclose()
        assert [verdict.alive for _, verdict in watched.told] == [True, False]
        assert watched.told[1][0] - suspected_at <= 0.2

    run_virtual(story())


def test_every_question_is_given_up_and_only_its_status_counts() -> None:
    """Each call ends with the question, whatever came; it carries the headers of the upstream."""

    async def story() -> None:
        server = StandInServer()
        watched = Watched(server)
        watched.checker.start()
        await asyncio.sleep(9.0)
        server.answer = None
        await asyncio.sleep(9.0)
        await watched.checker.aclose()
        await watched.checker.aclose()
        assert all(call.cancelled for call in server.calls)
        assert server.requests[0] == UpstreamRequest("GET", "/health", ((b"authorization", b"Bearer key"),), b"")
        assert server.closed == 2  # closing again is safe
        asked = len(server.calls)
        await asyncio.sleep(10.0)
        assert len(server.calls) == asked

    run_virtual(story())


def test_a_fault_of_ours_does_not_end_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    """What the listener throws is logged, and the next questions are asked in their time."""

    async def story() -> None:
        server = StandInServer()

        def fail(replica: ReplicaId, verdict: HealthVerdict) -> None:
            raise LookupError(replica, verdict)

        checker = HealthChecker([target(server)], clock=asyncio.get_running_loop().time, rng=Random(1), on_verdict=fail)
        checker.start()
        await asyncio.sleep(20.0)
        await checker.aclose()
        assert 9 <= len(server.asked_at) <= 13

    run_virtual(story())
    assert "health.fault replica=pool/0" in caplog.text


def test_over_sockets_nothing_is_left_open() -> None:
    """A real server is asked on connections of its own, and after the end none is left; a closed port is dead."""

    async def story() -> None:
        told: dict[ReplicaId, HealthVerdict] = {}
        both = asyncio.Event()

        def on_verdict(replica: ReplicaId, verdict: HealthVerdict) -> None:
            told[replica] = verdict
            if len(told) == 2:
                both.set()

        quick = HealthSettings(every_s=0.05, timeout_s=1.0, failures=2)
        async with ScriptedUpstream() as upstream:
            root = upstream.base_url.removesuffix("/v1")
            pools = [UpstreamPool(PoolSettings(base_url=url, idle_timeout_s=0.01)) for url in (root, "http://127.0.0.1:9")]
            targets = [HealthTarget(name, pool, "/health", (), quick) for name, pool in zip((ONE, TWO), pools, strict=True)]
            checker = HealthChecker(targets, clock=asyncio.get_running_loop().time, rng=Random(1), on_verdict=on_verdict)
            checker.start()
            async with asyncio.timeout(5.0):
                await both.wait()
            assert "pool/0: True" in repr(checker)
            await checker.aclose()
            await upstream.wait_for(lambda: not upstream.connections, 2.0)
            assert {request.path for request in upstream.requests} == {"/health"}
        assert told[ONE] == HealthVerdict(alive=True)
        assert not told[TWO].alive
        assert "127.0.0.1:9" in told[TWO].reason
        assert all(pool.statistics().open == 0 for pool in pools)

    asyncio.run(story())
