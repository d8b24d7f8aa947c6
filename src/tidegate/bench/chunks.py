"""What a server says, as JSON: an event of a stream or a whole answer, and errors in words.

It is read by OpenAI's types, which is fast; where a server's differ, member by member, and what makes no sense is left out.
"""

from __future__ import annotations

import json
from typing import Final

import msgspec

from tidegate.wire import lenient

MAX_ERROR_CHARS: Final = 1_000
"""Kept of an error's words."""
NULL: Final = msgspec.Raw(b"null")
ABSENT: Final = (b"", b"null")
"""What a member is that says nothing."""
NO_ERROR: Final = (*ABSENT, b"false", b'""', b"0", b"{}", b"[]")
"""What OpenAI's SDKs take for no error."""


class Function(msgspec.Struct, gc=False):
    arguments: str | None = None


class ToolCall(msgspec.Struct, gc=False):
    function: Function | None = None


class Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None


class Choice(msgspec.Struct, gc=False):
    delta: Delta | None = None
    message: Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    index: int = 0


class Chunk(msgspec.Struct, gc=False):
    choices: list[Choice] | None = None
    usage: msgspec.Raw = NULL
    error: msgspec.Raw = NULL
    timings: msgspec.Raw = NULL
    openrouter_metadata: msgspec.Raw = NULL


_decode_chunk = msgspec.json.Decoder(Chunk).decode


def read_chunk(text: bytes) -> Chunk | None:
    """Read a chunk by its types, or, where a server's differ, member by member; None for what is not JSON."""
    try:
        chunk = _decode_chunk(text)
    except (msgspec.DecodeError, RecursionError):
        content = lenient.decode(text)
        if content is lenient.MALFORMED:
            return None
        chunk = _chunk_of(content)
    if not chunk.choices and bytes(chunk.error) in ABSENT:
        error = lenient.in_band_error(lenient.decode(text))
        if error is not None:
            chunk.error = msgspec.Raw(_written(error))
    return chunk


def error_of(body: bytes) -> str:
    """Give the words of an error's body: its message, or its beginning where it is not JSON."""
    content = lenient.decode(body)
    if content is lenient.MALFORMED:
        return " ".join(body[: 4 * MAX_ERROR_CHARS].decode("utf-8", "replace").split())[:MAX_ERROR_CHARS]
    return error_text(lenient.in_band_error(content, named_error=True))


def error_text(error: object) -> str:
    """Put an error object in words."""
    if error is lenient.MALFORMED:
        return "an error that is not JSON"
    if isinstance(error, dict) and isinstance(error.get("error"), dict):
        error = error["error"]
    message = lenient.text(lenient.member(error, "message")) or lenient.text(error)
    code = lenient.member(error, "code")
    words = message or _written(error).decode()
    return f"{code}: {words}"[:MAX_ERROR_CHARS] if isinstance(code, str | int) and code != "" else words[:MAX_ERROR_CHARS]


def _chunk_of(content: object) -> Chunk:
    """Read a chunk whose members have other types than OpenAI's; what makes no sense is left out."""
    choices = lenient.member(content, "choices")
    raw = {name: msgspec.Raw(_written(lenient.member(content, name))) for name in ("usage", "error", "timings", "openrouter_metadata")}
    return Chunk(choices=[_choice_of(choice) for choice in choices] if isinstance(choices, list) else None, **raw)


def _choice_of(choice: object) -> Choice:
    index = lenient.member(choice, "index")
    said = lenient.member(choice, "delta") or lenient.member(choice, "message")
    return Choice(
        delta=_delta_of(said),
        text=lenient.text(lenient.member(choice, "text")),
        finish_reason=lenient.text(lenient.member(choice, "finish_reason")),
        index=index if isinstance(index, int) else 0,
    )


def _delta_of(said: object) -> Delta:
    calls = lenient.member(said, "tool_calls")
    arguments = [lenient.member(lenient.member(call, "function"), "arguments") for call in calls] if isinstance(calls, list) else []
    content = lenient.member(said, "content")
    if isinstance(content, list):
        content = "".join(text for part in content if (text := lenient.text(lenient.member(part, "text"))))
    return Delta(
        content=lenient.text(content),
        reasoning=lenient.text(lenient.member(said, "reasoning")),
        reasoning_content=lenient.text(lenient.member(said, "reasoning_content")),
        refusal=lenient.text(lenient.member(said, "refusal")),
        tool_calls=[ToolCall(Function(lenient.text(text) or ("{}" if isinstance(text, dict) else None))) for text in arguments],
    )


def _written(value: object) -> bytes:
    """Write again what was read leniently, to be read so once more: half an emoji becomes a question mark, numbers may be of any size."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    except (ValueError, RecursionError):  # a number of thousands of digits; nested beyond all reason
        return b"null"
