"""What a scripted upstream shall say and do for one request, as a frozen value.

A `Script` is plain and complete: the same script and the same prompt give the same bytes, so that what came through the
gateway can be compared with what a direct call gives. Counts in faults are stream events (each `data:` block, the role chunk
included), counted from 0. A script file and a marker write these fields as they are declared here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tidegate.mock.distribution import Distribution

MAX_OUTPUT_TOKENS = 100_000
"""An answer is composed before it is sent; so many chunks are some 20 MB."""


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
    CUMULATIVE = "cumulative"
    """The figures so far in every chunk, as vLLM's `continuous_usage_stats`; the last chunk too."""
    DOUBLED = "doubled"
    """As `last`, twice."""
    LATE = "late"
    """As `last`, but `usage_delay_s` after the finish."""
    AFTER_DONE = "after_done"
    """As `last`, but behind `[DONE]`."""


class FaultKind(StrEnum):
    """How a scripted answer fails; before its headers unless said otherwise."""

    REFUSE = "refuse"
    """This connection is reset, and nobody can connect for `for_s`."""
    RESET_BEFORE_HEADERS = "reset_before_headers"
    CLOSE_BEFORE_HEADERS = "close_before_headers"
    HANG_BEFORE_HEADERS = "hang_before_headers"
    GARBAGE = "garbage"
    """Bytes that are not HTTP."""
    CUT_HEADERS = "cut_headers"
    """Half of the head, then the connection closes."""
    DRIP_HEADERS = "drip_headers"
    """The head byte by byte, `pause_s` apart, then the answer."""
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
    BAD_FRAMING = "bad_framing"
    """`after` events, then a chunk size that is none, and the connection closes."""
    MISSING_DONE = "missing_done"
    """Everything but `[DONE]`."""
    MALFORMED_EVENT = "malformed_event"
    """One more event that is not JSON, before event number `after`; the rest is unharmed."""
    HUGE_EVENT = "huge_event"
    """One more event of `size_bytes` that adds no text, before event number `after`; the rest is unharmed."""
    ERROR_EVENT = "error_event"
    """`after` events, then an event `{"error": …}` and the end of the body, under status 200."""
    FINISH_ERROR = "finish_error"
    """`after` events, then an event with `error` and a choice whose `finish_reason` is `error`, and the end: OpenRouter's way."""
    CLOSE_AFTER = "close_after"
    """A complete answer, then the connection closes without having said so."""


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One failure; `after` is the number of the event where it happens, for the kinds that have one."""

    kind: FaultKind
    after: Annotated[int, Meta(ge=0)] = 0
    ratio: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """The share of calls that it befalls."""
    for_s: Annotated[float, Meta(ge=0, le=3600)] = 1.0
    pause_s: Annotated[float, Meta(ge=0, le=60)] = 0.1
    size_bytes: Annotated[int, Meta(ge=0, le=16_777_216)] = 100_000
    text: str | None = None
    """The malformed event's payload."""


class RetryDialect(StrEnum):
    """How a server says when to come back."""

    SECONDS = "seconds"
    FLOAT = "float"
    DATE = "date"
    MS = "ms"
    BOTH = "both"
    """Milliseconds and seconds."""
    OPENAI = "openai"
    """`x-ratelimit-reset-requests` and `-tokens` as durations such as `1m30s`, with limit and remaining."""
    RESET_SECONDS = "reset_seconds"
    RESET_EPOCH = "reset_epoch"
    RESET_EPOCH_MS = "reset_epoch_ms"
    """`x-ratelimit-reset` in milliseconds since 1970: OpenRouter's way."""
    IETF = "ietf"
    GARBAGE = "garbage"
    NONE = "none"


class RetryAfter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When to come back, and in whose words. With it a script without a status of its own answers 429."""

    dialect: RetryDialect = RetryDialect.SECONDS
    after_s: Annotated[float, Meta(ge=0)] = 1.0


class ToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One call of a tool; in a stream its arguments come in pieces of `piece_chars` characters."""

    name: str
    arguments: str
    id: str = "call_0"
    piece_chars: Annotated[int, Meta(ge=1)] = 8


class Split(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cut the body's bytes, each piece its own chunk and its own write: every `every` bytes and at the offsets `at`."""

    every: Annotated[int, Meta(ge=1)] | None = None
    at: tuple[int, ...] = ()
    pause_s: Annotated[float, Meta(ge=0)] = 0.0
    """Wait between pieces, so that the network does not join them again."""


Time = Annotated[float, Meta(ge=0, le=86_400)] | Distribution
"""Seconds, or what they are drawn from."""


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer. Every default together is a healthy, immediate server that says "Hello, wide world."."""

    # what it says
    pieces: tuple[str, ...] | None = None
    """Text of each output token; None: a short sentence, or nothing when there are tool calls."""
    echo: bool = False
    """Say the words of the last message (or of the prompt) instead of `pieces`."""
    output_tokens: Annotated[int, Meta(ge=0, le=MAX_OUTPUT_TOKENS)] | Distribution | None = None
    """Say so many made-up words instead of `pieces`; the same request gets the same ones."""
    tokens_per_chunk: Annotated[int, Meta(ge=1)] = 1
    """Tokens that share a chunk."""
    reasoning: tuple[str, ...] = ()
    reasoning_field: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    """None: `tool_calls` when there are any, `length` when the client's cap cut the text, else `stop`."""
    prompt_tokens: Annotated[int, Meta(ge=0)] | None = 9
    """None: counted from the request's text."""
    cached_tokens: Annotated[int, Meta(ge=0)] = 0
    honour_max_tokens: bool = True
    embedding: tuple[float, ...] = (0.25, -0.5, 0.125)

    # how a stream looks
    role_first: bool = True
    role_waits: bool = False
    """Send the role chunk with the first token instead of with the headers."""
    usage: UsagePlace = UsagePlace.LAST
    usage_delay_s: Annotated[float, Meta(ge=0, le=86_400)] = 1.0
    usage_unasked: bool = False
    """Report usage even to a client that did not ask."""
    newline: Literal["\n", "\r\n", "\r"] = "\n"
    space_after_colon: bool = True
    multi_line: bool = False
    """Spread each event's JSON over two `data:` lines."""
    comment: str | None = None
    """A comment block before every chunk that has a choice, as servers send to keep a connection alive."""
    split: Split | None = None
    content_type: str | None = None

    # when
    headers_s: Time = 0.0
    first_token_s: Time = 0.0
    """Streams: before the first event after the headers. Whole answers: generation takes this plus the rest."""
    per_token_s: Time = 0.0

    # how it refuses and fails
    status: Annotated[int, Meta(ge=200, le=599)] = 200
    headers: tuple[tuple[str, str], ...] = ()
    """More response headers."""
    error: dict[str, object] | None = None
    """The `error` object for a status >= 400 or an error event; None: one that fits the status."""
    body: str | None = None
    """The whole response body, verbatim, instead of everything above."""
    retry_after: RetryAfter | None = None
    reject_stream_options: bool = False
    """Answer 400 when the request has `stream_options`."""
    keep_alive: bool = True
    """False: announce that the connection closes, and close it."""
    fault: Fault | None = None


Scripts = dict[str, Script | tuple[Script, ...]]
"""By name, model, pattern or path; several are played in turn."""
