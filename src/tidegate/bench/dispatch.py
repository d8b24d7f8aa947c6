"""Sends the requests of one client process when they are due, and watches whether it keeps up with that.

Open loop: a request is sent at its instant, whatever became of those before it; only `max_in_flight` holds it back, and each one held back
is counted, because from then on the loop is not open any more. Closed loop: a request is due when a place is free.

An event loop's timers are a millisecond coarse. So the sender sleeps until `AWAKE_S` before the next instant and then goes round the loop,
which serves its sockets meanwhile, until the instant has come. The time spent in rounds that did nothing else is not counted as work.

Invariants: exactly one sample for every request that was begun; none for one that was not. At most `max_in_flight` (open) or the stage's
places (closed) are under way. `run` returns when nothing is under way and nothing more will be.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tidegate.adapters.wall_clock import wall_clock
from tidegate.bench.bodies import BodyMaker
from tidegate.bench.exchange import Clocks, Exchange
from tidegate.bench.histogram import Histogram
from tidegate.bench.plan import PlannedRequest, Scenario, Stage, Target
from tidegate.bench.reading import Answer
from tidegate.bench.sample import Buckets, ClientHealth, ClientReport, End, Sample
from tidegate.bench.text_checks import TextCheck
from tidegate.ports import UpstreamClient, UpstreamRequest

AWAKE_S: Final = 0.002
"""A timer of the loop comes at most this much off its instant: one millisecond of rounding, and one that the loop's clock is behind."""
MOST_PER_ROUND: Final = 64
"""Requests begun in one round of the loop, so that a burst does not keep answers waiting."""
TICK_S: Final = 0.01
IDLE_ROUND_S: Final = 50e-6
"""A round shorter than this served nobody."""
GAPS_PER_ROUND: Final = 256
"""Gaps of ended answers put into histograms in one round: some 0.3 ms."""


class Share:
    """What one client process has to do, put in order."""

    __slots__ = ("is_open", "length_s", "places", "requests", "stages")

    def __init__(
        self, requests: Sequence[PlannedRequest], stages: Sequence[Stage], *, length_s: float, places: Mapping[int, int] | None
    ) -> None:
        """`places` says how many may be under way at once, by stage; None: the loop is open."""
        self.requests = requests
        self.stages = stages
        self.length_s = length_s
        self.is_open = places is None
        self.places = places or {}


