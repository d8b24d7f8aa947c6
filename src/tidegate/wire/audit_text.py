"""What is kept of a body: a summary without any text, or its text without secrets.

A secret can hide from a search: behind the escapes of JSON, in the value of a member whose name tells what it is, spread over the pieces
of a stream, or cut by the bound. So strings are searched without their escapes, members with telling names are masked whole, a stream's
pieces are joined before they are searched, and of a text that was cut the end goes too. An unbroken run that is no text (a picture in
base64) is left out, whatever is in it.

Invariant: whatever text is given, what comes out is bounded by it, and each step of the work is short.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import msgspec

from tidegate.wire.lenient import MALFORMED, decode, member
from tidegate.wire.masking import BREAKS

SUMMARY_BYTES: Final = 262_144
"""Larger bodies are not read for their summary: that would hold the interpreter for more than half a millisecond."""
CUT_CHARS: Final = 512
"""Taken off the end of a text that was cut, once it is masked: what is only begun there was not recognised."""

Mask = Callable[[str], str]

_PARAMETERS: Final = (
    *("temperature", "top_p", "top_k", "min_p", "max_tokens", "max_completion_tokens", "n", "best_of", "stream", "echo", "logprobs"),
    *("top_logprobs", "presence_penalty", "frequency_penalty", "repetition_penalty", "parallel_tool_calls", "dimensions"),
    *("reasoning_effort", "tool_choice", "encoding_format", "service_tier", "enable_thinking", "thinking_budget"),
)
_WORDS: Final = frozenset({"auto", "none", "required", "minimal", "low", "medium", "high", "default", "flex", "float", "base64"})
"""Values of parameters that are words; any other text might be anything."""
_FORMATS: Final = frozenset({"text", "json_object", "json_schema"})
_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_LONGEST_VALUE: Final = 32
_LONGEST_NAME: Final = 64
_MOST_CHOICES: Final = 128
_MOST_TEXTS: Final = 512
"""Texts of one choice: its content, its reasoning, and two for each tool call."""
_DEEPEST: Final = 6
_REPEATED: Final = frozenset({"role", "type", "id"})
"""Some servers say these in every piece."""

_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_TORN_ESCAPE: Final = re.compile(r"\\(?:u[0-9A-Fa-f]{0,3})?\Z")
_TELLING: Final = re.compile(
    r"(?i)(?:api[_-]?key|secret(?:[_-]?key)?|access[_-]?key|(?:access|refresh|auth|bearer)[_-]?token|passw(?:or)?d|authorization|cookie)"
)
_UNBROKEN_CHARS: Final = 4096
_encode: Final = msgspec.json.Encoder().encode


class _Message(msgspec.Struct):
    role: str = ""


_messages: Final = msgspec.json.Decoder(list[_Message])
_tools: Final = msgspec.json.Decoder(list[msgspec.Raw])


def summary(body: bytes) -> str:
    """Say what a request's body has, without a word of it: numbers, flags, and words that a standard knows."""
    if len(body) > SUMMARY_BYTES:
        return "{}"
    try:
        members = _members.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return "{}"
    told: dict[str, object] = {}
    with suppress(KeyError, msgspec.DecodeError):  # no chat, or nothing that could be counted
        roles = Counter(message.role if message.role in _ROLES else "other" for message in _messages.decode(members["messages"]))
        told |= {"messages": roles.total(), "roles": dict(roles)}
    with suppress(KeyError, msgspec.DecodeError):
        told["tools"] = len(_tools.decode(members["tools"]))
    parameters = {name: value for name in _PARAMETERS if (value := _plain(members.get(name))) is not None}
    kind = member(decode(bytes(members.get("response_format", b"null"))), "type")
    if isinstance(kind, str) and kind in _FORMATS:
        parameters["response_format"] = kind
    if parameters:
        told["parameters"] = parameters
    return _encode(told).decode()


def whole_text(body: bytes, mask: Mask, *, cut: bool) -> str:
    """Give the text of a body that came whole, or of its beginning (`cut`)."""
    text = body.decode("utf-8", "replace")
    cleaned = _clean(text, mask, depth=0)
    return cleaned[:-CUT_CHARS] if cut else cleaned


def stream_text(stream: bytes, mask: Mask, *, cut: bool) -> str:
    """Give the texts of a stream of answers, each joined from its pieces; `cut`: there was more of it."""
    choices: dict[int, dict[str, list[str]]] = {}
    errors: list[object] = []
    for event in _events(stream):
        if member(event, "error") and len(errors) < _MOST_CHOICES:
            errors.append(member(event, "error"))
        _collect(event, choices)
    answer: dict[str, object] = {}
    if choices:
        answer["choices"] = [
            {"index": index, **{name: _joined(pieces, mask, cut=cut) for name, pieces in texts.items()}}
            for index, texts in sorted(choices.items())
        ]
    if errors:
        answer["errors"] = [whole_text(_encode(error), mask, cut=False) for error in errors]
    return _searched(_encode(answer).decode(), mask)


