"""Which kinds of prompts a route's primary keeps failing, so that they go to a fallback until it can answer them again.

A prompt belongs to a few classes (`prompt_classes`). A class is diverted when its share of failures in the window reaches the threshold and
stands clearly above that of the route's other calls: a route that fails as a whole has no bad class. Of several classes that look bad in
one prompt only the worst is blamed, since the others may owe their failures to it; then the route's counts begin afresh without it.
A diverted class gets one call on the primary every `recover_after_s`, and is back to normal when such a call succeeds.

Invariants: nothing is diverted on fewer than `min_calls` calls of the class and as many others, nor when every call fails; the work per
call is constant; routes are those of the settings and the classes of each are bounded; a clock that stands or goes back loses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

import msgspec

from tidegate.domain.features import PromptFeatures
from tidegate.domain.upstream import Target
from tidegate.policy.degradation.prompt_classes import classes_of

_MAX_CLASSES = 32
"""Of one route: twice as many as the extractor can name today. Later ones are not watched."""
_SLOTS = 10  # the window moves in tenths
_TIMES_WORSE = 2.0
"""A bad class fails at least this many times as often as the rest: a difference that matters, however many calls prove it."""
_STANDARD_ERRORS = 3.0
"""A bad class differs from the rest by this many standard errors: a difference that is no accident, however large it looks."""


class ClassSettings(msgspec.Struct, frozen=True):
    """When a class of one route is diverted, and where to; see `config.schema_routing.ClassesSection`."""

    fallback: Target
    failure_ratio: float = 0.3
    window_s: float = 60.0
    min_calls: int = 10
    recover_after_s: float = 30.0


class Diversion(msgspec.Struct, frozen=True):
    """The class that is to blame, and the target that serves it meanwhile."""

    prompt_class: str
    target: Target


class ClassStatus(msgspec.Struct, frozen=True):
    """One class of one route: its calls of the window, and whether it is diverted."""

    route: str
    prompt_class: str
    calls: int
    failures: int
    diverted: bool


class ClassHealth:
    """The classes of every route that watches them. A route whose settings did not change keeps its state from `before`."""

    def __init__(self, settings_by_route: Mapping[str, ClassSettings], *, before: ClassHealth | None = None) -> None:
        known: Mapping[str, _RouteClasses] = before._routes if before is not None else {}  # noqa: SLF001  the same class
        self._routes: dict[str, _RouteClasses] = {}
        for pattern, settings in settings_by_route.items():
            earlier = known.get(pattern)
            kept = earlier if earlier is not None and earlier.settings == settings else None
            self._routes[pattern] = kept if kept is not None else _RouteClasses(settings)

    def __repr__(self) -> str:
        return f"ClassHealth({', '.join(f'{pattern}: {sorted(route.diverted)}' for pattern, route in self._routes.items())})"

    def watches(self, route_pattern: str) -> bool:
        """Tell whether a route has classes at all: if not, a prompt's features need not be read for it."""
        return route_pattern in self._routes

    def diverted(self, route_pattern: str, features: PromptFeatures, *, now: float) -> Diversion | None:
        """Say where a prompt of a failing class goes; None for the usual way, also when this call is to find out whether that works again.

        A prompt of several diverted classes finds out only when all of them are due.
        """
        route = self._routes.get(route_pattern)
        if route is None or not route.diverted:
            return None
        return route.divert(classes_of(features), now)

    def observe(self, route_pattern: str, features: PromptFeatures, *, failed: bool, now: float) -> None:
        """Take note of how the route's primary did with a prompt."""
        route = self._routes.get(route_pattern)
        if route is not None:
            route.observe(classes_of(features), now, failed=failed)

    def statistics(self, *, now: float) -> tuple[ClassStatus, ...]:
        """List what was seen of each class, and what is diverted."""
        return tuple(status for pattern, route in self._routes.items() for status in route.statistics(pattern, now))


class _Window:
    """Calls and failures of the last `_SLOTS` slots, which are forgotten one by one.

    Slots are numbered by the route for all of its windows, so that the same calls leave all of them at the same moment.
    """

    __slots__ = ("_at_calls", "_at_failures", "_head", "calls", "failures")

    def __init__(self) -> None:
        self._head = 0
        self._at_calls = [0] * _SLOTS
        self._at_failures = [0] * _SLOTS
        self.calls = 0
        self.failures = 0

    def add(self, slot: int, *, failed: bool) -> None:
        self.advance(slot)
        index = slot % _SLOTS
        self._at_calls[index] += 1
        self.calls += 1
        if failed:
            self._at_failures[index] += 1
            self.failures += 1

    def advance(self, slot: int) -> None:
        """Forget what has left the window, at most all of it."""
        for left in range(max(self._head + 1, slot - _SLOTS + 1), slot + 1):
            index = left % _SLOTS
            self.calls -= self._at_calls[index]
            self.failures -= self._at_failures[index]
            self._at_calls[index] = self._at_failures[index] = 0
        self._head = slot


