"""Reads a script file, YAML or JSON, into settings or into everything that is wrong with it, each with its line.

Refusals are values. Uses the YAML reader of the configuration, which remembers where each value stands.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from tidegate.config.document import DocumentFault, MappingNode, Node, Place, ScalarNode, parse
from tidegate.config.problem import Path, Problem, did_you_mean
from tidegate.mock.script import Script, Scripts
from tidegate.mock.scripting import Misfit, Played, converted, play_of, script_over
from tidegate.mock.settings import MockSettings, Window

T = TypeVar("T")

_KEYS = MockSettings.__struct_fields__
_INTEGER = re.compile(r"[-+]?[\d_]+")


def read_settings(text: str) -> MockSettings | list[Problem]:
    """Read the text of a script file; an empty one is a healthy server."""
    root = parse(text)
    if isinstance(root, DocumentFault):
        if text.lstrip().startswith("{"):  # JSON may be indented with tabs, which YAML does not take
            with contextlib.suppress(msgspec.DecodeError):
                return settings_of(msgspec.json.decode(text))
        return [Problem(root.place.line, root.place.column, "", root.message, root.hint)]
    reading = _Reading()
    raw = reading.plain(root, ())
    return reading.settings(raw)


def settings_of(raw: object) -> MockSettings | list[Problem]:
    """Read plain values, without lines."""
    return _Reading().settings(raw)


def describe(problems: list[Problem], name: str) -> str:
    """Write problems for people, one line each."""
    return "\n".join(
        f"{name}{f':{problem.line}:{problem.column}' if problem.line else ''}: {problem.message}"
        f"{f' in {problem.path}' if problem.path else ''}{f' ({problem.hint})' if problem.hint else ''}"
        for problem in problems
    )


class _Reading:
    """One file: where its values stand, and what is wrong with them."""

    def __init__(self) -> None:
        self._places: dict[Path, Place] = {}
        self._problems: list[Problem] = []

    def plain(self, node: Node, path: Path) -> object:
        """Turn nodes into plain values, and note where each is."""
        self._places.setdefault(path, node.span.start)
        if isinstance(node, ScalarNode):
            return _scalar(node)
        if not isinstance(node, MappingNode):
            return [self.plain(member, (*path, index)) for index, member in enumerate(node.members)]
        values: dict[str, object] = {}
        for key, value in node.entries:
            name = key.text if isinstance(key, ScalarNode) else ""
            here = (*path, name)
            if name in values:
                hint = f"it is first on line {self._places[here].line}; keep one of them"
                self._problem(key.span.start, Misfit(f'the key "{name}" appears twice', path=here, hint=hint, names_key=True))
                continue
            if not isinstance(key, ScalarNode) or key.kind == "merge":
                hint = "repeat the settings; merging is not supported"
                self._problem(key.span.start, Misfit("a key is not text", path=path, hint=hint))
                continue
            self._places[here] = key.span.start
            values[name] = self.plain(value, here)
        return values

    def settings(self, raw: object) -> MockSettings | list[Problem]:
        if not isinstance(raw, dict):
            return [Problem(1, 1, "", "a script file is a mapping", 'write "key: value"')]
        for name in raw:
            if name not in _KEYS:
                hint = did_you_mean(name, _KEYS) or f"known are {', '.join(_KEYS)}"
                self._misfit(Misfit(f'unknown key "{name}"', path=(name,), hint=hint, names_key=True))
        default = self._try(("default",), lambda: script_over(Script(), raw["default"])) if raw.get("default") is not None else None
        default = default or Script()
        scripts = self._scripts(raw.get("scripts"), default)
        windows = self._windows(raw.get("failures"), default, scripts)
        rest = {name: value for name, value in raw.items() if name in _KEYS and name not in {"default", "scripts", "failures"}}
        settings = self._try((), lambda: converted(rest, MockSettings))
        if settings is None or self._problems:
            return sorted(self._problems, key=lambda problem: (problem.line, problem.column))
        return msgspec.structs.replace(settings, default=default, scripts=scripts, failures=windows)

    def _scripts(self, raw: object, default: Script) -> Scripts:
        if raw is None:
            return {}
        if not isinstance(raw, dict):
            self._misfit(Misfit("scripts is not a mapping of names to scripts").under("scripts"))
            return {}
        scripts: Scripts = {}
        for name, value in raw.items():
            played = self._try(("scripts", name), partial(_entry_of, value, default, scripts))
            if played is not None:
                scripts[name] = played
        return scripts

    def _windows(self, raw: object, default: Script, scripts: Scripts) -> tuple[Window, ...]:
        if raw is None:
            return ()
        if not isinstance(raw, list):
            self._misfit(Misfit("failures is not a list of windows", hint='begin each with "- from_s: …"').under("failures"))
            return ()
        windows = [self._try(("failures", index), partial(_window, value, default, scripts)) for index, value in enumerate(raw)]
        return tuple(window for window in windows if window is not None)

    def _try(self, path: Path, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except Misfit as misfit:
            self._misfit(misfit.under(*path))
            return None

    def _misfit(self, misfit: Misfit) -> None:
        path = misfit.path
        place = next((self._places[path[:length]] for length in range(len(path), -1, -1) if path[:length] in self._places), None)
        self._problem(place, misfit)

    def _problem(self, place: Place | None, misfit: Misfit) -> None:
        line, column = (place.line, place.column) if place is not None else (0, 0)
        self._problems.append(Problem(line, column, misfit.where, misfit.message, misfit.hint))


def _entry_of(value: object, default: Script, scripts: Scripts) -> Played:
    return play_of({} if value is None else value, default, scripts)


def _window(value: object, default: Script, scripts: Scripts) -> Window:
    if not isinstance(value, dict):
        raise Misfit("a window is a mapping", hint="e.g. {from_s: 10, to_s: 20, fault: stall@3, ratio: 0.5}")
    fields = dict(value)
    fault = fields.pop("fault", None)
    if (fault is None) == (fields.get("play") is None):
        raise Misfit("a window has one of fault and play", hint="add, for example, fault: reset")
    if fault is not None:
        fields["play"] = {"fault": fault}
    window = converted(fields, Window)
    if window.to_s is not None and window.to_s <= window.from_s:
        raise Misfit("to_s is not after from_s", path=("to_s",))
    play_of(window.play, default, scripts)  # so that what is wrong is found now, not in the middle of a drill
    return window


def _scalar(node: ScalarNode) -> object:
    """Give a scalar its plain value, as YAML means it."""
    text = node.text
    match node.kind:
        case "null":
            return None
        case "bool":
            return text.lower() in {"true", "yes", "on"}
        case "int" if _INTEGER.fullmatch(text):
            return int(text.replace("_", ""))
        case "float":
            with contextlib.suppress(ValueError):
                return float(text.replace("_", ""))
        case _:
            pass
    return text
