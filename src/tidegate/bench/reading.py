"""Reads an answer as its bytes come: when its output began and ended, what it said, used and cost, and what went wrong within it.

It takes no time itself: `at` is the instant of the read, which the caller took before anything was parsed. Everything that one read brings
happened at that instant, and the gap between two outputs is the gap between the reads that brought them. How the bytes were cut makes no
difference to what is read, only to when.

A chunk is never counted as a token: tokens are what the server reports, in `usage` wherever it stands (the last report counts), or in
llama.cpp's `timings`. Output is content, text, reasoning, a refusal, and the arguments of tool calls, where it is not empty.

Bounds: an event of a stream is at most 4 MiB (`wire.sse`), a whole answer `MAX_WHOLE_BYTES`, kept text `MAX_TEXT_CHARS`, remembered gaps
`MAX_GAPS`.
"""

from __future__ import annotations

from array import array
from typing import Final, TypeVar

from tidegate.bench.chunks import ABSENT, MAX_ERROR_CHARS, NO_ERROR, NULL, Choice, Chunk, error_text, read_chunk
from tidegate.domain.units import Headers
from tidegate.wire import lenient
from tidegate.wire.sse import EventSplitter, parse_event, split_events

MAX_WHOLE_BYTES: Final = 16_777_216
"""Of an answer that is no stream: some million tokens with their log probabilities."""
MAX_TEXT_CHARS: Final = 1_048_576
"""Kept for the checks of what an answer says: above the longest output of today's models."""
MAX_GAPS: Final = 262_144
"""Of one answer: more reads than the longest output has tokens."""
_HEADERS_IN_MS: Final = (b"x-model-response-time", b"req-cost-time", b"x-envoy-upstream-service-time")
"""Time within the server, of a stream until its headers: Tidegate's, DashScope's, Envoy's. The first that is there counts."""
_MICRO: Final = 1_000_000
_LONGEST_S: Final = 86_400.0
_HIGHEST_COST: Final = 1e9
"""What is believed of a server's word on one request, in seconds and in whole units of a currency: sums of more are no figures any more."""
_MAX_TRIES_DIGITS: Final = 3
Figure = TypeVar("Figure", int, float)