class _Recovery:
    """A diverted class: when the primary is asked again, and whether it is being asked."""

    __slots__ = ("asking", "due_at")

    def __init__(self, due_at: float) -> None:
        self.due_at = due_at
        self.asking = False


class _RouteClasses:
    """One route. Every call that is counted is in `_all` and in the window of each of its classes, so that the rest is a difference."""

    __slots__ = ("_all", "_origin", "_slot", "_windows", "diverted", "settings")

    def __init__(self, settings: ClassSettings) -> None:
        self.settings = settings
        self.diverted: dict[str, _Recovery] = {}
        self._all = _Window()
        self._windows: dict[str, _Window] = {}
        self._origin: float | None = None
        self._slot = 0

    def divert(self, classes: tuple[str, ...], now: float) -> Diversion | None:
        recoveries = [(name, self.diverted[name]) for name in classes if name in self.diverted]
        for name, recovery in recoveries:
            if now < recovery.due_at:
                return Diversion(name, self.settings.fallback)
        for _, recovery in recoveries:
            recovery.asking = True
            recovery.due_at = now + self.settings.recover_after_s  # if nothing comes of this call, another may ask then
        return None

    def observe(self, classes: tuple[str, ...], now: float, *, failed: bool) -> None:
        recoveries = [(name, self.diverted[name]) for name in classes if name in self.diverted]
        if recoveries:
            self._settle(recoveries, now, failed=failed)
            return
        slot = self._slot_at(now)
        self._all.add(slot, failed=failed)
        for name in classes:
            window = self._windows.get(name)
            if window is None:
                if len(self._windows) >= _MAX_CLASSES:
                    continue
                window = self._windows[name] = _Window()
            window.add(slot, failed=failed)
        if failed:
            self._judge(classes, now)

    def _slot_at(self, now: float) -> int:
        """Give the slot of the window that this moment is in, or the newest one if the clock went back."""
        if self._origin is None:
            self._origin = now
        self._slot = max(self._slot, int((now - self._origin) * _SLOTS / self.settings.window_s))
        return self._slot

    def _settle(self, recoveries: list[tuple[str, _Recovery]], now: float, *, failed: bool) -> None:
        """Conclude from a call of diverted classes on the primary, if one was to find out; late news of earlier calls changes nothing."""
        for name, recovery in recoveries:
            if not recovery.asking:
                continue
            if failed:
                recovery.asking = False
                recovery.due_at = now + self.settings.recover_after_s
            else:
                del self.diverted[name]

    def _judge(self, classes: tuple[str, ...], now: float) -> None:
        """Divert the worst class of a prompt that failed, if it is bad."""
        worst: str | None = None
        worst_ratio = 0.0
        for name in classes:
            window = self._windows.get(name)  # the failed call is in it
            if window is not None and window.failures / window.calls > worst_ratio:
                worst, worst_ratio = name, window.failures / window.calls
        if worst is not None and self._is_bad(self._windows[worst]):
            self.diverted[worst] = _Recovery(now + self.settings.recover_after_s)
            self._windows.clear()
            self._all = _Window()

    def _is_bad(self, window: _Window) -> bool:
        """Tell whether a class fails often, and clearly more often than the rest of the route's calls."""
        total, calls, failures = self._all, window.calls, window.failures
        other_calls, other_failures = total.calls - calls, total.failures - failures
        if calls < self.settings.min_calls or other_calls < self.settings.min_calls:
            return False
        ratio, other_ratio = failures / calls, other_failures / other_calls
        if ratio < self.settings.failure_ratio or ratio < _TIMES_WORSE * other_ratio:
            return False
        pooled = total.failures / total.calls
        standard_error = sqrt(pooled * (1.0 - pooled) * (1.0 / calls + 1.0 / other_calls))
        return ratio - other_ratio >= _STANDARD_ERRORS * standard_error

    def statistics(self, pattern: str, now: float) -> tuple[ClassStatus, ...]:
        statuses = [ClassStatus(pattern, name, 0, 0, diverted=True) for name in self.diverted]
        for name, window in self._windows.items():
            window.advance(self._slot_at(now))
            if window.calls:
                statuses.append(ClassStatus(pattern, name, window.calls, window.failures, diverted=False))
        return tuple(sorted(statuses, key=_name))


def _name(status: ClassStatus) -> str:
    return status.prompt_class
