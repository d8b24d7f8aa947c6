"""Reads scripts as people write them: short forms, fields over another script, and words for what is wrong.

What does not fit is raised as a `Misfit`, which says where in the value, what is wrong and what was probably meant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from tidegate.config.problem import Path, did_you_mean, path_text
from tidegate.domain.units import Secret
from tidegate.mock.distribution import Distribution
from tidegate.mock.engine import EngineSettings
from tidegate.mock.presets import PRESETS
from tidegate.mock.script import Fault, FaultKind, RetryAfter, RetryDialect, Script, Scripts, Split, ToolCall, UsagePlace

S = TypeVar("S", bound=msgspec.Struct)
Played = Script | tuple[Script, ...]
"""One script, or several to be played in turn."""

_NEWLINES = {"lf": "\n", "crlf": "\r\n", "cr": "\r"}
_FAULT = re.compile(r"(?P<kind>[a-z_]+)(?:@(?P<after>\d{1,9}))?")
_STATUS = re.compile(r"[2-5]\d\d")
_PLACE = re.compile(r"^(?P<what>.*?)(?: - at `(?:key` in `)?(?P<place>[^`]*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`", re.DOTALL)
_INVALID = re.compile(r"Invalid enum value '(?P<name>.*)'", re.DOTALL)
_STRUCTS: dict[str, type[msgspec.Struct]] = {
    "fault": Fault,
    "split": Split,
    "retry_after": RetryAfter,
    "tool_calls": ToolCall,
    "engine": EngineSettings,
    **dict.fromkeys(("headers_s", "first_token_s", "per_token_s", "output_tokens", "extra_s"), Distribution),
}
"""Which struct a key holds, for the nearest name of one that is unknown."""
_CHOICES: dict[str, tuple[str, ...]] = {
    "kind": tuple(FaultKind),
    "usage": tuple(UsagePlace),
    "dialect": tuple(RetryDialect),
    "newline": ("lf", "crlf", "cr"),
    "reasoning_field": ("reasoning_content", "reasoning"),
    "how": ("loading", "slow", "refuse"),
}


class Misfit(Exception):
    """A value that cannot be a script; `path` leads from the value that was given to what is wrong in it.

    With `names_key` the message names the last step of the path itself.
    """

    def __init__(self, message: str, *, path: Path = (), hint: str | None = None, names_key: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.hint = hint
        self.names_key = names_key

    def under(self, *path: str | int) -> Misfit:
        """Give the same as seen from further out."""
        return Misfit(self.message, path=(*path, *self.path), hint=self.hint, names_key=self.names_key)

    @property
    def where(self) -> str:
        """The path for people."""
        return path_text(self.path[:-1] if self.names_key else self.path)

    def __str__(self) -> str:
        where = f" in {self.where}" if self.where else ""
        return f"{self.message}{where}" + (f"; {self.hint}" if self.hint else "")


def play_of(raw: object, base: Script, named: Scripts) -> Played:
    """Read what a header, a marker, a window or the queue says: see "What a header or marker may say" in docs/mock.md."""
    match raw:
        case str():
            parts = [part.strip() for part in raw.split(",")]
            if len(parts) == 1:
                return _by_word(parts[0], base, named)
            return tuple(last_of(_by_word(part, base, named)) for part in parts)
        case bool() | None:
            raise Misfit(f"expected a name, a fault, a status or fields, got {raw}")
        case int():
            return _by_word(str(raw), base, named)
        case list():
            if not raw:
                raise Misfit("a list of nothing", hint="give at least one script, or {} for the default")
            return tuple(_entry(member, index, base, named) for index, member in enumerate(raw))
        case _:
            return script_over(base, raw)


def _entry(member: object, index: int, base: Script, named: Scripts) -> Script:
    try:
        return last_of(play_of(member, base, named))
    except Misfit as misfit:
        raise misfit.under(index) from None


def last_of(played: Played) -> Script:
    """Give what stays when the turns are over."""
    return played[-1] if isinstance(played, tuple) else played


def script_over(base: Script, raw: object) -> Script:
    """Put fields over another script."""
    if not isinstance(raw, Mapping):
        raise Misfit(f"expected the fields of a script, got {shown(raw)}", hint='write "field: value", or {} for none')
    fields = {str(name): _expanded(str(name), value) for name, value in raw.items()}
    typed = converted(fields, Script)
    script: Script = msgspec.structs.replace(base, **{name: getattr(typed, name) for name in fields})
    return script


def fault_of(text: str) -> Fault:
    """Read `stall` or `stall@3`."""
    match = _FAULT.fullmatch(text)
    if match is None or match["kind"] not in set(FaultKind):
        kind = text.partition("@")[0]
        raise Misfit(f'no such fault: "{shown(text)}"', hint=did_you_mean(kind, FaultKind) or "docs/mock.md lists them")
    return Fault(FaultKind(match["kind"]), int(match["after"] or 0))


def converted(fields: object, kind: type[S]) -> S:
    """Convert plain values, or say what does not fit."""
    try:
        return msgspec.convert(fields, kind, dec_hook=_secret)
    except msgspec.ValidationError as error:
        raise _misfit(str(error), kind) from None


def shown(value: object) -> str:
    """Write a value for a message, cut to what fits a line."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else f"{text[:80]}…"  # noqa: PLR2004  a line of a terminal


