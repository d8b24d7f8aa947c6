"""What is right, as functions from an observation to a complaint (None: it is as it should be)."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec

from tidegate.conformance.events import Reading, choices_of, read_events, text_of
from tidegate.conformance.observe import End, Observation

TEXT = "Hello, wide world."
"""What the scripted upstream says unless told otherwise."""
_ERROR_MEMBERS = frozenset({"message", "type", "param", "code"})


class Way(StrEnum):
    """An endpoint and whether its answer is streamed."""

    CHAT = "chat"
    CHAT_STREAM = "chat stream"
    COMPLETION = "completion"
    COMPLETION_STREAM = "completion stream"
    EMBEDDING = "embedding"

    @property
    def is_stream(self) -> bool:
        return self in (Way.CHAT_STREAM, Way.COMPLETION_STREAM)


WAYS = tuple(Way)
STREAMS = tuple(way for way in Way if way.is_stream)
CHAT_WAYS = (Way.CHAT, Way.CHAT_STREAM)

Expectation = Callable[[Observation, Way], str | None]


def complete(text: str = TEXT, *, finish_reason: str | None = None, done: bool = True, comments: bool = False) -> Expectation:
    """A whole and correct answer with this text.

    A stream ends with `[DONE]`; `done` False: without one, since the upstream sent none. Each of its blank lines ends an event with data;
    `comments`: the upstream's own comment blocks, which may pass byte for byte, need not.
    """

    def judge(seen: Observation, way: Way) -> str | None:
        if seen.status != 200 or seen.end is not End.CLEAN:  # noqa: PLR2004  HTTP's OK
            return f"expected a complete answer, got {seen}"
        if way is Way.EMBEDDING:
            return None if _embedding(seen) else f"expected a vector, got {seen}"
        if way.is_stream:
            reading = read_events(seen.body)
            return _wrong_stream(reading, text, finish_reason) or _wrong_framing(reading, done=done, comments=comments)
        choice = _first_choice(_decoded(seen.body))
        said = text_of(choice)
        if said != text:
            return f"expected the text {text!r}, got {said!r}"
        if finish_reason is not None and choice.get("finish_reason") != finish_reason:
            return f"expected finish_reason {finish_reason}, got {choice.get('finish_reason')}"
        return None

    return judge


def refused(*statuses: int, retry_after: bool = False) -> Expectation:
    """An error status with OpenAI's error object, before anything of an answer; `retry_after`: with a usable `Retry-After`."""

    def judge(seen: Observation, way: Way) -> str | None:
        del way
        if seen.status not in statuses or seen.end is not End.CLEAN:
            return f"expected status {' or '.join(map(str, statuses))}, got {seen}"
        error = _decoded(seen.body).get("error")
        if not isinstance(error, dict) or not _ERROR_MEMBERS <= error.keys() or not error["message"]:
            return f"expected an error object with message, type, param and code, got {seen.body[:200]!r}"
        wish = seen.headers.get("retry-after", "")
        if retry_after and not (wish.isdigit() and int(wish) >= 1):
            return f"expected a retry-after of whole seconds, got {wish!r}"
        return None

    return judge


def interrupted(text: str = TEXT) -> Expectation:
    """A stream: its beginning, then one error event, no `[DONE]`, and a proper end. Otherwise: an error status."""

    def judge(seen: Observation, way: Way) -> str | None:
        if not way.is_stream:
            return refused(500, 502, 503, 504)(seen, way)
        if seen.status != 200 or seen.end is not End.CLEAN:  # noqa: PLR2004  HTTP's OK
            return f"expected a stream that ends in good HTTP order, got {seen}"
        reading = read_events(seen.body)
        said = reading.text
        if not said or not text.startswith(said):
            return f"expected the beginning of {text!r}, got {said!r}"
        errors = [chunk for chunk in reading.chunks if chunk.get("error")]
        if len(errors) != 1 or not reading.chunks[-1].get("error"):
            return f"expected one error event at the end, got {len(errors)}: {seen.body[-200:]!r}"
        if any("[DONE]" in event for event in reading.data):
            return "a [DONE] was forged after an error"
        return None

    return judge


def either(*expectations: Expectation) -> Expectation:
    """Any of these."""

    def judge(seen: Observation, way: Way) -> str | None:
        complaints = [expectation(seen, way) for expectation in expectations]
        return None if None in complaints else " / ".join(complaint for complaint in complaints if complaint)

    return judge


def without_usage() -> Expectation:
    """A complete stream in which no event says `usage`, except as null: the client did not ask."""

    def judge(seen: Observation, way: Way) -> str | None:
        complaint = complete()(seen, way)
        if complaint is not None or not way.is_stream:
            return complaint
        reading = read_events(seen.body)
        if any(chunk.get("usage") is not None for chunk in reading.chunks):
            return "usage was sent to a client that did not ask for it"
        if any(chunk.get("choices") == [] for chunk in reading.chunks):
            return "an extra chunk without choices was sent to a client that did not ask for usage"
        return None

    return judge


def with_usage() -> Expectation:
    """A complete answer with usage in it, in a stream on the last chunk that has any."""

    def judge(seen: Observation, way: Way) -> str | None:
        complaint = complete()(seen, way)
        if complaint is not None:
            return complaint
        found = read_events(seen.body).chunks if way.is_stream else [_decoded(seen.body)]
        return None if any(isinstance(chunk.get("usage"), dict) for chunk in found) else "the client asked for usage and got none"

    return judge


def _wrong_stream(reading: Reading, text: str, finish_reason: str | None) -> str | None:
    said = reading.text
    reasons = [choice.get("finish_reason") for chunk in reading.chunks for choice in choices_of(chunk) if choice.get("finish_reason")]
    complaint = None
    if reading.undecodable:
        complaint = "an event is not UTF-8"
    elif said != text:
        complaint = f"expected the text {text!r}, got {said!r}"
    elif reading.malformed:
        complaint = f"an event that is not JSON reached the client: {reading.malformed[0][:80]!r}"
    elif reading.rest.strip():
        complaint = f"half an event at the end: {reading.rest[:80]!r}"
    elif any(chunk.get("error") for chunk in reading.chunks):
        complaint = "an error event in a stream that was complete"
    elif not reasons:
        complaint = "no finish_reason"
    elif finish_reason is not None and reasons[-1] != finish_reason:
        complaint = f"expected finish_reason {finish_reason}, got {reasons[-1]}"
    elif sum(_is_role(chunk) for chunk in reading.chunks) > 1:
        complaint = "two chunks that begin the answer (a role each): a retry was spliced in"
    return complaint


def _wrong_framing(reading: Reading, *, done: bool, comments: bool) -> str | None:
    if reading.ends_with_done is not done:
        return "the stream does not end with [DONE]" if done else "a [DONE] was made up: the upstream sent none"
    if reading.empty_dispatches and not comments:
        return f"{reading.empty_dispatches} blank lines without an event before them: some decoders make an empty event of each, and fail"
    return None


def _is_role(chunk: dict[str, object]) -> bool:
    return any(
        isinstance(delta := choice.get("delta"), dict) and delta.get("role") and not delta.get("content") for choice in choices_of(chunk)
    )


def _decoded(body: bytes) -> dict[str, object]:
    try:
        content = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return content if isinstance(content, dict) else {}


def _first_choice(answer: dict[str, object]) -> dict[str, object]:
    return next(iter(choices_of(answer)), {})


def _embedding(seen: Observation) -> bool:
    vectors = _decoded(seen.body).get("data")
    return isinstance(vectors, list) and len(vectors) == 1 and isinstance(vectors[0], dict) and bool(vectors[0].get("embedding"))
