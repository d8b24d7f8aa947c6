"""The engine's supervisor on virtual time, with processes and probes played by fakes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tidegate.adapters.engine.probe import EngineEndpoint, FirstToken
from tidegate.adapters.engine.settings import EnginePhase, EngineSettings, EngineState
from tidegate.adapters.engine.supervisor import EngineSupervisor, EngineTiming
from tidegate.domain.units import Secret
from tidegate.errors import ConfigurationError, UpstreamUnavailable
from tidegate.testing.virtual_time import VirtualTimeLoop

SETTINGS = EngineSettings(state_directory="unused")


class FakeChild:
    """A process that listens after `load_s` and dies when told."""

    def __init__(self, *, load_s: float = 1.0, fault: Exception | None = None) -> None:
        self.pid = 4242
        self.gone = asyncio.Event()
        self.ended = False
        self._load_s = load_s
        self._fault = fault

    async def listening(self) -> str:
        await asyncio.sleep(self._load_s)
        if self._fault is not None:
            raise self._fault
        return "http://127.0.0.1:1"

    async def exited(self) -> int:
        await self.gone.wait()
        return -9

    async def epitaph(self) -> str:
        return "it died"

    async def end(self, *, grace_s: float) -> None:
        await asyncio.sleep(grace_s / 2)
        self.ended = True
        self.gone.set()


class FakeProbe:
    """Answers health checks from a list, then always with yes."""

    def __init__(self) -> None:
        self.healths: list[bool] = []
        self.ttfts = [0.9, 0.1]
        self.checks = 0

    async def healthy(self, endpoint: EngineEndpoint, *, deadline_s: float) -> bool:
        del endpoint, deadline_s
        await asyncio.sleep(0.001)
        self.checks += 1
        return self.healths.pop(0) if self.healths else True

    async def first_token(self, endpoint: EngineEndpoint, *, max_tokens: int, deadline_s: float) -> FirstToken:
        del endpoint, max_tokens, deadline_s
        ttft_s = self.ttfts.pop(0) if self.ttfts else 0.1
        await asyncio.sleep(ttft_s)
        return FirstToken(ttft_s=ttft_s, e2e_s=ttft_s, completion_tokens=1)


class Stage:
    """A supervisor whose every surrounding is a fake; `states` is what it announced."""

    def __init__(self, *, make_child: Callable[[], FakeChild] = FakeChild, fault: ConfigurationError | None = None) -> None:
        self.children: list[FakeChild] = []
        self.keys: list[Secret] = []
        self.started_at: list[float] = []
        self.states: list[EngineState] = []
        self.probe = FakeProbe()
        self.checks = 0
        self._make_child = make_child
        self._fault = fault
        self._changed = asyncio.Event()
        self.supervisor = EngineSupervisor(
            SETTINGS,
            on_state=self._on_state,
            spawn=self._spawn,
            probe=self.probe,
            preflight=self._preflight,
            rng=random.Random(1),
        )

    def _preflight(self, settings: EngineSettings) -> None:
        del settings
        self.checks += 1
        if self._fault is not None:
            raise self._fault

    async def _spawn(self, settings: EngineSettings, api_key: Secret) -> FakeChild:
        del settings
        assert all(child.ended for child in self.children), "two engine processes at once"
        self.children.append(self._make_child())
        self.keys.append(api_key)
        self.started_at.append(asyncio.get_running_loop().time())
        return self.children[-1]

    async def until(self, phase: EnginePhase, *, within_s: float = 300.0) -> EngineState:
        async with asyncio.timeout(within_s):
            while self.supervisor.state.phase is not phase:
                await self.change()
        return self.supervisor.state

    async def change(self) -> None:
        """Wait for the next announcement."""
        self._changed.clear()
        await self._changed.wait()

    def _on_state(self, state: EngineState) -> None:
        self.states.append(state)
        self._changed.set()

    def phases(self) -> list[EnginePhase]:
        """Give the announced phases without repetitions."""
        seen = [state.phase for state in self.states]
        return [phase for n, phase in enumerate(seen) if n == 0 or seen[n - 1] is not phase]


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(scene())


def test_ready_is_announced_only_after_two_measured_answers() -> None:
    """A start goes through starting and warming, and the two first answers give the cold and the warm TTFT."""

    async def scene() -> None:
        stage = Stage()
        await stage.supervisor.start()
        state = await stage.supervisor.wait_ready()
        assert stage.phases() == [EnginePhase.STARTING, EnginePhase.WARMING, EnginePhase.READY]
        assert (state.cold_ttft_s, state.warm_ttft_s) == (0.9, 0.1)
        assert state.base_url == "http://127.0.0.1:1/v1"
        assert state.api_key == stage.keys[0]
        await stage.supervisor.aclose()

    play(scene)


def test_a_dead_engine_is_restarted_with_another_key() -> None:
    """When the process dies, ready is withdrawn, the cause is told, and a fresh process gets a fresh key."""

    async def scene() -> None:
        stage = Stage()
        await stage.supervisor.start()
        await stage.supervisor.wait_ready()
        stage.children[0].gone.set()
        failed = await stage.until(EnginePhase.FAILED)
        assert (failed.base_url, failed.api_key, failed.last_error) == (None, None, "it died")
        state = await stage.until(EnginePhase.READY)
        assert (state.restarts, state.last_error) == (1, None)
        assert stage.keys[0] != stage.keys[1]
        await stage.supervisor.aclose()

    play(scene)


def test_three_missed_health_checks_replace_the_engine_and_two_do_not() -> None:
    """A hung engine is replaced after three misses in a row; a good answer between starts the count again."""

    async def scene() -> None:
        stage = Stage()
        stage.probe.healths = [False, False, True, False, False, False]
        await stage.supervisor.start()
        await stage.supervisor.wait_ready()
        failed = await stage.until(EnginePhase.FAILED)
        assert stage.probe.checks == 6
        assert "3 health checks" in (failed.last_error or "")
        await stage.until(EnginePhase.READY)
        assert len(stage.children) == 2
        await stage.supervisor.aclose()

    play(scene)


def test_pauses_between_failing_starts_grow_and_stay_bounded() -> None:
    """A start that always fails is repeated after random pauses whose spans double from 0.5 s to 30 s."""

    async def scene() -> None:
        stage = Stage(make_child=lambda: FakeChild(load_s=0.0, fault=UpstreamUnavailable("no luck")))
        await stage.supervisor.start()
        while len(stage.started_at) < 40:
            await stage.change()
        end_s = EngineTiming().end_grace_s / 2
        pauses = [later - earlier - end_s for earlier, later in zip(stage.started_at, stage.started_at[1:], strict=False)]
        assert all(0 <= pause <= min(30.0, 0.5 * 2**n) + 1e-6 for n, pause in enumerate(pauses))
        assert 5.0 < sum(pauses[10:]) / len(pauses[10:]) < 25.0
        assert stage.supervisor.state.last_error == "no luck"
        await stage.supervisor.aclose()

    play(scene)


def test_a_minute_of_health_resets_the_pauses() -> None:
    """After 60 s of health the next failure is followed by a short pause again."""

    async def scene() -> None:
        faults: list[Exception | None] = [UpstreamUnavailable("no luck")] * 8
        stage = Stage(make_child=lambda: FakeChild(fault=faults.pop() if faults else None))
        await stage.supervisor.start()
        await stage.supervisor.wait_ready()
        await asyncio.sleep(61.0)
        stage.children[-1].gone.set()
        died_at = asyncio.get_running_loop().time()
        await stage.until(EnginePhase.READY)
        # 0.5 s of pause at the most, besides detection (2 s), ending, loading and warming
        assert stage.started_at[-1] - died_at <= EngineTiming().end_grace_s / 2 + 0.5 + 0.1
        await stage.supervisor.aclose()

    play(scene)


def test_what_only_a_person_can_mend_is_tried_slowly_without_a_process() -> None:
    """A missing model is looked for again every 30 s, and no process is ever started for it."""

    async def scene() -> None:
        stage = Stage(fault=ConfigurationError("set local_engine.model_path"))
        await stage.supervisor.start()
        await asyncio.sleep(299.0)
        assert stage.checks == 10
        assert stage.children == []
        assert stage.supervisor.state.last_error == "set local_engine.model_path"
        await stage.supervisor.aclose()

    play(scene)


@pytest.mark.parametrize("after_s", [0.5, 1.5, 1.95, 10.0])
def test_closing_at_any_moment_ends_the_process(after_s: float) -> None:
    """Whether the engine loads, warms or serves, `aclose` ends its process within two seconds and says stopped."""

    async def scene() -> None:
        stage = Stage()
        await stage.supervisor.start()
        await asyncio.sleep(after_s)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await stage.supervisor.aclose()
        assert loop.time() - began <= 2.0
        assert [child.ended for child in stage.children] == [True]
        assert stage.states[-1].phase is EnginePhase.STOPPED
        assert stage.states[-1].api_key is None

    play(scene)


def test_a_model_that_never_finishes_loading_meets_a_deadline() -> None:
    """A start that hangs is given up after its deadline, its process ended and the reason told."""

    async def scene() -> None:
        stage = Stage(make_child=lambda: FakeChild(load_s=10_000.0))
        await stage.supervisor.start()
        failed = await stage.until(EnginePhase.FAILED)
        assert "did not load its model in 120 s" in (failed.last_error or "")
        assert stage.children[0].ended
        await stage.supervisor.aclose()

    play(scene)


def test_the_state_shows_no_key() -> None:
    """A state in a log or a traceback does not give the engine's key away."""
    state = EngineState(phase=EnginePhase.READY, api_key=Secret("sesame"))
    assert "sesame" not in repr(state)
