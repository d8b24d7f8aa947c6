"""A model of an inference engine with continuous batching: load slows it as it slows a real one.

Decides without I/O: `now` is an argument, and whoever drives it calls `advance` when `next_step_at` has come. Work is done in steps. In
one step every running sequence whose prompt has been read gets a token, and up to `step_tokens` prompt tokens are read, in order of
arrival. A step with b decoding sequences and p prompt tokens takes t0 + c·b + p / prefill_tokens_per_s; t0 and c follow from the speed of
one sequence alone and of a full batch. At most `batch` sequences run, and only while the KV cache has room for all they will need; the
others wait in order.

Laws: a sequence gets exactly the tokens it asked for, unless cancelled; all together never more than `decode_tokens_per_s`; what left
holds no place and no memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

Grant = Callable[[int], None]
"""Called with the number of tokens that have just been made; with 0 when a prompt without output has been read."""

_CATCH_UP_S = 1.0
"""A driver that comes later than this has stood still itself (a stopped process); those steps are not made up for."""


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How fast the engine is and how much it takes."""

    prefill_tokens_per_s: Annotated[float, Meta(gt=0)] = 20_000.0
    decode_tokens_per_s: Annotated[float, Meta(gt=0)] = 2_400.0
    single_tokens_per_s: Annotated[float, Meta(gt=0)] | None = None
    """None: twice what each sequence of a full batch gets."""
    batch: Annotated[int, Meta(ge=1, le=10_000)] = 64
    step_tokens: Annotated[int, Meta(ge=1)] = 2_048
    kv_tokens: Annotated[int, Meta(ge=1)] = 200_000
    max_waiting: Annotated[int, Meta(ge=0)] = 1_000

    def __post_init__(self) -> None:
        least, most = self.decode_tokens_per_s / self.batch, self.decode_tokens_per_s
        alone = self.single_tokens_per_s
        if alone is not None and not least <= alone <= most:
            raise ValueError(
                f"single_tokens_per_s is {alone:g}; with this decode_tokens_per_s and batch it lies between {least:g} and {most:g}"
            )

    def step_costs(self) -> tuple[float, float]:
        """Give t0 and c, in seconds: of a step, and of each decoding sequence in it."""
        full, alone = self.decode_tokens_per_s, self.single_tokens_per_s
        if self.batch == 1:
            return 0.0, 1.0 / full
        if alone is None:
            alone = min(full, 2.0 * full / self.batch)
        each = (self.batch / full - 1.0 / alone) / (self.batch - 1)
        return 1.0 / alone - each, each


class EngineStatistics(msgspec.Struct, frozen=True):
    """The engine at one moment."""

    running: int
    waiting: int
    kv_usage_ratio: float
    steps: int = 0
    prompt_tokens: int = 0
    """Read since the start."""
    output_tokens: int = 0
    """Made since the start."""


class Sequence:
    """One call in the engine."""

    __slots__ = ("grant", "made", "output_tokens", "prompt_tokens", "read", "share", "state")

    def __init__(self, prompt_tokens: int, output_tokens: int, grant: Grant) -> None:
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.grant = grant
        self.read = 0
        """Prompt tokens read so far."""
        self.share = 0
        """Prompt tokens that the step under way reads."""
        self.made = 0
        self.state = "waiting"

    @property
    def needs(self) -> int:
        """KV cache it will have filled at its end."""
        return self.prompt_tokens + self.output_tokens


class Engine:
    """See the module."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self._fixed_s, self._each_s = settings.step_costs()
        self._running: list[Sequence] = []
        self._waiting: deque[Sequence] = deque()  # bounded by `max_waiting`: `full` is asked first
        self._reserved = 0
        self._step_ends_at: float | None = None
        self._steps = 0
        self._prompt_tokens = 0
        self._output_tokens = 0

    @property
    def full(self) -> bool:
        """Nobody more may wait."""
        return len(self._waiting) >= self.settings.max_waiting + self.settings.batch - len(self._running)

    def submit(self, prompt_tokens: int, output_tokens: int, grant: Grant, *, now: float) -> Sequence:
        """Take a call; its tokens come through `grant`."""
        sequence = Sequence(prompt_tokens, output_tokens, grant)
        self._waiting.append(sequence)
        if self._step_ends_at is None:
            self._begin_step(now)
        return sequence

    def cancel(self, sequence: Sequence, *, now: float) -> None:
        """Drop a call, wherever it is; after its end this does nothing."""
        if sequence.state == "waiting":
            self._waiting.remove(sequence)
        elif sequence.state == "running":
            self._leave(sequence)
            if not self._running:
                self._step_ends_at = None
                self._begin_step(now)
        sequence.state = "ended"

    def next_step_at(self) -> float | None:
        """When `advance` is due; None: there is nothing to do."""
        return self._step_ends_at

    def advance(self, now: float) -> None:
        """End every step that is due, and tell the sequences what they got."""
        granted: list[tuple[Sequence, int]] = []
        while self._step_ends_at is not None and self._step_ends_at <= now:
            ended_at = self._step_ends_at if now - self._step_ends_at < _CATCH_UP_S else now
            self._end_step(granted)
            self._begin_step(ended_at)
        for sequence, tokens in granted:
            sequence.grant(tokens)

    def statistics(self) -> EngineStatistics:
        used = sum(sequence.read + sequence.made for sequence in self._running)
        return EngineStatistics(
            running=len(self._running),
            waiting=len(self._waiting),
            kv_usage_ratio=min(1.0, used / self.settings.kv_tokens),
            steps=self._steps,
            prompt_tokens=self._prompt_tokens,
            output_tokens=self._output_tokens,
        )

    def _fits(self, tokens: int) -> bool:
        """There is a place and room; what is larger than the whole cache runs alone, so that it runs at all."""
        if len(self._running) >= self.settings.batch:
            return False
        return not self._running or self._reserved + tokens <= self.settings.kv_tokens

    def _begin_step(self, now: float) -> None:
        while self._waiting and self._fits(self._waiting[0].needs):
            sequence = self._waiting.popleft()
            sequence.state = "running"
            self._running.append(sequence)
            self._reserved += sequence.needs
        if not self._running:
            self._step_ends_at = None
            return
        left, decoding = self.settings.step_tokens, 0
        for sequence in self._running:
            if sequence.read >= sequence.prompt_tokens and sequence.made:
                decoding += 1
                continue
            sequence.share = min(left, sequence.prompt_tokens - sequence.read)
            left -= sequence.share
            decoding += sequence.read + sequence.share >= sequence.prompt_tokens
        reading = self.settings.step_tokens - left
        self._step_ends_at = now + self._fixed_s + self._each_s * decoding + reading / self.settings.prefill_tokens_per_s

    def _end_step(self, granted: list[tuple[Sequence, int]]) -> None:
        self._steps += 1
        for sequence in tuple(self._running):
            if sequence.share:
                sequence.read += sequence.share
                self._prompt_tokens += sequence.share
                sequence.share = 0
            if sequence.read < sequence.prompt_tokens:
                continue
            if sequence.output_tokens:
                sequence.made += 1
                self._output_tokens += 1
            granted.append((sequence, 1 if sequence.output_tokens else 0))
            if sequence.made >= sequence.output_tokens:
                self._leave(sequence)
                sequence.state = "ended"

    def _leave(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._reserved -= sequence.needs
