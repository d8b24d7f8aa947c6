"""Log lines: one line each whatever a client sends."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tidegate.adapters.records.lines import LogFormat, line_format, request_fields, request_format
from tidegate.domain.outcome import Outcome
from tidegate.domain.record import AttemptRecord, RequestRecord
from tidegate.domain.usage import Evidence, Usage

AT = 1_700_000_000.0


@given(value=st.text(st.characters()))
def test_no_value_can_forge_a_line(value: str) -> None:
    """Law: in both formats an entry is one line, and encodable."""
    for log_format in LogFormat:
        line = line_format(log_format)(AT, "info", "request.finished", {"model": value})
        assert line.encode().decode().split("\n") == [line[:-1], ""]
        assert "\r" not in line


def test_values_with_spaces_and_quotes_are_quoted() -> None:
    """logfmt stays parseable."""
    line = line_format(LogFormat.LOGFMT)(
        AT, "warning", "worker.exited", {"index": 1, "reason": 'say "no"', "empty": "", "absent": None, "on": True}
    )
    assert line == '2023-11-14T22:13:20.000Z warning worker.exited index=1 reason="say \\"no\\"" empty="" on=true\n'


def test_json_lines_are_json() -> None:
    """The JSON format has the same fields."""
    line = line_format(LogFormat.JSON)(AT, "info", "worker.ready", {"index": 1, "absent": None})
    assert json.loads(line) == {"at": "2023-11-14T22:13:20.000Z", "level": "info", "event": "worker.ready", "index": 1}
    worded = json.loads(line_format(LogFormat.JSON)(AT, "info", "worker.exited index=1 was ended", {}))
    assert (worded["event"], worded["message"]) == ("worker.exited", "index=1 was ended")


def test_long_values_are_cut() -> None:
    """A model name of a megabyte does not become a log line of a megabyte."""
    assert len(line_format(LogFormat.LOGFMT)(AT, "info", "request.finished", {"model": "m" * 1_000_000})) < 400


def test_the_request_line_has_a_fixed_set_of_fields() -> None:
    """Neither prompts nor answers nor the user's name get into the log by a field added to the record."""
    record = RequestRecord(request_id="r", started_at=AT, operation="chat", outcome=Outcome.OK, status=200, duration_s=1)
    assert set(request_fields(record)) == {
        *("request_id", "operation", "outcome", "status", "error", "cause", "model", "upstream", "tenant", "key", "color", "stream"),
        *("duration_ms", "ttft_ms", "upstream_ms", "attempts", "prompt_tokens", "cached_tokens", "completion_tokens"),
        *("evidence", "finish_reason", "degraded", "trace_id"),
    }


TEXTS = st.one_of(
    st.sampled_from(["", "stop", "req_0123456789abcdef01234567", "0" * 32, "qwen3.6-plus", 'a "b"', "m" * 400]), st.text(max_size=8)
)


TIMES = st.floats(0, 1e6) | st.integers(0, 10**8).map(lambda number: number / 20_000)  # half of these are ties, or next to one


@given(
    texts=st.tuples(*[TEXTS] * 7),
    reason=st.none() | TEXTS,
    cause=st.none() | TEXTS,
    ttft_s=st.none() | TIMES,
    duration_s=TIMES,
    cached=st.integers(0, 2),
    tries=st.integers(0, 2),
)
def test_law_the_request_line_made_in_one_step_equals_the_general_one(
    texts: tuple[str, ...], reason: str | None, cause: str | None, ttft_s: float | None, duration_s: float, cached: int, tries: int
) -> None:
    """Expected what the general form writes of `request_fields`, for every record and in both formats."""
    request_id, model, upstream, tenant, key_id, trace_id, color = texts
    attempts = tuple(AttemptRecord(number, "up/0", "ok") for number in range(tries))
    record = RequestRecord(
        request_id, AT, "chat", Outcome.OK, 200, duration_s, key_id=key_id, tenant=tenant, model=model, upstream=upstream,
        stream=ttft_s is not None, cause=cause, ttft_s=ttft_s, upstream_s=duration_s / 2, usage=Usage(472, 128, cached),
        evidence=Evidence.REPORTED, finish_reason=reason, attempts=attempts, trace_id=trace_id, color=color,
    )  # fmt: skip
    for log_format in LogFormat:
        write = request_format(log_format)
        expected = line_format(log_format)(AT + duration_s, "info", "request.finished", request_fields(record))
        assert write(record) == expected
        assert write(record) == expected, "nor does what it remembers change it"
