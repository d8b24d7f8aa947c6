"""A circuit breaker: leaves a server alone that fails, finds out when it is back, and lets it recover slowly.

    closed ──fast trip──> open ──pause over──> half_open ──probes passed──> closed
       │                   ^                      │
       │                   └─────probe failed─────┘
       └──soft trip──> soft_open ──pause over──> soft_half_open ──probes passed──> closed
                        │   ^                      │   │
                        │   └─────probe failed─────┘   │
                        └──────────fast trip───────────┴──> open

*Fast* trips (connections that cannot be had, failures in a row, a large share of failures in a short window) mean that calls would be
wasted: nothing goes there but probes. *Soft* trips (a small share of failures for a long time, slow first tokens) mean that others are
better: they go first, and with no other the server is used all the same. A pause doubles with each trip in a row and is shortened by up
to a quarter at random, so that many breakers do not come back together.

Invariants: the calls that are let through while half open are at most `settings.probes` at a time, and each gives its place back once;
a call counts only in the phase it began in, so that the hung calls of an outage, when they end, say nothing about the time after it;
nothing depends on when, or how often, a breaker is looked at; all times shifted by a constant change nothing.
"""

from __future__ import annotations

from enum import StrEnum
from random import Random

from tidegate.domain.upstream import BreakerPhase, BreakerSettings
from tidegate.policy.resilience.failure_window import FailureWindow, WindowStreak

BAD_WINDOWS = 3
"""So many long windows in a row make the slow trip."""
SMALLEST_SHARE = 0.1
"""Of its weight, right after recovery."""
_JITTER = 0.25  # a pause is shortened by up to this share
_MOST_DOUBLINGS = 20  # far beyond any longest pause
_BY_CHANCE = 0.01  # expected rows of failures within one short window, above which a row proves nothing

CLOSED = BreakerPhase.CLOSED
SOFT_OPEN = BreakerPhase.SOFT_OPEN
SOFT_HALF_OPEN = BreakerPhase.SOFT_HALF_OPEN
OPEN = BreakerPhase.OPEN
HALF_OPEN = BreakerPhase.HALF_OPEN


class Signal(StrEnum):
    """What moves a breaker."""

    FAST_TRIP = "fast trip"
    SOFT_TRIP = "soft trip"
    PAUSE_OVER = "pause over"
    PROBE_FAILED = "probe failed"
    PROBES_PASSED = "probes passed"


TRANSITIONS: dict[BreakerPhase, dict[Signal, BreakerPhase]] = {
    CLOSED: {Signal.FAST_TRIP: OPEN, Signal.SOFT_TRIP: SOFT_OPEN},
    OPEN: {Signal.PAUSE_OVER: HALF_OPEN},
    HALF_OPEN: {Signal.PROBE_FAILED: OPEN, Signal.PROBES_PASSED: CLOSED},
    SOFT_OPEN: {Signal.PAUSE_OVER: SOFT_HALF_OPEN, Signal.FAST_TRIP: OPEN},
    SOFT_HALF_OPEN: {Signal.PROBE_FAILED: SOFT_OPEN, Signal.PROBES_PASSED: CLOSED, Signal.FAST_TRIP: OPEN},
}


