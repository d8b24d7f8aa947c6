"""What a scripted upstream shall say and do for one request, as a frozen value.

A `Script` is plain and complete: the same script and the same prompt give the same bytes, so that what came through the
gateway can be compared with what a direct call gives. Counts in faults are stream events (each `data:` block, the role chunk
included), counted from 0.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class UsagePlace(StrEnum):
    """Where a stream reports `usage`."""

    LAST = "last"
    """In one more chunk with `choices: []`, and `usage: null` on all others: OpenAI's way."""
    ABSENT = "absent"
    """Nowhere, whatever the client asked."""
    EARLY = "early"
    """In a chunk with `choices: []` before the first output."""
    WITH_FINISH = "with_finish"
    """In the chunk that carries `finish_reason`."""
    NULL_EVERYWHERE = "null_everywhere"
    """`usage: null` on every chunk and never a figure."""


class FaultKind(StrEnum):
    """How a scripted answer fails; before its headers unless said otherwise."""

    RESET_BEFORE_HEADERS = "reset_before_headers"
    CLOSE_BEFORE_HEADERS = "close_before_headers"
    HANG_BEFORE_HEADERS = "hang_before_headers"
    GARBAGE = "garbage"
    """Bytes that are not HTTP."""
    HANG_BEFORE_FIRST_TOKEN = "hang_before_first_token"  # noqa: S105  not a password
    """Headers and the role chunk, then silence."""
    STALL = "stall"
    """`after` events, then silence with the connection open."""
    CUT = "cut"
    """`after` events, then the connection closes in the middle of the chunked body."""
    END = "end"
    """`after` events, then a well-formed end of the body: no finish, no `[DONE]`."""
    RESET = "reset"
    """`after` events, then a TCP reset."""
    MISSING_DONE = "missing_done"
    """Everything but `[DONE]`."""
    MALFORMED_EVENT = "malformed_event"
    """One more event that is not JSON, before event number `after`; the rest is unharmed."""
    ERROR_EVENT = "error_event"
    """`after` events, then an event `{"error": …}` and the end of the body, under status 200."""


class Fault(msgspec.Struct, frozen=True):
    """One failure; `after` is the number of the event where it happens, for the kinds that have one."""

    kind: FaultKind
    after: Annotated[int, Meta(ge=0)] = 0


class ToolCall(msgspec.Struct, frozen=True):
    """One call of a tool; in a stream its arguments come in pieces of `piece_chars` characters."""

    name: str
    arguments: str
    id: str = "call_0"
    piece_chars: Annotated[int, Meta(ge=1)] = 8


class Split(msgspec.Struct, frozen=True):
    """Cut the body's bytes, each piece its own chunk and its own write: every `every` bytes and at the offsets `at`."""

    every: Annotated[int, Meta(ge=1)] | None = None
    at: tuple[int, ...] = ()
    pause_s: float = 0.0
    """Wait between pieces, so that the network does not join them again."""


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. Every default together is a healthy, immediate server that says "Hello, wide world."."""

    # what it says
    pieces: tuple[str, ...] | None = None
    """Text of each output chunk; None: a short sentence, or nothing when there are tool calls."""
    echo: bool = False
    """Say the words of the last message (or of the prompt) instead of `pieces`."""
    reasoning: tuple[str, ...] = ()
    reasoning_field: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    """None: `tool_calls` when there are any, `length` when the client's cap cut the text, else `stop`."""
    prompt_tokens: int = 9
    cached_tokens: int = 0
    honour_max_tokens: bool = True
    embedding: tuple[float, ...] = (0.25, -0.5, 0.125)

    # how a stream looks
    role_first: bool = True
    usage: UsagePlace = UsagePlace.LAST
    usage_unasked: bool = False
    """Report usage even to a client that did not ask."""
    newline: Literal["\n", "\r\n", "\r"] = "\n"
    space_after_colon: bool = True
    multi_line: bool = False
    """Spread each event's JSON over two `data:` lines."""
    comment: str | None = None
    """A comment block before every chunk that has a choice, as servers send to keep a connection alive."""
    split: Split | None = None

    # when
    headers_s: float = 0.0
    first_token_s: float = 0.0
    """Streams: before the first event after the headers. Whole answers: generation takes this plus the rest."""
    per_token_s: float = 0.0

    # how it refuses and fails
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    """More response headers."""
    error: dict[str, object] | None = None
    """The `error` object for a status >= 400 or an error event; None: one that fits the status."""
    body: str | None = None
    """The whole response body, verbatim, instead of everything above."""
    reject_stream_options: bool = False
    """Answer 400 when the request has `stream_options`."""
    fault: Fault | None = None


def reset_before_headers() -> Fault:
    """Reset the connection instead of answering."""
    return Fault(FaultKind.RESET_BEFORE_HEADERS)


def hang_before_headers() -> Fault:
    """Take the request and say nothing."""
    return Fault(FaultKind.HANG_BEFORE_HEADERS)


def hang_before_first_token() -> Fault:
    """Send the headers and the role chunk, then nothing."""
    return Fault(FaultKind.HANG_BEFORE_FIRST_TOKEN)


def stall_after(events: int) -> Fault:
    """Send `events` events, then nothing, with the connection open."""
    return Fault(FaultKind.STALL, events)


def cut_after(events: int) -> Fault:
    """Send `events` events, then close in the middle of the body."""
    return Fault(FaultKind.CUT, events)


def end_after(events: int) -> Fault:
    """Send `events` events, then end the body properly, without a finish or `[DONE]`."""
    return Fault(FaultKind.END, events)


def reset_after(events: int) -> Fault:
    """Send `events` events, then reset the connection."""
    return Fault(FaultKind.RESET, events)


def missing_done() -> Fault:
    """Send the whole stream except `[DONE]`."""
    return Fault(FaultKind.MISSING_DONE)


def malformed_event_at(event: int) -> Fault:
    """Put an event that is not JSON before event number `event`."""
    return Fault(FaultKind.MALFORMED_EVENT, event)


def error_event_after(events: int) -> Fault:
    """Send `events` events, then an error event and the end of the body."""
    return Fault(FaultKind.ERROR_EVENT, events)


def split_every(size: int, *, pause_s: float = 0.0) -> Split:
    """Cut the body into pieces of `size` bytes, with a pause between them."""
    return Split(every=size, pause_s=pause_s)


def split_at(*offsets: int, pause_s: float = 0.0) -> Split:
    """Cut the body at these byte offsets, with a pause between the pieces."""
    return Split(at=offsets, pause_s=pause_s)


def words(text: str) -> tuple[str, ...]:
    """Cut a text into output chunks, one word with the space before it each; joined they are the text again."""
    pieces: list[str] = []
    for word in text.split(" "):
        pieces.append(f" {word}" if pieces else word)
    return tuple(pieces)