def _clean(text: str, mask: Mask, *, depth: int) -> str:
    """Search what strings in a text mean, then the text. What a string means may be such a text, as the arguments of a tool call are.

    A short string without escapes means what stands there, and is searched with the rest.
    """
    parts: list[str] = []
    at = behind = 0
    telling = False
    for string in _STRING.finditer(text) if depth < _DEEPEST else ():
        written = string[0]
        value = _unescaped(written)
        named = telling and text[behind : string.start()].strip() == ":"
        behind = string.end()
        telling = not named and len(value) <= _LONGEST_NAME and _TELLING.search(value) is not None
        if named:
            cleaned = "[key]"
        elif "\\" in written or len(written) >= _UNBROKEN_CHARS:
            cleaned = _clean(value, mask, depth=depth + 1)
        else:
            continue
        if cleaned != value:
            parts += (text[at : string.start()], _quoted(cleaned, closed=len(written) > 1 and written.endswith('"')))
            at = behind
    return _searched("".join((*parts, text[at:])), mask)


def _searched(text: str, mask: Mask) -> str:
    return mask(_without_runs(text))


def _without_runs(text: str) -> str:
    """Leave out what goes on without a break for longer than any text: it could only be searched in one long step."""
    parts: list[str] = []
    kept = at = 0
    while len(text) - at >= _UNBROKEN_CHARS:
        last = max([text.rfind(mark, at, at + _UNBROKEN_CHARS) for mark in BREAKS])
        if last >= 0:
            at = last + 1
            continue
        ends = [found for mark in BREAKS if (found := text.find(mark, at)) >= 0]
        parts += (text[kept:at], "[unbroken]")
        kept = at = min(ends, default=len(text))
    return "".join((*parts, text[kept:])) if parts else text


def _joined(pieces: list[str], mask: Mask, *, cut: bool) -> str:
    text = _sound("".join(pieces))
    cleaned = _clean(text, mask, depth=0)
    return cleaned[:-CUT_CHARS] if cut else cleaned


def _unescaped(string: str) -> str:
    """Give the text of a JSON string, which may be torn off."""
    inner = string[1:-1] if len(string) > 1 and string.endswith('"') else _TORN_ESCAPE.sub("", string[1:])
    if "\\" not in inner:
        return inner
    try:
        value = json.loads(f'"{inner}"', strict=False)
    except ValueError:
        return inner  # no JSON: as it stands
    return _sound(value) if isinstance(value, str) else inner


def _quoted(text: str, *, closed: bool) -> str:
    quoted = _encode(text).decode()
    return quoted if closed else quoted[:-1]


def _sound(text: str) -> str:
    """Join halves of a character that came apart, and replace those that stay alone: no encoder takes them."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _plain(value: msgspec.Raw | None) -> object:
    """Give a parameter that is a number, a flag or a known word; None for all else."""
    if value is None or len(bytes(value)) > _LONGEST_VALUE:
        return None
    plain = decode(bytes(value))
    if isinstance(plain, str):
        return plain if plain in _WORDS else None
    return plain if isinstance(plain, bool | int | float) else None


def _events(stream: bytes) -> Iterator[object]:
    """Give what the whole events of a stream hold, where it is JSON."""
    lines: list[bytes] = []
    for line in stream.splitlines():
        if line.startswith(b"data:"):
            lines.append(line[5:])
        elif not line and lines:
            event = decode(b"\n".join(lines))
            lines = []
            if event is not MALFORMED:
                yield event


def _collect(event: object, choices: dict[int, dict[str, list[str]]]) -> None:
    found = member(event, "choices")
    for choice in found if isinstance(found, list) else ():
        index = member(choice, "index")
        index = index if isinstance(index, int) else 0
        if index not in choices and len(choices) >= _MOST_CHOICES:
            continue
        texts = choices.setdefault(index, {})
        for name, piece in (*_texts(member(choice, "delta"), "", 0), *_texts(member(choice, "text"), "text", 0)):
            if name in texts or len(texts) < _MOST_TEXTS:
                texts.setdefault(name, []).append(piece)


def _texts(value: object, name: str, depth: int) -> Iterator[tuple[str, str]]:
    """Give every text in a piece of an answer with its place, such as `tool_calls.0.function.arguments`."""
    if isinstance(value, str):
        if value:
            yield name, value
    elif depth == _DEEPEST:
        return
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in _REPEATED:
                yield from _texts(inner, f"{name}.{_sound(key[:_LONGEST_VALUE])}" if name else _sound(key[:_LONGEST_VALUE]), depth + 1)
    elif isinstance(value, list):
        for place, inner in enumerate(value[:_MOST_CHOICES]):
            index = member(inner, "index")
            yield from _texts(inner, f"{name}.{index if isinstance(index, int) else place}", depth + 1)
