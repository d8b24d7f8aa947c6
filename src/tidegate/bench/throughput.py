"""How much came per second, without flattery and without the ends of a run spoiling it.

What was *asked* and what was *sent* are counts over the planned time; a request that was sent late, after it, was not sent in time.

What *came* in an open loop is all whole answers over the time of the load, or over the time in which they came, from the end of the first
on, where that is longer: an overloaded server shows its own rate so, not the load's. The last hundredth of the answers is left out of that
time (and then of their number), for one straggler says nothing of a rate. In a closed loop it is the answers that ended within the planned
time, or up to the last one if that is earlier, over that time.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.bench.bins import Bins
from tidegate.bench.outcome import Judged, Outcome
from tidegate.bench.sample import End

_MOST_OF: Final = 0.99
_MOST_BINS: Final = 1200
"""By when answers ended: at least 600 over the run, so that its time is known within a fifth of a per cent."""
_FIRST_WIDTH_S: Final = 0.01
LATE_S: Final = 0.05
"""A request that is due just before the end may be sent so long after it."""


class Window(msgspec.Struct, frozen=True):
    """The time that is counted, in seconds from the run's origin."""

    begins_s: float
    ends_s: float
    closed_loop: bool = False
    """Then nothing is due at a time, and the run may end early because its requests are used up."""


class Rates(msgspec.Struct, frozen=True):
    """Per second. None: there was no time to count in, or (`asked`) nothing was asked."""

    asked: float | None = None
    sent: float | None = None
    ok: float | None = None
    good: float | None = None
    """Goodput: ok, and within the SLO."""
    tokens_in: float | None = None
    """As reported, of the answers that came whole; with `tokens_out` too low by the share of them that reported none."""
    tokens_out: float | None = None

    @property
    def sent_ratio(self) -> float | None:
        """Give the part of what was asked that was sent in time."""
        return None if not self.asked or self.sent is None else self.sent / self.asked


class _Answers:
    __slots__ = ("good", "n", "ok", "tokens_in", "tokens_out")

    def __init__(self) -> None:
        self.n = self.ok = self.good = self.tokens_in = self.tokens_out = 0

    def add(self, judged: Judged) -> None:
        self.n += 1
        self.ok += judged.outcome is Outcome.OK
        self.good += judged.good
        self.tokens_in += judged.sample.prompt_tokens or 0
        self.tokens_out += judged.sample.completion_tokens or 0


class _Ended:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0

    def take(self, other: _Ended) -> None:
        self.n += other.n


class Throughput:
    """Counts the requests of one window, or of one part of the load within it."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._due = self._sent = 0
        self._inside, self._all = _Answers(), _Answers()
        self._ends = Bins(_Ended, width_s=_FIRST_WIDTH_S, most=_MOST_BINS)
        self._first_s = self._last_s = window.begins_s

    def end_at(self, instant_s: float) -> None:
        """Cut the window short: the run was ended."""
        self._window = msgspec.structs.replace(self._window, ends_s=min(self._window.ends_s, instant_s))

    def add(self, judged: Judged) -> None:
        sample, window = judged.sample, self._window
        if sample.end is End.NOT_SENT:
            self._due += sample.due_at <= window.ends_s
            return
        self._due += 1
        self._sent += sample.sent_at <= window.ends_s + LATE_S
        if sample.end is not End.COMPLETE:
            return
        if not self._all.n or sample.ended_at < self._first_s:
            self._first_s = sample.ended_at
        self._last_s = max(self._last_s, sample.ended_at)
        self._all.add(judged)
        self._ends.at(sample.ended_at).n += 1
        if sample.ended_at <= window.ends_s:
            self._inside.add(judged)

    def rates(self, *, so_far: bool = False) -> Rates:
        """Give the rates of the window; `so_far` of the part of it that has answers, while a run is under way."""
        window = self._window
        ends_s = min(window.ends_s, self._last_s) if so_far or (window.closed_loop and self._all.n) else window.ends_s
        length_s = ends_s - window.begins_s
        if length_s <= 0.0 or not self._due:
            return Rates()
        answers, scale = (self._inside, 1.0 / length_s) if window.closed_loop else (self._all, self._scale(length_s))
        return Rates(
            asked=None if window.closed_loop else self._due / length_s,
            sent=self._sent / length_s,
            ok=answers.ok * scale,
            good=answers.good * scale,
            tokens_in=answers.tokens_in * scale,
            tokens_out=answers.tokens_out * scale,
        )

    def _scale(self, length_s: float) -> float:
        """Give what turns the number of all answers into a rate."""
        came, wanted = 0, _MOST_OF * self._all.n
        for index, ended in enumerate(self._ends.bins):
            came += ended.n
            if came >= wanted:
                span_s = (index + 1) * self._ends.width_s - self._first_s
                return 1.0 / length_s if span_s <= length_s else came / self._all.n / span_s
        return 0.0
