"""Log lines: one line each whatever a client sends."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tidegate.adapters.records.lines import LogFormat, line_format, request_fields
from tidegate.domain.outcome import Outcome
from tidegate.domain.record import RequestRecord

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
        *("request_id", "operation", "outcome", "status", "error", "cause", "model", "upstream", "tenant", "key", "stream"),
        *("duration_ms", "ttft_ms", "upstream_ms", "attempts", "prompt_tokens", "cached_tokens", "completion_tokens"),
        *("evidence", "finish_reason", "degraded", "trace_id"),
    }
