"""Keeps the local engine running, warm and honest about its state.

Life of a process: starting → warming (two measured requests) → ready → … → failed → (pause) → starting. Invariants:

* at most one process exists, and none after `aclose`;
* `ready` is announced only after a request was answered, and withdrawn before the process is ended;
* pauses grow with full jitter from 0.5 s to 30 s and start over after 60 s of health; a fault that only a person can mend
  (no model, no package) is tried again every 30 s without starting a process.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from tidegate.adapters.engine.child import EngineChild
from tidegate.adapters.engine.probe import EngineEndpoint, FirstToken, HttpProbe
from tidegate.adapters.engine.settings import EnginePhase, EngineSettings, EngineState, check_runtime, find_model
from tidegate.domain.units import Secret
from tidegate.errors import ConfigurationError, TidegateError, UpstreamTimeout

logger = logging.getLogger(__name__)


class EngineTiming(msgspec.Struct, frozen=True, kw_only=True):
    """Deadlines and pauses in seconds; the defaults suit a small model on two busy cores."""

    start_s: float = 120.0
    """From the process's start to its address: the model is read from disk."""
    first_answer_s: float = 60.0
    probe_every_s: float = 2.0
    probe_deadline_s: float = 2.0
    probe_misses: int = 3
    """So a dead engine is replaced after 12 s at the most, and a single slow answer harms nothing."""
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0
    healthy_s: float = 60.0
    end_grace_s: float = 1.0
    """Between SIGTERM and SIGKILL; `aclose` promises two seconds in all."""


class Child(Protocol):
    """One engine process; see `child.EngineChild`."""

    @property
    def pid(self) -> int: ...
    async def listening(self) -> str: ...
    async def exited(self) -> int: ...
    async def epitaph(self) -> str: ...
    async def end(self, *, grace_s: float) -> None: ...


class Probe(Protocol):
    """Asks a running engine; see `probe.HttpProbe`."""

    async def healthy(self, endpoint: EngineEndpoint, *, deadline_s: float) -> bool: ...
    async def first_token(self, endpoint: EngineEndpoint, *, max_tokens: int, deadline_s: float) -> FirstToken: ...


Spawn = Callable[[EngineSettings, Secret], Awaitable[Child]]
Preflight = Callable[[EngineSettings], None]


def preflight(settings: EngineSettings) -> None:
    """Raise `ConfigurationError` for what can be seen without starting anything."""
    check_runtime()
    find_model(settings)


