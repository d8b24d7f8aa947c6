"""Pass a streamed answer through, untouched, and learn from it what decisions need.

Used once per streamed attempt. `feed` gives whole events, byte for byte as they came, with three exceptions: usage that the client did
not ask for is left out (so that its stream equals one without), an event whose data is not JSON is skipped and counted, up to
`MAX_MALFORMED`, and an error event is withheld: `failure` says what it means and nothing more is given. After `[DONE]` everything is
ignored; a missing one is never added.

Where the stream was cut into chunks changes neither the output nor the attributes (a property test cuts at every byte).

An ordinary event in the middle of a stream is held against the last one (`Stencil`), and decoded only if more than its text differs. The
decoder glances at `choices[].index` and `finish_reason`, at the size of the text, `usage` and `error`, and skips the rest without building
it: that is cheaper than three searches for words, and unlike them exact: text that quotes `"finish_reason"` cannot mislead it.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import UNSET

from tidegate.domain.outcome import FinishReason
from tidegate.domain.record import ServerTimes
from tidegate.domain.request import Operation
from tidegate.domain.upstream import UpstreamFailure
from tidegate.domain.usage import Usage
from tidegate.wire import lenient
from tidegate.wire.dialects import Dialect, classify_error_object
from tidegate.wire.glances import STREAM, ChoiceGlance, DeltaGlance
from tidegate.wire.openai_response import generation_failed, identity, most_telling, unreadable
from tidegate.wire.sse import BOM, MAX_EVENT_BYTES, EventSplitter, parse_event, split_events
from tidegate.wire.stencil import NO_MATCH, Stencil, cut_stencil, is_plain
from tidegate.wire.truncation import StreamHead, encode_truncation

MAX_CHOICES = 16_384
"""Choices followed per stream: 128 prompts with 128 answers each; beyond it an index is not tracked."""

MAX_MALFORMED = 100
"""Events of a stream that may be skipped for not being JSON. A server that sends more is broken, and each costs what many good ones do."""

_STENCILS = 8
"""Cut per stream: one for what is thought, one for what is said, some for engines that vary. They are wasted if each event is different."""

_DONE = b"[DONE]"
_USUAL_DONE = b"data: [DONE]\n\n"
_FINISHES = b'"finish_reason":"'
_NO_CHOICES = b'"choices":[]'
_PREFIX = b"data: {"
_NULL_USAGE = b',"usage":null'
_QUOTES = 2
_EMPTY = 4  # bytes of `null`; a text of up to two letters counts as none, and its chunk as one token
_OUTPUT_FIELDS = ("content", "reasoning", "reasoning_content", "refusal", "tool_calls", "function_call", "audio")


# A raw `"usage"` in JSON is a whole string, since a quote inside a string is escaped, or the end of one whose text ends in an escaped quote
# and `usage`. Only a name is followed by a colon, and only a name that *is* `usage` has no backslash before its first quote. So this finds
# members of that name at any depth; which of several is the one at the top, the decoder tells.
_USAGE_MEMBER = re.compile(
    rb'(?P<before>,[ \t]*)?(?<!\\)"usage"[ \t]*:[ \t]*(?:null|\{(?:[^{}\r\n]|\{[^{}\r\n]*\})*\})(?(before)|(?:[ \t]*,[ \t]*)?)'
)


class StreamCodec:
    """One attempt's stream, from the upstream's bytes to the client's."""

    __slots__ = (
        "_after_cr",
        "_dialect",
        "_ended",
        "_first",
        "_hide_usage",
        "_in_the_middle",
        "_last_was_relayed",
        "_open",
        "_operation",
        "_over",
        "_splitter",
        "_stencil",
        "_stencils_left",
        "chunks",
        "created",
        "done",
        "failure",
        "finish_reason",
        "finished",
        "malformed",
        "output_started",
        "response_id",
        "response_model",
        "server_times",
        "text_bytes",
        "usage",
    )

    def __init__(self, *, operation: Operation, dialect: Dialect, hide_usage: bool, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        # Compiled, attributes lie in this order; those that each chunk needs come first, so that they share a line of the cache.
        self._in_the_middle = False
        """Output runs and nothing is held back: chunks may take the short way."""
        self._stencil: Stencil | None = None
        """Of the last ordinary event with a text, while its choice is open."""
        self.chunks = 0
        self.text_bytes = 0
        """Of the output's texts as they are written, escapes included."""
        self.failure: UpstreamFailure | None = None
        self.done = False
        self._operation = operation
        self._dialect = dialect
        self._hide_usage = hide_usage
        self._splitter = EventSplitter(max_event_bytes=max_event_bytes)
        self._first = True
        self._over = False
        self._stencils_left = _STENCILS
        self._open: set[int] = set()
        """Choices seen and not finished."""
        self._ended: set[int] = set()
        """Choices finished: an empty delta or two may still follow, and do not open them again."""
        self._after_cr = False
        """The last event ended in a CR at its chunk's end: an LF that comes next belongs to it."""
        self._last_was_relayed = False
        self.output_started = False
        self.finished = False
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.malformed = 0
        self.response_id: str | None = None
        self.response_model: str | None = None
        self.created: int | None = None
        self.server_times: ServerTimes | None = None

    @property
    def complete(self) -> bool:
        """Whether the stream ended properly: with `[DONE]`, or with every choice seen finished, and without an error."""
        return self.failure is None and (self.done or (self.finished and not self._open))

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk as it came; give what goes to the client now (the caller holds it back until the commit point)."""
        tried = self._in_the_middle
        if tried:
            relayed = self._relay_alike(chunk)
            if relayed is not None:
                self.chunks += 1
                return relayed
            relayed = self._relay_short(chunk)
            if relayed is not None:
                return relayed
        lead = b""
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk.startswith(b"\n"):
                lead, chunk = b"\n" if self._last_was_relayed else b"", chunk[1:]
        if self._over:
            return lead
        whole = self._splitter.feed(chunk)
        tried = tried and len(whole) == len(chunk)
        relayed = self._relay_short(whole) if self.output_started and not tried else None
        relayed = lead + (self._relay_events(whole) if relayed is None else relayed)
        self._take_stock()
        return relayed

    def end(self) -> bytes:
        """Take the end of the upstream's body; give its last event if only the blank line is missing. Then ask `complete`."""
        rest = self._splitter.take_rest()
        self._in_the_middle = False
        if self._over:
            return b""
        last = parse_event(rest, first=self._first)
        if not last.dispatches:
            return b""  # half a comment or field: relayed, it would run into whatever is sent next
        text = last.data.strip()
        if text != _DONE and not isinstance(lenient.decode(text), dict):
            self.malformed += 1
            return b""
        return self._judge(rest + (b"\n" if rest.endswith(b"\n") else b"\n\n"))

    def interpose(self) -> None:
        """Something of the gateway's own goes out after the last event: an LF that would complete its line end is then left out."""
        self._last_was_relayed = False

    def truncate(self, usage: Usage, *, reason: str, rule: str) -> bytes:
        """End the answer here, because a limit has run out; give what finishes it for the client. What still comes is ignored."""
        self._over = True
        self._in_the_middle = False
        head = StreamHead(self._operation, self.response_id, self.created, self.response_model)
        return encode_truncation(head, sorted(self._open), None if self._hide_usage else usage, reason=reason, rule=rule)

    def _take_stock(self) -> None:
        """Notice, after the long way, an event beyond the bound, and whether the next chunk may take the short way."""
        if self._splitter.overflowed and not self._over:
            self._fail(unreadable("One event of the upstream's stream is larger than the gateway holds; the stream cannot be understood."))
        self._in_the_middle = self.output_started and not (self._over or self._after_cr or self._splitter.pending)

    # ── the short way ────────────────────────────────────────────────────────────

    def _relay_alike(self, event: bytes) -> bytes | None:
        """Relay an event that differs from an earlier one in its text alone; None for any other, with nothing changed."""
        stencil = self._stencil
        if stencil is None:
            return None
        text_bytes = stencil.measure(event)
        if text_bytes == NO_MATCH:
            return None
        self.text_bytes += text_bytes
        return stencil.relay(event)

    def _relay_short(self, chunk: bytes) -> bytes | None:
        """Relay whole one-line events that carry nothing but output; None sends the chunk the long way, with nothing changed."""
        has_cr = chunk.find(b"\r") >= 0  # `in` would first take it for a number, at ten times the cost
        blank = b"\r\n\r\n" if has_cr else b"\n\n"
        if not chunk.startswith(_PREFIX) or not chunk.endswith(blank):
            return None
        if not has_cr and chunk.find(b"\n") == len(chunk) - len(blank):  # one event, as nearly always: counting costs more
            relayed = self._glance(chunk)
            if relayed is not None:
                self.chunks += 1
            return relayed
        newlines = chunk.count(b"\n")
        if has_cr and chunk.count(b"\r") != newlines:
            return None
        events = chunk[: -len(blank)].split(blank)
        if newlines != 2 * len(events):
            return None
        relayed_events: list[bytes] = []
        text_bytes = self.text_bytes
        for event in events:
            whole = event + blank
            relayed = self._relay_alike(whole)
            if relayed is None and event.startswith(_PREFIX):
                relayed = self._glance(whole)
            if relayed is None:
                self.text_bytes = text_bytes
                return None
            relayed_events.append(relayed)
        self.chunks += len(events)
        return b"".join(relayed_events)

    def _glance(self, event: bytes) -> bytes | None:
        """Give a `data: {…}` event as it is to be relayed, or None when it carries more than output."""
        if event.find(_FINISHES) >= 0 or event.find(_NO_CHOICES) >= 0:  # more than output, most likely: not worth decoding it twice
            return None
        try:
            glance = STREAM.decode(event[6:])
        except (msgspec.DecodeError, RecursionError):
            return None
        choices = glance.choices
        if glance.error or not choices:
            return None
        usage = glance.usage
        if usage is not UNSET and usage is not None:
            return None
        text_bytes = 0
        for choice in choices:
            if choice.finish_reason or choice.index not in self._open:
                return None
            delta = choice.delta
            size = 0 if delta is None else len(delta.content)
            text_bytes += size - _QUOTES if size > _EMPTY else _text_bytes(choice)
        self.text_bytes += text_bytes
        relayed = event if usage is UNSET or not self._hide_usage else without_usage(event)
        if self._stencils_left and len(choices) == 1 and delta is not None:
            self._learn(event, relayed, delta)
        return relayed

    def _learn(self, event: bytes, relayed: bytes, delta: DeltaGlance) -> None:
        """Cut a stencil of an ordinary event of one choice, if it has one text and nothing beside it that counts."""
        texts = [text for text in (delta.content, delta.reasoning_content, delta.reasoning) if len(text) > _EMPTY]
        if len(texts) != 1 or delta.tool_calls:
            return
        string = bytes(texts[0])
        if is_plain(string):
            self._stencils_left -= 1
            self._stencil = cut_stencil(event, relayed, string, shortest=_EMPTY - _QUOTES + 1) or self._stencil

    # ── the long way ─────────────────────────────────────────────────────────────

    def _relay_events(self, whole: bytes) -> bytes:
        relayed: list[bytes] = []
        taken = 0
        for piece in split_events(whole):
            kept = self._judge(piece)
            relayed.append(kept)
            taken += len(piece)
            self._last_was_relayed = kept[-1:] == piece[-1:]  # or else its line end is not the one that an LF would complete
            if self._over:
                break
        if whole:
            self._after_cr = whole.endswith(b"\r") and taken == len(whole) and not self._splitter.pending
        return b"".join(relayed)

    def _judge(self, piece: bytes) -> bytes:
        """Take one event in, whatever it is; give what of it goes to the client."""
        if piece == _USUAL_DONE:
            return self._take_done(piece)
        event = parse_event(piece, first=self._first)
        self._first = False
        if not event.dispatches:
            return piece
        text = event.data.strip()
        if text == _DONE:
            return self._take_done(piece)
        content = lenient.decode(text)
        if content is lenient.MALFORMED:
            self.malformed += 1
            if self.malformed > MAX_MALFORMED:
                self._fail(unreadable(f"More than {MAX_MALFORMED} events of the upstream's stream are not JSON; it cannot be understood."))
            return b""
        error = lenient.in_band_error(content, named_error=event.event == "error")
        if not isinstance(content, dict):
            if error is None:
                return piece  # JSON that means nothing to us may mean something to the client
            content = {}
        return self._take(piece, text, content, error)

    def _take_done(self, piece: bytes) -> bytes:
        self.done = self.finished = self.output_started = self._over = True
        return piece

    def _take(self, piece: bytes, text: bytes, content: dict[str, object], error: object) -> bytes:
        """Learn from a chunk object (or error) and its text; give what of it goes to the client."""
        was_running = self.output_started
        if not was_running:  # the short way does not look for them
            self.response_id = self.response_id or identity(content.get("id"))
            self.response_model = self.response_model or identity(content.get("model"))
            created = content.get("created")
            self.created = created if self.created is None and isinstance(created, int) else self.created
        reported = lenient.read_usage(content.get("usage"))
        self.usage = reported or self.usage
        timings = content.get("timings")
        if timings is not None:
            self.server_times = lenient.read_timings(timings)
        choices = content.get("choices")
        choices = choices if isinstance(choices, list) else []
        reasons = [lenient.text(lenient.member(choice, "finish_reason")) for choice in choices]
        if error is not None or FinishReason.ERROR in reasons:
            self.finish_reason = FinishReason.ERROR.value
            self._fail(generation_failed() if error is None else classify_error_object(self._dialect, error))
            return b""
        carried_output = False
        for place, choice in enumerate(choices):
            carried_output = self._take_choice(choice, reasons[place]) or carried_output
        might_take_the_short_way = bool(choices) and not any(reasons)  # which does not look into deltas
        if carried_output or might_take_the_short_way:
            self.text_bytes += _text_bytes_of(text)
        if carried_output or (might_take_the_short_way and was_running):
            self.chunks += 1
        if not self._hide_usage or "usage" not in content:
            return piece
        if reported is not None and not choices:
            return b""
        return without_usage(piece)

    def _take_choice(self, choice: object, reason: str | None) -> bool:
        """Learn from one choice; True when it carries output."""
        index = lenient.member(choice, "index")
        number = index if isinstance(index, int) else 0
        if self._operation is Operation.COMPLETION:
            has_output = bool(lenient.member(choice, "text"))
        else:
            delta = lenient.member(choice, "delta")
            has_output = any(lenient.member(delta, field) for field in _OUTPUT_FIELDS)
        if number not in self._open and number not in self._ended and len(self._open) + len(self._ended) < MAX_CHOICES:
            self._open.add(number)
        if reason is not None:
            self.finish_reason = most_telling(self.finish_reason, reason)
            self.finished = True
            if number in self._open:
                self._open.remove(number)
                self._ended.add(number)
                self._stencil = None
        self.output_started = self.output_started or has_output or reason is not None
        return has_output

    def _fail(self, failure: UpstreamFailure) -> None:
        self.failure = failure
        self._over = True


def _text_bytes_of(text: bytes) -> int:
    """Measure the output in an event that went the long way; 0 in one that cannot be glanced at."""
    try:
        choices = STREAM.decode(text).choices
    except (msgspec.DecodeError, RecursionError):
        return 0
    size = 0
    for choice in choices:
        size += _text_bytes(choice)
    return size


def _text_bytes(choice: ChoiceGlance) -> int:
    """Measure what a choice says, thinks or calls; of several texts the first, since some servers say the same under two names."""
    delta = choice.delta
    if delta is None:
        return len(choice.text) - _QUOTES
    for text in (delta.content, delta.reasoning_content, delta.reasoning):
        size = len(text)
        if size > _EMPTY:
            return size - _QUOTES
    size = 0
    for call in delta.tool_calls or ():
        if call.function is not None:
            size += len(call.function.arguments) - _QUOTES
    return size


def without_usage(event: bytes) -> bytes:
    """Cut the top-level `usage` member, known to be there, out of an event; every other byte stays."""
    is_named_once = event.count(b'"usage"') == 1
    at = event.find(_NULL_USAGE) if is_named_once else -1
    if at >= 0:
        return event[:at] + event[at + len(_NULL_USAGE) :]
    for member in _USAGE_MEMBER.finditer(event):
        rest = event[: member.start()] + event[member.end() :]
        if is_named_once or not _has_usage(rest):
            return rest
    return _rebuilt_without_usage(event)


def _has_usage(event: bytes) -> bool:
    content = lenient.decode(parse_event(event, first=True).data)
    return isinstance(content, dict) and "usage" in content


def _rebuilt_without_usage(event: bytes) -> bytes:
    """Do the same where the member spans lines or has a value of some other kind. White space between members may change."""
    event = event.removeprefix(BOM)
    try:
        members = msgspec.json.decode(parse_event(event).data, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return event
    members.pop("usage", None)
    lines = [line for line in event.splitlines() if line and not line.startswith(b"data:")]
    lines += (b"data: " + line for line in msgspec.json.encode(members).split(b"\n"))
    return b"\n".join(lines) + b"\n\n"
