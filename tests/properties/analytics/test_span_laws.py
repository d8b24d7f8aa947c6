"""Laws of spans: whatever a record says, they lie within each other and are told apart, and they are the same each time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.analytics.spans import Span, spans_of
from tidegate.analytics.tail_sampling import KeptFor
from tidegate.domain.outcome import Outcome
from tidegate.domain.record import AttemptRecord, RequestRecord

DURATIONS = st.floats(0, 10_000)
MAYBE = st.none() | DURATIONS
ATTEMPTS = st.builds(
    AttemptRecord,
    attempt=st.just(1),
    replica=st.sampled_from(["pool/0", "pool", ""]),
    result=st.sampled_from(["ok", "cancelled", "lost", "status_503"]),
    step=st.sampled_from(["", "same", "next"]),
    connect_s=MAYBE,
    first_token_s=MAYBE,
    duration_s=DURATIONS,
    began_s=DURATIONS,
    queue_s=MAYBE,
    prefill_s=MAYBE,
    decode_s=MAYBE,
)


@st.composite
def records(draw: st.DrawFn) -> RequestRecord:
    attempts = draw(st.lists(ATTEMPTS, max_size=8))
    numbered = tuple(
        AttemptRecord(**{**{f: getattr(each, f) for f in each.__struct_fields__}, "attempt": n + 1}) for n, each in enumerate(attempts)
    )
    return RequestRecord(
        request_id="r",
        started_at=1_793_780_000.0,
        operation=draw(st.sampled_from(["chat", "embedding", "models", "none"])),
        outcome=draw(st.sampled_from(Outcome)),
        status=200,
        duration_s=draw(DURATIONS),
        ttft_s=draw(MAYBE),
        degraded=draw(st.none() | st.just("L1")),
        business_context=draw(st.text(max_size=50)),
        attempts=numbered,
        trace_id=draw(st.from_regex(r"[0-9a-f]{31}[1-9a-f]", fullmatch=True)),
        span_id=draw(st.from_regex(r"[1-9a-f][0-9a-f]{15}", fullmatch=True)),
    )


@given(records())
def test_law_every_span_lies_within_its_parent(record: RequestRecord) -> None:
    """And so does every event within its span."""
    spans = {span.span_id: span for span in spans_of(record, KeptFor.SHARE)}
    for span in spans.values():
        parent = spans.get(span.parent_id, span)
        assert parent.began_at <= span.began_at <= span.ended_at <= parent.ended_at
        assert all(span.began_at <= event.at <= span.ended_at for event in span.events)


@given(records())
def test_law_spans_are_told_apart_and_the_same_each_time(record: RequestRecord) -> None:
    """So that what is sent twice is stored once."""
    spans: tuple[Span, ...] = spans_of(record, KeptFor.SHARE)
    assert len(spans) == len({span.span_id for span in spans})
    assert spans == spans_of(record, KeptFor.SHARE)