def _by_word(word: str, base: Script, named: Scripts) -> Played:
    if (script := named.get(word)) is not None:
        return script
    if (fields := PRESETS.get(word)) is not None:
        return script_over(base, fields)
    if _STATUS.fullmatch(word):
        return msgspec.structs.replace(base, status=int(word))
    match = _FAULT.fullmatch(word)
    if match is not None and match["kind"] in set(FaultKind):
        return msgspec.structs.replace(base, fault=fault_of(word))
    known = [*named, *PRESETS, *FaultKind]
    hint = did_you_mean(word.partition("@")[0], known) or f"known are {', '.join([*named, *PRESETS])[:500]} and the faults of docs/mock.md"
    raise Misfit(f'no script, fault or status is called "{shown(word)}"', hint=hint)


def _expanded(name: str, value: object) -> object:
    """Write a short form in full."""
    match name, value:
        case "fault", str():
            try:
                return msgspec.to_builtins(fault_of(value))
            except Misfit as misfit:
                raise misfit.under("fault") from None
        case "newline", str():
            return _NEWLINES.get(value, value)
        case "headers", Mapping():
            return [(str(key), header if isinstance(header, str) else shown(header)) for key, header in value.items()]
        case _:
            return value


def _secret(kind: type, value: object) -> object:
    if kind is object:
        return value
    if kind is Secret and isinstance(value, str):
        return Secret(value)
    raise ValueError("expected a text")


def _misfit(message: str, kind: type[msgspec.Struct]) -> Misfit:
    """Turn what msgspec says into a path, a message and the nearest name."""
    match = _PLACE.match(message)
    what, place = (match["what"], match["place"] or "$") if match is not None else (message, "$")
    path: Path = tuple(place.replace("[...]", "").split(".")[1:])  # which member of a list or mapping is not told
    last = str(path[-1]) if path else ""
    struct = _STRUCTS.get(last, kind)
    if (found := _UNKNOWN.fullmatch(what)) is not None:
        name = found["name"]
        hint = did_you_mean(name, struct.__struct_fields__)
        hint = hint or f"known are {', '.join(struct.__struct_fields__)}"
        return Misfit(f'unknown key "{shown(name)}"', path=(*path, name), hint=hint, names_key=True)
    if (found := _MISSING.fullmatch(what)) is not None:
        return Misfit(f'missing key "{found["name"]}"', path=path)
    if (found := _INVALID.fullmatch(what)) is not None:
        choices = _CHOICES.get(last, ())
        hint = did_you_mean(found["name"], choices) or f"one of {', '.join(choices)}"
        return Misfit(f'"{shown(found["name"])}" is not possible here', path=path, hint=hint if choices else None)
    return Misfit(what[:1].lower() + what[1:], path=path)
