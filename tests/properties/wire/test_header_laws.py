"""Laws of headers: durations survive the round trip, garbage is ignored, and only listed names pass."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.wire.headers import (
    MAX_RETRY_AFTER_S,
    client_response_headers,
    go_duration,
    parse_go_duration,
    parse_retry_after,
    retry_after_value,
    upstream_request_headers,
)
from tidegate.wire.trace_context import (
    TraceContext,
    attempt_span_id,
    clean_request_id,
    for_attempt,
    is_in_share,
    parse_traceparent,
    share_threshold,
)

NAMES = st.sampled_from(
    [
        b"retry-after",
        b"retry-after-ms",
        b"x-ratelimit-reset",
        b"x-ratelimit-reset-tokens",
        b"x-ratelimit-remaining-tokens",
        b"x-ratelimit-reset-requests",
    ]
)
VALUES = st.one_of(
    st.binary(max_size=30),
    st.from_regex(rb"[0-9]{1,20}(\.[0-9]{1,3})?(ms|s|m|h)?", fullmatch=True),
    st.from_regex(rb"[A-Z][a-z]{2}, [0-9]{2} (Jan|Feb|Foo|Dec) [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT", fullmatch=True),
)
SECRET = b"sk-canary"


@given(st.floats(0, 1e7))
def test_law_a_duration_survives_within_a_millisecond_and_never_gets_shorter(seconds: float) -> None:
    """Writing and reading a Go duration rounds up, by at most a millisecond."""
    back = parse_go_duration(go_duration(seconds))

    assert back is not None
    assert -1e-6 <= back - seconds <= 0.0011


@given(st.text(max_size=20))
def test_law_no_text_breaks_the_duration_parser(text: str) -> None:
    """Any text is a duration >= 0 or none."""
    seconds = parse_go_duration(text)

    assert seconds is None or seconds >= 0


@given(st.lists(st.tuples(NAMES, VALUES), max_size=5).map(tuple), st.one_of(st.none(), st.floats(0, 4e9)))
def test_law_any_wish_is_within_the_hour_or_absent(headers: tuple[tuple[bytes, bytes], ...], now: float | None) -> None:
    """Whatever an upstream writes, we wait between nothing and an hour."""
    wait = parse_retry_after(headers, now)

    assert wait is None or 0 <= wait <= MAX_RETRY_AFTER_S


@given(st.floats(0, 3600))
def test_law_retry_after_is_never_early(seconds: float) -> None:
    """The header's whole seconds are at least the time meant, and at least one."""
    assert int(retry_after_value(seconds)) >= max(1, seconds)


@given(
    st.lists(
        st.sampled_from(
            [b"authorization", b"cookie", b"set-cookie", b"x-forwarded-for", b"x-api-key", b"x-tidegate-debug", b"forwarded", b"server"]
        )
    )
)
def test_law_a_secret_in_any_unlisted_header_passes_in_neither_direction(names: list[bytes]) -> None:
    """What is not on the list stays on its side."""
    headers = tuple((name, SECRET) for name in names)

    assert SECRET not in [value for _, value in (*upstream_request_headers(headers), *client_response_headers(headers))]


@given(st.from_regex(r"[0-9a-f]{32}", fullmatch=True), st.from_regex(r"[0-9a-f]{16}", fullmatch=True), st.integers(0, 3))
def test_law_a_written_traceparent_reads_back(trace_id: str, span_id: str, flags: int) -> None:
    """A child's header is valid, in the same trace, with the same flags, unless an id is all zeros."""
    context = TraceContext(trace_id, "1" * 16, flags)
    back = parse_traceparent(context.child(span_id))

    expected = None if int(trace_id, 16) == 0 or int(span_id, 16) == 0 else TraceContext(trace_id, span_id, flags)
    assert expected == back


@given(st.from_regex(r"[0-9a-f]{32}", fullmatch=True), st.from_regex(r"[0-9a-f]{14}[1-9a-f]{2}", fullmatch=True), st.integers(1, 10_000))
def test_law_an_attempt_sends_the_span_that_a_reader_of_the_record_works_out(trace_id: str, span_id: str, attempt: int) -> None:
    """Its header differs from the request's in that and in nothing else."""
    context = TraceContext(trace_id, "1" * 16, 1)

    assert context.child(attempt_span_id(span_id, attempt)) == for_attempt(context.child(span_id), attempt)


@given(st.from_regex(r"[0-9a-f]{16}", fullmatch=True))
def test_law_the_spans_of_255_attempts_and_their_request_differ(span_id: str) -> None:
    """No retry policy allows so many."""
    assert 256 == len({span_id, *(attempt_span_id(span_id, attempt) for attempt in range(1, 256))})


@given(st.from_regex(r"[0-9a-f]{32}", fullmatch=True), st.floats(0, 1), st.floats(0, 1))
def test_law_a_larger_share_holds_a_smaller_one(trace_id: str, one: float, other: float) -> None:
    """And the ratio is what part of the last 56 bits is in it."""
    smaller, larger = sorted((one, other))

    assert is_in_share(trace_id, share_threshold(larger)) or not is_in_share(trace_id, share_threshold(smaller))
    assert (int(trace_id[18:], 16) >= round((1.0 - one) * 2**56)) == is_in_share(trace_id, share_threshold(one))


@given(st.binary(max_size=200))
def test_law_a_request_id_is_printable_or_refused(value: bytes) -> None:
    """An accepted id can be put into any log line and header."""
    cleaned = clean_request_id(value)

    assert cleaned is None or (cleaned.isascii() and cleaned.isprintable() and 1 <= len(cleaned) <= 128)
