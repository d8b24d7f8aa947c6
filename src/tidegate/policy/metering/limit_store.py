"""Limits of every key in the memory of one process: requests and tokens in any 60 s, and concurrency.

Invariants: a refusal consumes nothing in any window; each permit is ended once, by `settle` or `cancel`; outstanding
permits and held tokens return to zero when all are ended. With several workers each holds an equal share of every ceiling.
"""

from __future__ import annotations

from tidegate.domain.principal import Limits
from tidegate.domain.units import KeyId
from tidegate.policy.metering.sliding_window import SlidingWindow
from tidegate.ports import Denied, LimitName, LimitState, LimitStatistics, WindowState

_SWEEP_EVERY_S = 60.0  # idle meters cannot appear faster than windows empty
_CONCURRENCY_RETRY_S = 1.0  # when a running call ends is not known; OpenAI's SDK backs off from here by itself


class _Meter:
    """What one key has in use."""

    __slots__ = ("in_flight", "requests", "tokens")

    def __init__(self, *, now: float) -> None:
        self.in_flight = 0
        self.requests = SlidingWindow(now=now)
        self.tokens = SlidingWindow(now=now)


class MemoryLimitStore:
    """Implements `ports.LimitStore`.

    It holds one meter per caller seen in the last minutes; callers are authenticated before they get here, so their number is
    bounded by the keys that were issued and the subjects that an issuer vouches for.
    """

    def __init__(self, *, workers: int = 1) -> None:
        self._workers = workers
        self._meters: dict[KeyId, _Meter] = {}
        self._swept_at: float | None = None
        self.outstanding = 0
        self.held_tokens = 0

    def __repr__(self) -> str:
        return f"MemoryLimitStore(keys={len(self._meters)}, outstanding={self.outstanding}, held_tokens={self.held_tokens})"

    def admit(self, key: KeyId, limits: Limits, *, now: float) -> MemoryPermit | Denied:
        self._sweep(now)
        meter = self._meters.get(key)
        if meter is None:
            meter = self._meters[key] = _Meter(now=now)
        if limits.concurrency is not None:
            ceiling = self.share(limits.concurrency)
            if meter.in_flight >= ceiling:
                return Denied(LimitName.CONCURRENCY, limits.concurrency, 0, 1, _CONCURRENCY_RETRY_S)
        slot = 0
        if limits.requests_per_minute is not None:
            ceiling = self.share(limits.requests_per_minute)
            taken = meter.requests.take(1, ceiling, now=now)
            if taken is None:
                wait_s = meter.requests.wait_s(1, ceiling, now=now)
                return Denied(LimitName.REQUESTS, limits.requests_per_minute, 0, 1, wait_s)
            slot = taken
        meter.in_flight += 1
        self.outstanding += 1
        return MemoryPermit(self, meter, limits, slot)

    def share(self, ceiling: int) -> int:
        """Give this worker's part of a ceiling, at least 1."""
        return max(1, ceiling // self._workers)

    def whole(self, amount: int, ceiling: int) -> int:
        """Scale an amount of this worker's share back to the whole node, for the client's eyes."""
        return min(ceiling, amount * self._workers)

    def state(self, key: KeyId, limits: Limits, *, now: float) -> LimitState:
        meter = self._meters.get(key)
        requests = meter.requests if meter is not None else None
        tokens = meter.tokens if meter is not None else None
        return LimitState(
            requests=self._window(requests, limits.requests_per_minute, now), tokens=self._window(tokens, limits.tokens_per_minute, now)
        )

    def _window(self, window: SlidingWindow | None, ceiling: int | None, now: float) -> WindowState | None:
        if ceiling is None:
            return None
        if window is None:
            return WindowState(ceiling, ceiling, 0.0)
        share = self.share(ceiling)
        remaining = self.whole(max(0, share - window.used(share, now=now)), ceiling)
        return WindowState(ceiling, remaining, window.reset_s(share, now=now))

    def statistics(self, *, now: float) -> LimitStatistics:
        self._sweep(now)
        return LimitStatistics(len(self._meters), self.outstanding, self.held_tokens)

    def _sweep(self, now: float) -> None:
        if self._swept_at is None:
            self._swept_at = now
        if now - self._swept_at < _SWEEP_EVERY_S:
            return
        self._swept_at = now
        idle = [
            key
            for key, meter in self._meters.items()
            if meter.in_flight == 0 and meter.requests.is_idle(now=now) and meter.tokens.is_idle(now=now)
        ]
        for key in idle:
            del self._meters[key]


class MemoryPermit:
    """Implements `ports.Permit`."""

    __slots__ = ("_ended", "_limits", "_meter", "_request_slot", "_reserved", "_store", "_token_slot")

    def __init__(self, store: MemoryLimitStore, meter: _Meter, limits: Limits, request_slot: int) -> None:
        self._store = store
        self._meter = meter
        self._limits = limits
        self._request_slot = request_slot
        self._token_slot = 0
        self._reserved = 0
        self._ended = False

    def reserve(self, tokens: int, *, now: float) -> Denied | None:
        assert not self._ended, "a permit that has ended cannot reserve"
        assert self._reserved == 0, "tokens are reserved once"
        ceiling = self._limits.tokens_per_minute
        if ceiling is not None:
            share = self._store.share(ceiling)
            slot = self._meter.tokens.take(tokens, share, now=now)
            if slot is None:
                remaining = self._store.whole(max(0, share - self._meter.tokens.used(share, now=now)), ceiling)
                wait_s = self._meter.tokens.wait_s(tokens, share, now=now) if tokens <= share else None
                return Denied(LimitName.TOKENS, ceiling, remaining, tokens, wait_s)
            self._token_slot = slot
        self._reserved = tokens
        self._store.held_tokens += tokens
        return None

    def remaining_tokens(self, *, now: float) -> int | None:
        ceiling = self._limits.tokens_per_minute
        if ceiling is None:
            return None
        share = self._store.share(ceiling)
        return max(0, share - self._meter.tokens.used(share, now=now))

    def ceiling_tokens(self) -> int | None:
        ceiling = self._limits.tokens_per_minute
        return None if ceiling is None else self._store.share(ceiling)

    def settle(self, used_tokens: int, *, now: float) -> None:
        ceiling = self._limits.tokens_per_minute
        if ceiling is not None:
            if used_tokens < self._reserved:
                self._meter.tokens.give_back(self._reserved - used_tokens, self._token_slot)
            elif used_tokens > self._reserved:
                self._meter.tokens.charge(used_tokens - self._reserved, self._store.share(ceiling), now=now)
        self._end()

    def cancel(self, *, now: float) -> None:
        if self._limits.requests_per_minute is not None:
            self._meter.requests.give_back(1, self._request_slot)
        self.settle(0, now=now)

    def _end(self) -> None:
        assert not self._ended, "a permit is ended exactly once"
        self._ended = True
        self._meter.in_flight -= 1
        self._store.outstanding -= 1
        self._store.held_tokens -= self._reserved