class EngineSupervisor:
    """Owns the engine's process from `start` to `aclose`. `on_state` is called on the loop at every change of `state`."""

    def __init__(
        self,
        settings: EngineSettings,
        *,
        on_state: Callable[[EngineState], None],
        spawn: Spawn = EngineChild.spawn,
        probe: Probe | None = None,
        preflight: Preflight = preflight,
        timing: EngineTiming | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._settings = settings
        self._on_state = on_state
        self._spawn = spawn
        self._probe: Probe = probe if probe is not None else HttpProbe()
        self._preflight = preflight
        self._timing = timing if timing is not None else EngineTiming()
        self._rng = rng if rng is not None else random.Random()  # noqa: S311  jitter, not a secret
        self._state = EngineState(phase=EnginePhase.STARTING)
        self._failures = 0
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<EngineSupervisor {self._settings.model_name} {self._state.phase} restarts={self._state.restarts}>"

    @property
    def state(self) -> EngineState:
        return self._state

    async def start(self) -> None:
        """Begin; returns at once. The first state announced is `starting`."""
        if self._task is not None:
            raise AssertionError("an EngineSupervisor is started once")
        self._announce(self._state)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="engine-supervisor")
        self._task.add_done_callback(self._run_ended)

    async def wait_ready(self) -> EngineState:
        """Return the state as soon as the engine answers; give it a deadline."""
        await self._ready.wait()
        return self._state

    async def aclose(self) -> None:
        """End the process and wait until it is gone: two seconds at the most."""
        self._change(phase=EnginePhase.STOPPED, base_url=None, api_key=None, pid=None)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            try:
                pause_s = await self._one_life()
            except ConfigurationError as error:
                self._failed(error.message)
                pause_s = self._timing.longest_pause_s
            except (TidegateError, OSError) as error:
                self._failed(str(error))
                pause_s = self._pause_s()
            await asyncio.sleep(pause_s)
            self._change(phase=EnginePhase.STARTING, restarts=self._state.restarts + 1)

    async def _one_life(self) -> float:
        """Run one process from start to death; give the pause before the next."""
        await asyncio.to_thread(self._preflight, self._settings)
        api_key = Secret(secrets.token_urlsafe(24))
        child = await self._spawn(self._settings, api_key)
        try:
            endpoint = await self._warm(child, api_key)
            ready_at = asyncio.get_running_loop().time()
            cause = await self._watch(child, endpoint)
            if asyncio.get_running_loop().time() - ready_at >= self._timing.healthy_s:
                self._failures = 0
            self._failed(cause)
            return self._pause_s()
        finally:
            self._withdraw()
            await _finish(child.end(grace_s=self._timing.end_grace_s))

    async def _warm(self, child: Child, api_key: Secret) -> EngineEndpoint:
        self._change(pid=child.pid)
        try:
            async with asyncio.timeout(self._timing.start_s):
                endpoint = EngineEndpoint(origin=await child.listening(), api_key=api_key)
        except TimeoutError as error:
            raise UpstreamTimeout(
                f"The engine did not load its model in {self._timing.start_s:.0f} s. "
                f"See {self._settings.log_path}; a smaller model or a faster disk helps."
            ) from error
        self._change(phase=EnginePhase.WARMING)
        deadline_s = self._timing.first_answer_s
        cold = await self._probe.first_token(endpoint, max_tokens=1, deadline_s=deadline_s)
        warm = await self._probe.first_token(endpoint, max_tokens=1, deadline_s=deadline_s)
        self._change(
            phase=EnginePhase.READY,
            base_url=f"{endpoint.origin}/v1",
            api_key=api_key,
            cold_ttft_s=cold.ttft_s,
            warm_ttft_s=warm.ttft_s,
            last_error=None,
        )
        logger.info("engine.became_ready cold_ttft_s=%.3f warm_ttft_s=%.3f pid=%d", cold.ttft_s, warm.ttft_s, child.pid)
        return endpoint

    async def _watch(self, child: Child, endpoint: EngineEndpoint) -> str:
        """Return why the engine is to be replaced."""
        timing = self._timing
        exited = asyncio.get_running_loop().create_task(child.exited(), name="engine-exit")
        try:
            misses = 0
            while misses < timing.probe_misses:
                await asyncio.wait([exited], timeout=timing.probe_every_s)
                if exited.done():
                    return await child.epitaph()
                misses = 0 if await self._probe.healthy(endpoint, deadline_s=timing.probe_deadline_s) else misses + 1
        finally:
            exited.cancel()
        return f"The engine did not answer {misses} health checks of {timing.probe_deadline_s:.0f} s in a row and is replaced."

    def _pause_s(self) -> float:
        """Full jitter: spread over the whole span, so that several nodes do not start together."""
        span = min(self._timing.longest_pause_s, self._timing.first_pause_s * 2**self._failures)
        self._failures = min(self._failures + 1, 16)  # 0.5 · 2^16 is far over the longest pause
        return self._rng.uniform(0, span)

    def _failed(self, message: str) -> None:
        if message != self._state.last_error:  # one line per change, not one per try
            logger.warning("engine.failed %s", message)
        self._change(phase=EnginePhase.FAILED, base_url=None, api_key=None, pid=None, last_error=message)

    def _withdraw(self) -> None:
        if self._state.phase in {EnginePhase.READY, EnginePhase.WARMING}:
            self._change(phase=EnginePhase.FAILED, base_url=None, api_key=None)

    def _change(self, **fields: object) -> None:
        self._announce(msgspec.structs.replace(self._state, **fields))

    def _announce(self, state: EngineState) -> None:
        self._state = state
        if state.phase is EnginePhase.READY:
            self._ready.set()
        else:
            self._ready.clear()
        self._on_state(state)

    def _run_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("engine.supervisor_failed", exc_info=error)
            self._failed(f"The engine's supervisor stopped by a fault of Tidegate ({error!r}). Restart Tidegate and report this.")


async def _finish(ending: Awaitable[None]) -> None:
    """Await `ending` to its end even when the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(ending)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
