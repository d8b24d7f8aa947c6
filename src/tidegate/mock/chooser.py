"""Chooses the script of a call: its header or marker, the queue, its model's entry or the default; then windows, turns and ratios.

Everything random comes from one generator, in the order of arrival, so that a seed decides it.
"""

from __future__ import annotations

import random
from collections import OrderedDict, deque
from fnmatch import fnmatchcase

import msgspec

from tidegate.mock.distribution import draw
from tidegate.mock.marker import find_marker
from tidegate.mock.script import Script, Scripts
from tidegate.mock.scripting import Misfit, Played, last_of, play_of
from tidegate.mock.settings import ColdStart, Window, refuses

_MOST_TURNS = 10_000
"""Messages whose turn is remembered; the longest unused is forgotten."""
_MOST_QUEUED = 100_000
"""Scripts waiting for their calls: more are a program gone wrong."""
_LONGEST_NAME = 60


class Call(msgspec.Struct, frozen=True):
    """What of a call decides about its script."""

    model: str
    text: str
    header: str | None = None
    marked: str | None = None
    """The text that holds a marker."""


class Chosen(msgspec.Struct, frozen=True):
    """A script, how it came about in a few words, and the call's text without its marker."""

    script: Script
    name: str
    text: str | None = None


class Chooser:
    """Keeps the queue, the turns and the generator; scripts and windows are given with each call, since they may change."""

    def __init__(self, seed: int) -> None:
        self.seed(seed)
        self._queue: deque[Script] = deque(maxlen=_MOST_QUEUED)
        self._turns: OrderedDict[tuple[str, str], int] = OrderedDict()

    def seed(self, seed: int) -> None:
        """Draw from the beginning."""
        self.rng = random.Random(seed)  # noqa: S311  a seed shall decide what happens

    def push(self, *scripts: Script) -> None:
        """Queue scripts for the next calls."""
        self._queue.extend(scripts)

    def reset(self) -> None:
        self._queue.clear()
        self._turns.clear()

    def choose(
        self,
        call: Call,
        scripts: Scripts,
        default: Script,
        *,
        failures: tuple[Window, ...] = (),
        cold_start: ColdStart | None = None,
        elapsed_s: float = 0.0,
    ) -> Chosen:
        """Decide; raises `Misfit` when a header or marker cannot be understood."""
        name, played = self._of_model(call.model, scripts, default)
        text: str | None = None
        if call.header is not None:
            name, played = _said(_json_or_word(call.header), "x-script", last_of(played), scripts)
        elif call.marked is not None and (found := find_marker(call.marked)) is not None:
            said, text = found
            name, played = _said(said, "marker", last_of(played), scripts)
        elif self._queue:
            name, played = "queue", self._queue.popleft()
        else:
            for window in failures:
                if self._befalls(window, call.model, elapsed_s):
                    name, played = f"{name}, window", play_of(window.play, last_of(played), scripts)
                    break
        script = self._in_turn(name, call.text, played) if isinstance(played, tuple) else played
        if script.fault is not None and script.fault.ratio < 1 and self.rng.random() >= script.fault.ratio:
            script = msgspec.structs.replace(script, fault=None)
        if cold_start is not None and cold_start.how == "slow" and elapsed_s < cold_start.for_s:
            first_s = draw(script.first_token_s, self.rng) + draw(cold_start.extra_s, self.rng)
            script = msgspec.structs.replace(script, first_token_s=first_s)
        return Chosen(script, name, text)

    def _of_model(self, model: str, scripts: Scripts, default: Script) -> tuple[str, Played]:
        if not scripts:
            return "default", default
        if (exact := scripts.get(model)) is not None:
            return model, exact
        for name, played in scripts.items():
            if any(mark in name for mark in "*?[") and fnmatchcase(model, name):
                return name, played
        return "default", default

    def _befalls(self, window: Window, model: str, elapsed_s: float) -> bool:
        if not window.open_at(elapsed_s) or refuses(window) or not fnmatchcase(model, window.model):
            return False
        return window.ratio >= 1 or self.rng.random() < window.ratio

    def _in_turn(self, name: str, text: str, scripts: tuple[Script, ...]) -> Script:
        turns, key = self._turns, (name, text)
        turn = turns.pop(key, 0)
        turns[key] = turn + 1
        if len(turns) > _MOST_TURNS:
            turns.popitem(last=False)
        return scripts[min(turn, len(scripts) - 1)]


def _said(raw: object, source: str, base: Script, scripts: Scripts) -> tuple[str, Played]:
    word = raw if isinstance(raw, str) and len(raw) <= _LONGEST_NAME else source
    return word, play_of(raw, base, scripts)


def _json_or_word(header: str) -> object:
    if not header.startswith(("{", "[")):
        return header
    try:
        said: object = msgspec.json.decode(header)
    except msgspec.DecodeError as error:
        raise Misfit(f"the header x-script holds no valid JSON: {error}") from None
    return said