class Answer:
    """What has been read of one answer so far."""

    __slots__ = (
        "_body",
        "_first",
        "_is_stream",
        "_keeps_text",
        "_output_in_read",
        "_splitter",
        "_text",
        "_text_chars",
        "cached_tokens",
        "completion_tokens",
        "cost_micro",
        "done",
        "error",
        "failed",
        "finish_reason",
        "first_content_at",
        "first_event_at",
        "first_reasoning_at",
        "gap_chunks",
        "gaps_s",
        "is_whole",
        "last_output_at",
        "longest_gap_s",
        "output_chunks",
        "prompt_tokens",
        "queue_s",
        "reasoning_tokens",
        "response_bytes",
        "server_s",
        "upstream_tries",
        "usage_at",
    )

    def __init__(self, headers: Headers, *, asked_stream: bool, keeps_text: bool = False) -> None:
        """`keeps_text` keeps the text of the first choice, for whoever judges what it says."""
        fields = dict(reversed(headers))
        kind = fields.get(b"content-type", b"").lower()
        self._is_stream = kind.startswith(b"text/event-stream") or (asked_stream and not kind.startswith(b"application/json"))
        self._splitter = EventSplitter()
        self._first = True
        self._body = bytearray()
        self._keeps_text = keeps_text
        self._text: list[str] = []
        self._text_chars = 0
        self._output_in_read = 0
        self.response_bytes = 0
        self.done = False
        """`[DONE]` came."""
        self.failed = False
        """An error came within the answer."""
        self.is_whole = False
        """A body that is an answer from its first byte to its last; of a stream, see `done` and `finish_reason`."""
        self.error = ""
        self.finish_reason = ""
        self.first_event_at: float | None = None
        self.first_reasoning_at: float | None = None
        self.first_content_at: float | None = None
        self.last_output_at: float | None = None
        self.usage_at: float | None = None
        self.output_chunks = 0
        self.longest_gap_s = 0.0
        self.gaps_s = array("d")
        """Between one read with output and the next."""
        self.gap_chunks = array("L")
        """How many chunks with output the read after each gap brought."""
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.reasoning_tokens: int | None = None
        self.cost_micro: int | None = None
        self.queue_s: float | None = None
        self.server_s = _server_s(fields)
        self.upstream_tries = _tries(fields.get(b"x-tidegate-attempts"))

    @property
    def is_complete(self) -> bool:
        """Tell whether what was read is an answer to its end."""
        return (self.done or bool(self.finish_reason)) if self._is_stream else self.is_whole

    @property
    def text(self) -> str:
        """The content of the first choice, where it is kept."""
        return "".join(self._text)

    def feed(self, chunk: bytes, at: float) -> None:
        """Take what one read brought."""
        self.response_bytes += len(chunk)
        if not self._is_stream:
            if self.first_event_at is None:
                self.first_event_at = at
            if len(self._body) + len(chunk) <= MAX_WHOLE_BYTES:
                self._body += chunk
            else:
                self._fail(f"the answer is longer than {MAX_WHOLE_BYTES} bytes")
            return
        whole = self._splitter.feed(chunk)
        self._output_in_read = 0
        if b"\r" in whole:
            for event in split_events(whole):
                self._event(event, at)
        elif whole:
            for event in whole[:-2].split(b"\n\n"):
                self._event(event, at)
        if self._splitter.overflowed:
            self._fail("an event of the stream is larger than 4 MiB")
        if self._output_in_read:
            self._took_output(at)

    def end(self, at: float) -> None:
        """Take the end of the body, at the instant of the last read."""
        if self._is_stream or self.failed:
            return
        content = read_chunk(bytes(self._body))
        self._body.clear()
        if content is not None:
            self._take(content, at)
            self.is_whole = bool(content.choices)
            if self._output_in_read:
                self._took_output(at)

    # ── events ─────────────────────────────────────────────────────────────────

    def _event(self, event: bytes, at: float) -> None:
        """Read one event of a stream; with or without its blank line."""
        if event.startswith(b"data: {") and b"\n" not in event:
            text, named_error = event[6:], False
        else:
            parsed = parse_event(event, first=self._first)
            if not parsed.dispatches:
                return
            text, named_error = parsed.data.strip(), parsed.event == "error"
        self._first = False
        if self.first_event_at is None:
            self.first_event_at = at
        if text == b"[DONE]":
            self.done = True
            return
        if named_error:
            self._fail(error_text(lenient.decode(text)))
            return
        chunk = read_chunk(text)
        if chunk is None:
            self._fail("an event of the stream is not JSON")
        else:
            self._take(chunk, at)

    def _take(self, chunk: Chunk, at: float) -> None:
        for choice in chunk.choices or ():
            self._choice(choice, at)
        if chunk.usage is not NULL and bytes(chunk.usage) not in ABSENT:
            self._usage(lenient.decode(bytes(chunk.usage)), at)
        if chunk.error is not NULL and bytes(chunk.error) not in NO_ERROR:
            self._fail(error_text(lenient.decode(bytes(chunk.error))))
        if chunk.timings is not NULL:
            self._timings(lenient.decode(bytes(chunk.timings)), at)
        if chunk.openrouter_metadata is not NULL:
            self._metadata(lenient.decode(bytes(chunk.openrouter_metadata)))

    def _choice(self, choice: Choice, at: float) -> None:
        said = choice.delta or choice.message
        content, thought, has_arguments = choice.text, None, False
        if said is not None:
            content = said.content or content or said.refusal
            thought = said.reasoning or said.reasoning_content
            if said.tool_calls:
                has_arguments = any(call.function is not None and call.function.arguments for call in said.tool_calls)
        if thought and self.first_reasoning_at is None:
            self.first_reasoning_at = at
        if (content or has_arguments) and self.first_content_at is None:
            self.first_content_at = at
        if content or thought or has_arguments:
            self._output_in_read += 1
        if content and self._keeps_text and choice.index == 0 and self._text_chars < MAX_TEXT_CHARS:
            self._text.append(content)
            self._text_chars += len(content)
        if choice.finish_reason:
            self.finish_reason = choice.finish_reason
            if choice.finish_reason == "error":
                self._fail("the finish reason is error")

    def _took_output(self, at: float) -> None:
        """Note that a read brought output, and the gap before it."""
        last = self.last_output_at
        self.last_output_at = at
        self.output_chunks += self._output_in_read
        if last is not None:
            gap_s = at - last
            self.longest_gap_s = max(self.longest_gap_s, gap_s)
            if len(self.gaps_s) < MAX_GAPS:
                self.gaps_s.append(gap_s)
                self.gap_chunks.append(self._output_in_read)

    def _fail(self, words: str) -> None:
        """Keep the first error that says more than that there was one."""
        if not self.failed or self.error == "the finish reason is error":
            self.error = words[:MAX_ERROR_CHARS]
        self.failed = True

    # ── figures ────────────────────────────────────────────────────────────────

    def _usage(self, usage: object, at: float) -> None:
        if not isinstance(usage, dict):
            return
        prompt, completion = _figure(usage, "prompt_tokens"), _figure(usage, "completion_tokens")
        if prompt is not None or completion is not None:
            self.usage_at = at
        self.prompt_tokens = _known(prompt, self.prompt_tokens)
        self.completion_tokens = _known(completion, self.completion_tokens)
        self.cached_tokens = _known(_figure(usage.get("prompt_tokens_details"), "cached_tokens"), self.cached_tokens)
        self.reasoning_tokens = _known(_figure(usage.get("completion_tokens_details"), "reasoning_tokens"), self.reasoning_tokens)
        cost = _number(usage.get("cost"), _HIGHEST_COST)
        self.cost_micro = self.cost_micro if cost is None else round(cost * _MICRO)
        self.queue_s = _known(_number(usage.get("queue_time"), _LONGEST_S), self.queue_s)

    def _timings(self, timings: object, at: float) -> None:
        """Read llama.cpp's: what it did not say as usage, and its time on the prompt and the answer."""
        if not isinstance(timings, dict):
            return
        fresh, cached, predicted = (_figure(timings, name) for name in ("prompt_n", "cache_n", "predicted_n"))
        if self.usage_at is None and predicted is not None:
            self.usage_at = at
            self.prompt_tokens = None if fresh is None else fresh + (cached or 0)
            self.completion_tokens = predicted
        self.cached_tokens = _known(self.cached_tokens, cached)
        prefill_s, decode_s = (lenient.milliseconds(timings.get(name)) for name in ("prompt_ms", "predicted_ms"))
        if self.server_s is None and prefill_s is not None and decode_s is not None:
            self.server_s = prefill_s + decode_s

    def _metadata(self, metadata: object) -> None:
        """Read OpenRouter's: how many providers it asked."""
        attempts = lenient.member(metadata, "attempts")
        if isinstance(attempts, list) and attempts:
            self.upstream_tries = len(attempts)
        else:
            self.upstream_tries = _known(_figure(metadata, "attempt"), self.upstream_tries)


def _server_s(fields: dict[bytes, bytes]) -> float | None:
    for name in _HEADERS_IN_MS:
        try:
            value_ms = float(fields[name])
        except (KeyError, ValueError):
            continue
        server_s = lenient.milliseconds(value_ms)
        if server_s is not None:
            return server_s
    return None


def _tries(value: bytes | None) -> int | None:
    return int(value) if value is not None and value.isdigit() and len(value) <= _MAX_TRIES_DIGITS else None


def _figure(value: object, name: str) -> int | None:
    """Read a count; None where there is none, or something that is no number."""
    figure = lenient.member(value, name)
    return lenient.count(figure) if isinstance(figure, int | float) and not isinstance(figure, bool) else None


def _number(value: object, most: float) -> float | None:
    """Read a number that is not below 0 nor above `most`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= most:
        return None
    return float(value)


def _known(first: Figure | None, second: Figure | None) -> Figure | None:
    return second if first is None else first
