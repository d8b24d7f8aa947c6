"""The live feed: one look at the node a second, made once for all who watch.

Whoever watches is given the latest beat and no other, so a slow browser skips some and holds nobody up. Without anyone watching the feed
looks every five seconds, so that the charts of the last minutes are there when somebody comes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec

from tidegate.admin.console.flow import Flow, Totals, flow_between, totals_of
from tidegate.admin.view import NodeSnapshot, NodeView

BEAT_S: Final = 1.0
IDLE_BEAT_S: Final = 5.0
MOST_WATCHERS: Final = 32
"""A third of the admin port's connections: the rest is for scrapers and clicks."""
KEPT: Final = 300
"""Beats kept for charts: five minutes while somebody watches, twenty-five while nobody does."""
MINUTE_S: Final = 60.0


class UpstreamBrief(msgspec.Struct, frozen=True):
    name: str
    ready: bool
    detail: str
    in_flight: int
    breakers_open: int


class Beat(msgspec.Struct, frozen=True):
    """The node at one instant, as the overview shows it."""

    at: float
    phase: str
    ready: bool
    workers_ready: int
    workers: int
    requests_running: int
    now: Flow
    """Since the beat before."""
    minute: Flow
    """Of the last minute."""
    upstreams: tuple[UpstreamBrief, ...]
    drained: tuple[str, ...]
    trouble: tuple[str, ...]
    """What an operator should look at, in words."""


class ConsoleFeed:
    """Use it on one loop: `run` until cancelled, `watch` as often as wanted. `wall_clock` gives seconds since the epoch."""

    def __init__(self, node: NodeView, *, wall_clock: Callable[[], float]) -> None:
        self._node = node
        self._wall_clock = wall_clock
        self._looks: deque[Totals] = deque(maxlen=int(MINUTE_S / BEAT_S) + 1)
        self._history: deque[Flow] = deque(maxlen=KEPT)
        self._beat: Beat | None = None
        self._encoded = b""
        self._next = asyncio.Event()
        self._wanted = asyncio.Event()
        self._closed = False
        self.watchers = 0

    def __repr__(self) -> str:
        return f"ConsoleFeed(watchers={self.watchers}, kept={len(self._history)})"

    @property
    def history(self) -> tuple[Flow, ...]:
        return tuple(self._history)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S if self.watchers else IDLE_BEAT_S):
                    await self._wanted.wait()
            self._wanted.clear()

    async def look(self) -> Beat:
        """Make one beat, and wake whoever watches."""
        node = await self._node.snapshot()
        totals = totals_of(node, at=self._wall_clock())
        while len(self._looks) > 1 and totals.at - self._looks[1].at >= MINUTE_S:
            self._looks.popleft()
        now = flow_between(self._looks[-1], totals) if self._looks else Flow(totals.at, 0.0)
        minute = flow_between(self._looks[0], totals) if self._looks else now
        self._looks.append(totals)
        self._history.append(now)
        beat = self._beat = beat_of(node, now, minute)
        self._encoded = b"event: beat\ndata: " + msgspec.json.encode(beat) + b"\n\n"
        self._next.set()
        self._next = asyncio.Event()
        return beat

    async def latest(self) -> Beat:
        """Give the last beat; one is made when there is none yet."""
        return self._beat if self._beat is not None else await self.look()

    def has_room(self) -> bool:
        return self.watchers < MOST_WATCHERS and not self._closed

    async def watch(self) -> AsyncIterator[bytes]:
        """Yield the beats to come as events of a stream, until the feed is closed."""
        self.watchers += 1
        if self.watchers == 1:
            self._wanted.set()
        try:
            if self._encoded:
                yield self._encoded
            while not self._closed:
                await self._next.wait()
                yield self._encoded
        finally:
            self.watchers -= 1

    def close(self) -> None:
        """Have every `watch` end soon."""
        self._closed = True
        self._next.set()


def beat_of(node: NodeSnapshot, now: Flow, minute: Flow) -> Beat:
    statistics = node.statistics
    upstreams = tuple(
        UpstreamBrief(
            name=each.name,
            ready=each.ready,
            detail=each.detail,
            in_flight=int(each.levels.get("in_flight", 0)),
            breakers_open=int(each.levels.get("breaker_open", 0)),
        )
        for each in statistics.upstreams
    )
    return Beat(
        at=now.at,
        phase=node.phase,
        ready=node.ready,
        workers_ready=sum(worker.serving for worker in node.workers),
        workers=len(node.workers),
        requests_running=int(statistics.levels.get("gateway.requests_running", 0)),
        now=now,
        minute=minute,
        upstreams=upstreams,
        drained=node.drained,
        trouble=tuple(_trouble(node)),
    )


def _trouble(node: NodeSnapshot) -> list[str]:
    levels = node.statistics.levels
    words = [f"upstream {each.name}: {each.detail or 'not ready'}" for each in node.statistics.upstreams if not each.ready]
    words += [f"worker {worker.index} does not answer" for worker in node.workers if not worker.responsive]
    if node.engine is not None and node.engine.last_error:
        words.append(f"local engine: {node.engine.last_error}")
    if levels.get("limits.store_away"):
        words.append(f"{levels['limits.store_away']:g} workers cannot reach the store of limits")
    if levels.get("books.alone"):
        words.append(f"{levels['books.alone']:g} workers cannot reach the ledger process: entries wait in files")
    if levels.get("records.spilling"):
        words.append(f"{levels['records.spilling']:g} workers cannot write their records")
    if node.recorder is not None and node.recorder.trouble:
        words.append(f"records wait for their tables: {node.recorder.trouble}")
    if node.reloads.last_refusal:
        words.append(f"the last reload was refused: {node.reloads.last_refusal}")
    return words