class Dispatcher:
    """Carries out a share, once."""

    def __init__(
        self,
        share: Share,
        target: Target,
        scenarios: Mapping[str, Scenario],
        *,
        client: UpstreamClient,
        on_sample: Callable[[Sample], None],
        number: int = 0,
    ) -> None:
        """Prepare; `number` is the client's. Raises `UnusableRequestsError`."""
        self._share = share
        self._target = target
        self._client = client
        self._on_sample = on_sample
        self._number = number
        self._makers = {name: BodyMaker(target, scenario) for name, scenario in scenarios.items()}
        self._checks = {name: TextCheck(scenario) for name, scenario in scenarios.items()}
        self._path = target.endpoint.path
        self._next = 0
        self._under_way: set[Exchange] = set()
        self._is_held = False
        """The cap is reached and a request is due."""
        self._held_until = -math.inf
        """When there was room again, the last time: what was due by then had to wait."""
        self._cap_reached = 0
        self._stopping = False
        self._pending: asyncio.Handle | None = None
        """The next round, if one is arranged."""
        self._round_began: float | None = None
        """Set while a round goes by with nothing to do but wait for the instant."""
        self._waited_s = 0.0
        self._lags = Histogram()
        self._tick_due = 0.0
        self._gaps = GapBook()

    @property
    def in_flight(self) -> int:
        return len(self._under_way)

    async def run(self, origin: float) -> None:
        """Send everything, `origin` being the run's on the monotonic clock, and wait for its end."""
        loop = asyncio.get_running_loop()
        monotonic = time.monotonic
        self._clocks = Clocks(now=lambda: monotonic() - origin, epoch_s=wall_clock, loop=loop)
        self._loop = loop
        self._ended = loop.create_future()
        self._began_at = monotonic() - origin
        self._cpu_began_s = time.process_time()
        self._tick_due = self._clocks.now() + TICK_S
        self._ticker = loop.call_later(TICK_S, self._tick)
        self._come_back()
        try:
            await self._ended
            self._gaps.drain(sys.maxsize)
        finally:
            self._ticker.cancel()
            if self._pending is not None:
                self._pending.cancel()

    def stop(self) -> None:
        """Begin nothing more and end what is under way."""
        self._stopping = True
        for exchange in tuple(self._under_way):
            exchange.cancel()
        self._end_if_over()

    def report(self) -> ClientReport:
        """Tell how well this process kept up; for after `run`."""
        took_s = max(1e-9, self._clocks.now() - self._began_at)
        worked_s = time.process_time() - self._cpu_began_s - self._waited_s
        health = ClientHealth(
            client=self._number,
            loop_lag_p99_s=self._lags.quantile(0.99),
            loop_lag_max_s=self._lags.most,
            cpu_ratio=max(0.0, worked_s) / took_s,
            cap_reached=self._cap_reached + self._is_held,
            connections_opened=0,
        )
        return ClientReport(health=health, chunk_gaps=self._gaps.chunk_gaps(), token_gaps=self._gaps.token_gaps())

    # ── sending ──────────────────────────────────────────────────────────────

    def _round(self) -> None:
        """Begin what is due, and come back for the rest."""
        self._pending = None
        now = self._clocks.now()
        began, self._round_began = self._round_began, None
        if began is not None and now - began < IDLE_ROUND_S:
            self._waited_s += now - began
        if self._stopping or self._end_if_over():
            return
        if self._share.is_open:
            self._send_due(now)
        else:
            self._fill_places(now)

    def _send_due(self, now: float) -> None:
        requests = self._share.requests
        last = min(len(requests), self._next + MOST_PER_ROUND)
        if self._is_held:
            self._held_until = now
            self._is_held = False
        while self._next < last:
            planned = requests[self._next]
            if planned.due_s > now:
                break
            if len(self._under_way) >= self._target.max_in_flight:
                self._is_held = True
                return  # `_ended_one` comes back
            self._next += 1
            self._cap_reached += planned.due_s <= self._held_until
            self._begin(planned, planned.due_s)
        if self._next < len(requests):
            self._come_back(requests[self._next].due_s)

    def _come_back(self, due_s: float | None = None) -> None:
        """Arrange a round for that instant, or the next one there is; one that is arranged already stays."""
        if self._pending is not None:
            return
        now = self._clocks.now()
        wait_s = 0.0 if due_s is None else due_s - now
        if wait_s > AWAKE_S:
            self._pending = self._loop.call_later(wait_s - AWAKE_S, self._round)
        else:
            self._round_began = now if wait_s > 0 else None
            self._pending = self._loop.call_soon(self._round)

    def _fill_places(self, now: float) -> None:
        """Begin as many as there are places, of the stage that it is; those of stages gone by are left out."""
        requests, stages = self._share.requests, self._share.stages
        if now < 0.0:
            self._come_back(0.0)
            return
        while self._next < len(requests):
            planned = requests[self._next]
            stage = stages[planned.stage] if planned.stage < len(stages) else None
            if now >= self._share.length_s:
                self._next = len(requests)
            elif stage is not None and now >= stage.begins_s + stage.length_s:
                self._next += 1
            elif stage is not None and now < stage.begins_s:
                self._come_back(stage.begins_s)
                return
            elif len(self._under_way) < self._share.places[planned.stage]:
                self._next += 1
                self._begin(planned, now)
                now = self._clocks.now()
            else:
                return  # `_ended_one` comes back
        self._end_if_over()

    def _begin(self, planned: PlannedRequest, due_at: float) -> None:
        maker = self._makers[planned.scenario]
        request = UpstreamRequest("POST", self._path, maker.headers, maker.body(planned))
        exchange = Exchange(
            planned,
            self._target,
            check=self._checks[planned.scenario],
            client=self._client,
            clocks=self._clocks,
            on_end=self._ended_one,
            number=self._number,
        )
        self._under_way.add(exchange)
        exchange.begin(request, due_at=due_at)

    def _ended_one(self, exchange: Exchange, sample: Sample) -> None:
        self._under_way.discard(exchange)
        answer = exchange.answer
        if sample.end is End.COMPLETE and answer is not None and self._gaps.add(exchange.planned.stage, answer):
            self._loop.call_soon(self._drain_gaps)
        self._on_sample(sample)
        if self._is_held or not self._share.is_open:
            self._come_back()
        else:
            self._end_if_over()

    def _end_if_over(self) -> bool:
        is_over = not self._under_way and (self._stopping or self._next >= len(self._share.requests))
        if is_over and not self._ended.done():
            self._ended.set_result(None)
        return is_over

    # ── watching ─────────────────────────────────────────────────────────────

    def _tick(self) -> None:
        now = self._clocks.now()
        self._lags.record(now - self._tick_due)
        self._tick_due = now + TICK_S
        self._ticker = self._loop.call_later(TICK_S, self._tick)

    def _drain_gaps(self) -> None:
        if self._gaps.drain(GAPS_PER_ROUND):
            self._loop.call_soon(self._drain_gaps)


class GapBook:
    """Gaps between outputs, by stage. They go into the histograms bit by bit, so that the end of a long answer does not stall the loop."""

    __slots__ = ("_at", "_backlog", "_of_chunks", "_of_tokens")

    def __init__(self) -> None:
        self._backlog: deque[tuple[int, Answer]] = deque()
        """Answers that ended faster than rounds take them in: as many as the share has, each with `reading.MAX_GAPS` gaps at most."""
        self._at = 0
        """How many gaps of the first answer are done."""
        self._of_chunks: dict[int, Histogram] = {}
        self._of_tokens: dict[int, Histogram] = {}

    def add(self, stage: int, answer: Answer) -> bool:
        """Put an ended answer's gaps in the queue; True when there was none before, so that somebody must come and drain."""
        if not answer.gaps_s:
            return False
        self._backlog.append((stage, answer))
        return len(self._backlog) == 1

    def drain(self, most: int) -> bool:
        """Take in at most so many gaps; True when some are left."""
        while self._backlog and most > 0:
            stage, answer = self._backlog[0]
            gaps = answer.gaps_s[self._at : self._at + most]
            self._of_chunks.setdefault(stage, Histogram()).record_many(gaps)
            if answer.completion_tokens and answer.output_chunks:
                per_chunk = answer.completion_tokens / answer.output_chunks
                brought = answer.gap_chunks[self._at : self._at + most]
                per_token = [gap_s / (chunks * per_chunk) for gap_s, chunks in zip(gaps, brought, strict=True)]
                self._of_tokens.setdefault(stage, Histogram()).record_many(per_token)
            self._at += len(gaps)
            most -= len(gaps)
            if self._at >= len(answer.gaps_s):
                self._backlog.popleft()
                self._at = 0
        return bool(self._backlog)

    def chunk_gaps(self) -> dict[int, Buckets]:
        return {stage: histogram.buckets() for stage, histogram in self._of_chunks.items()}

    def token_gaps(self) -> dict[int, Buckets]:
        return {stage: histogram.buckets() for stage, histogram in self._of_tokens.items()}
