"""Short names for the faults and cuts that tests ask for most."""

from __future__ import annotations

from tidegate.mock.script import Fault, FaultKind, RetryAfter, RetryDialect, Script, Split


def reset_before_headers() -> Fault:
    """Reset the connection instead of answering."""
    return Fault(FaultKind.RESET_BEFORE_HEADERS)


def hang_before_headers() -> Fault:
    """Take the request and say nothing."""
    return Fault(FaultKind.HANG_BEFORE_HEADERS)


def refuse_for(seconds: float) -> Fault:
    """Reset the connection, and let nobody connect for some time."""
    return Fault(FaultKind.REFUSE, for_s=seconds)


def drip_headers(pause_s: float) -> Fault:
    """Send the head byte by byte, then the answer."""
    return Fault(FaultKind.DRIP_HEADERS, pause_s=pause_s)


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


def malformed_event_at(event: int, text: str | None = None) -> Fault:
    """Put an event that is not JSON before event number `event`."""
    return Fault(FaultKind.MALFORMED_EVENT, event, text=text)


def huge_event_at(event: int, size_bytes: int = 100_000) -> Fault:
    """Put a very long event that adds no text before event number `event`."""
    return Fault(FaultKind.HUGE_EVENT, event, size_bytes=size_bytes)


def error_event_after(events: int) -> Fault:
    """Send `events` events, then an error event and the end of the body."""
    return Fault(FaultKind.ERROR_EVENT, events)


def finish_error_after(events: int) -> Fault:
    """Send `events` events, then a choice that finishes with `error`, as OpenRouter does."""
    return Fault(FaultKind.FINISH_ERROR, events)


def rate_limited(dialect: RetryDialect = RetryDialect.SECONDS, after_s: float = 1.0) -> Script:
    """Answer 429, and say in that dialect when to come back."""
    return Script(retry_after=RetryAfter(dialect, after_s))


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