class Breaker:
    """The breaker of one replica, or (`whole_pool`) of all replicas of an upstream together.

    A pool's breaker trips by shares only, and only for what is widespread: one dead replica of many is not the pool's failure.
    Each call is begun with `begin` and ended with one of `succeed`, `fail` and `release`, with the time it began at (`began_at`; None is
    taken as a call of the present phase).
    """

    __slots__ = (
        "_connects",
        "_early",
        "_passed",
        "_row",
        "_since",
        "_slow_trip",
        "_streak",
        "_trips_in_a_row",
        "_until",
        "_whole_pool",
        "_window",
        "phase",
        "probes",
        "reason",
        "recovered_at",
        "settings",
        "trips",
    )

    def __init__(self, settings: BreakerSettings, *, whole_pool: bool = False) -> None:
        self.settings = settings
        self._whole_pool = whole_pool
        self.phase: BreakerPhase = CLOSED
        self.reason = ""
        """Why it is not closed, in words."""
        self.trips = 0
        self.probes = 0
        """Calls that hold a place of the half-open phase."""
        self.recovered_at: float | None = None
        """When it last closed; None when it never opened."""
        self._since: float | None = None
        self._until: float | None = None
        self._passed = 0
        self._early = 0
        """Probes whose output began: they have passed and run on without a place."""
        self._row = 0
        self._connects = 0
        self._trips_in_a_row = 0
        self._slow_trip = False
        self._window = FailureWindow(settings.window_s)
        self._streak = WindowStreak(settings.slow_window_s, settings.slow_ratio, settings.slow_min_calls)

    def __repr__(self) -> str:
        return f"Breaker({self.phase}, {self.probes} probes, {self._window!r})"

    def continued(self, settings: BreakerSettings) -> Breaker:
        """Make one of other settings that stands where this one does; calls that run are not taken over."""
        heir = Breaker(settings, whole_pool=self._whole_pool)
        heir.phase, heir.reason, heir.trips, heir.recovered_at = self.phase, self.reason, self.trips, self.recovered_at
        heir._since, heir._until = self._since, self._until
        heir._trips_in_a_row, heir._slow_trip = self._trips_in_a_row, self._slow_trip
        return heir

    # ── looks, which change nothing ───────────────────────────────────────────

    def phase_at(self, now: float) -> BreakerPhase:
        """Give the phase as it is now: a pause that is over needs no call to be over."""
        if (self.phase is OPEN or self.phase is SOFT_OPEN) and self._pause_is_over(now):
            return HALF_OPEN if self.phase is OPEN else SOFT_HALF_OPEN
        return self.phase

    def admits(self, now: float, *, soft: bool) -> bool:
        """Tell whether a call may begin; `soft` True when nothing better was found, so that soft phases do not count."""
        phase = self.phase
        if phase is CLOSED:
            return True
        if soft and (phase is SOFT_OPEN or phase is SOFT_HALF_OPEN):
            return True
        if phase is OPEN or phase is SOFT_OPEN:
            return self._pause_is_over(now)
        return self.probes < self.settings.probes

    def wants_probe(self, now: float) -> bool:
        """Tell whether a call that goes here now would be a probe with a place of its own."""
        phase = self.phase
        if phase is CLOSED:
            return False
        if phase is OPEN or phase is SOFT_OPEN:
            return self._pause_is_over(now)
        return self.probes < self.settings.probes

    def wait_s(self, now: float) -> float:
        """Seconds until a call may begin; 0 when it may now, or if need be. A place of the half-open phase is expected within a pause."""
        if self.phase is OPEN and self._until is not None and now < self._until:
            return self._until - now
        if self.phase is HALF_OPEN and self.probes >= self.settings.probes:
            return self.settings.cooldown_s
        return 0.0

    def share(self, now: float) -> float:
        """Give the part of its weight that a replica has: all of it, or less for a while after a recovery."""
        if self.recovered_at is None:
            return 1.0
        return min(1.0, max(SMALLEST_SHARE, (now - self.recovered_at) / self.settings.slow_start_s))

    def failing(self, now: float) -> bool:
        """Tell whether it is open, or its short window by itself is bad: how a pool sees that a failure is widespread."""
        if self.phase is not CLOSED:
            return True
        window = self._window
        window.advance(now)
        slow = window.firsts > 0 and 2 * window.slow_firsts > window.firsts
        return slow or (window.calls > 0 and window.failures >= self.settings.failure_ratio * window.calls)

    # ── calls ─────────────────────────────────────────────────────────────────

    def begin(self, now: float) -> None:
        if self.phase is CLOSED:
            return
        if (self.phase is OPEN or self.phase is SOFT_OPEN) and self._pause_is_over(now):
            self._move(Signal.PAUSE_OVER, now)
        if self.phase is HALF_OPEN or self.phase is SOFT_HALF_OPEN:
            self.probes += 1

    def release(self, *, began_at: float | None, early: bool = False) -> None:
        """End a call that says nothing: its client left, or the server asked for a pause."""
        if self.phase is not CLOSED and self._is_current(began_at):
            self._give_back(early=early)

    def succeed(self, *, now: float, began_at: float | None, early: bool = False) -> None:
        """End a call that was answered, `early` after `output_began`."""
        if not self._is_current(began_at):
            return
        if self.phase is HALF_OPEN or self.phase is SOFT_HALF_OPEN:
            if not self._give_back(early=early) and not self._hides_first_token(now, began_at):
                self._pass(now)
            return
        self._row = self._connects = 0
        self._window.add(failed=False, now=now)
        if self.phase is CLOSED:
            self._streak.add(failed=False, now=now)

    def output_overdue(self, *, now: float, began_at: float, rng: Random, widespread: bool = True) -> None:
        """Take note that a first token is late already: it need not come to be slow."""
        if not self._is_current(began_at):
            return
        if self.phase is SOFT_HALF_OPEN:
            self._trip(Signal.PROBE_FAILED, f"a first token took longer than {self.settings.ttft_s:g} s again", now, rng)
        else:
            self._slow_first(now, rng, widespread=widespread)

    def output_began(
        self, *, now: float, began_at: float | None, slow: bool, rng: Random, widespread: bool = True, was_overdue: bool = False
    ) -> None:
        """Take note of a stream's first output: a probe has passed then, however long the stream goes on."""
        if not self._is_current(began_at):
            return
        if self.phase is SOFT_HALF_OPEN and slow:
            self._trip(Signal.PROBE_FAILED, f"a first token took longer than {self.settings.ttft_s:g} s again", now, rng)
        elif self.phase is HALF_OPEN or self.phase is SOFT_HALF_OPEN:
            self._give_back(early=False)
            self._early += 1
            self._pass(now)
        elif was_overdue:
            pass  # it was counted when it was late
        elif slow:
            self._slow_first(now, rng, widespread=widespread)
        else:
            self._window.add_first(slow=False, now=now)

    def fail(
        self, *, now: float, began_at: float | None, rng: Random, connect: bool = False, widespread: bool = True, early: bool = False
    ) -> None:
        """End a call that failed; `connect` when there was no connection at all, `early` after `output_began`."""
        if self.phase is OPEN or not self._is_current(began_at):
            return
        if self.phase is HALF_OPEN:
            if self._whole_pool and self._row + 1 < self.settings.probes:
                self._row += 1  # one replica of many: the next probe goes to another, and only failures in a row are the pool's
                self._give_back(early=early)
            else:
                self._trip(Signal.PROBE_FAILED, self.reason, now, rng)
            return
        self._row += 1
        self._connects = self._connects + 1 if connect else 0
        self._window.add(failed=True, now=now)
        fast = self._fast_reason()
        if fast and widespread:
            self._trip(Signal.FAST_TRIP, fast, now, rng)
        elif self.phase is SOFT_HALF_OPEN:
            self._trip(Signal.PROBE_FAILED, self.reason, now, rng)
        elif self.phase is CLOSED:
            self._streak.add(failed=True, now=now)
            if self._streak.length >= BAD_WINDOWS and widespread:
                share, span = 100.0 * self.settings.slow_ratio, self.settings.slow_window_s
                reason = f"more than {share:g} % of the calls failed in each of {BAD_WINDOWS} times {span:g} s"
                self._trip(Signal.SOFT_TRIP, reason, now, rng)

    def end_pause(self) -> None:
        """Let probes begin at once: something else showed that the server is back."""
        self._until = None

    # ── rules ─────────────────────────────────────────────────────────────────

    def _is_current(self, began_at: float | None) -> bool:
        return began_at is None or self._since is None or began_at >= self._since

    def _hides_first_token(self, now: float, began_at: float | None) -> bool:
        """Tell whether a whole answer leaves open what a probe of first tokens is to show: it took longer than they may take.

        With no streams among the calls there is no better proof: after `max_cooldown_s` without a verdict it will do.
        """
        ttft_s, since = self.settings.ttft_s, self._since
        if self.phase is HALF_OPEN or self._slow_trip or ttft_s is None or began_at is None or since is None:
            return False
        return now - began_at > ttft_s and now - since <= self.settings.max_cooldown_s

    def _pause_is_over(self, now: float) -> bool:
        return self._until is None or now >= self._until

    def _give_back(self, *, early: bool) -> bool:
        """End one probe; True when it had given its place back before."""
        if early and self._early > 0:
            self._early -= 1
            return True
        if self.probes > 0:
            self.probes -= 1
        return False

    def _pass(self, now: float) -> None:
        self._row = self._connects = 0
        self._passed += 1
        if self._passed >= self.settings.probes:
            self._move(Signal.PROBES_PASSED, now)

    def _slow_first(self, now: float, rng: Random, *, widespread: bool) -> None:
        window, settings = self._window, self.settings
        window.add_first(slow=True, now=now)
        if self.phase is CLOSED and widespread and window.firsts >= settings.min_calls and 2 * window.slow_firsts > window.firsts:
            reason = f"{window.slow_firsts} of the last {window.firsts} first tokens took longer than {settings.ttft_s:g} s"
            self._trip(Signal.SOFT_TRIP, reason, now, rng)

    def _fast_reason(self) -> str:
        settings, window = self.settings, self._window
        if not self._whole_pool:
            if self._connects >= settings.connect_failures and not self._row_may_be_chance():
                return f"{self._connects} connections in a row could not be had"
            if self._row >= settings.consecutive_failures and not self._row_may_be_chance():
                return f"{self._row} calls in a row failed"
        if window.calls >= settings.min_calls and window.failures >= settings.failure_ratio * window.calls:
            return f"{window.failures} of the last {window.calls} calls failed"
        return ""

    def _row_may_be_chance(self) -> bool:
        """Tell whether so long a row is to be expected among so many calls, with the share of them that failed before it.

        Of 25,000 calls of which one in ten fails, five in a row fail once in four times; those of a server that broke down fail on and on.
        """
        calls, failures = self._window.calls - self._row, self._window.failures - self._row
        if calls < self.settings.min_calls or failures <= 0:
            return False
        return calls * (failures / calls) ** self._row > _BY_CHANCE

    def _trip(self, signal: Signal, reason: str, now: float, rng: Random) -> None:
        """Open, for a pause that grows with the trips in a row; a slow trip, which took minutes to prove, pauses longest at once."""
        settings = self.settings
        if self.phase is CLOSED:
            again = self.recovered_at is not None and now - self.recovered_at < settings.max_cooldown_s
            self._trips_in_a_row = self._trips_in_a_row + 1 if again else 0
        elif signal is Signal.FAST_TRIP:
            self._trips_in_a_row = 0  # what went before was milder
        else:
            self._trips_in_a_row += 1
        if signal is not Signal.PROBE_FAILED:
            self._slow_trip = signal is Signal.SOFT_TRIP and self._streak.length >= BAD_WINDOWS
        pause = settings.max_cooldown_s
        if not self._slow_trip:
            pause = min(pause, settings.cooldown_s * 2.0 ** min(self._trips_in_a_row, _MOST_DOUBLINGS))
        self._move(signal, now)
        self.reason = reason
        self.trips += 1
        self._until = now + rng.uniform((1.0 - _JITTER) * pause, pause)

    def _move(self, signal: Signal, now: float) -> None:
        self.phase = TRANSITIONS[self.phase][signal]
        self._since = now
        self.probes = self._passed = self._early = 0
        if self.phase is CLOSED:
            self.reason = ""
            self.recovered_at = now
        if self.phase is CLOSED or self.phase is OPEN:
            self._row = self._connects = 0
            self._window.clear()
            self._streak.clear(BAD_WINDOWS - 1 if self._slow_trip else 0)  # one more bad window proves that nothing got better
