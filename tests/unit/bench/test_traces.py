"""Traces of the kinds that are public, and what is said of broken ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.bench import traces
from tidegate.bench.traces import MAX_LINE_BYTES, TraceRequest, read_trace
from tidegate.errors import ConfigurationError


def _file(folder: Path, content: str | bytes) -> Path:
    path = folder / "trace"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_the_azure_form_is_read(tmp_path: Path) -> None:
    """Dates become seconds from the first request, in order of time; byte-order mark, CR LF and blank lines do not matter."""
    rows = [
        "\ufeffTIMESTAMP,ContextTokens,GeneratedTokens",
        "2023-11-16 18:15:47.6805900,396,109",
        "",
        "2023-11-16 18:15:46.6805900,374,44",
        "",
    ]
    first, second = read_trace(_file(tmp_path, "\r\n".join(rows)))
    assert TraceRequest(0.0, 374, 44) == first
    assert [1.0, 396, 109] == pytest.approx([second.at_s, second.prompt_tokens, second.completion_tokens])


@pytest.mark.parametrize(
    ("heading", "second_at_s"),
    [
        ("time,input,output", 1_500.0),
        ("timestamp_ms,prompt_tokens,completion_tokens", 1.5),
        ("Timestamp,Request tokens,Response tokens", 1_500.0),
    ],
)
def test_a_plain_csv_is_read_by_the_names_of_its_columns(tmp_path: Path, heading: str, second_at_s: float) -> None:
    """Seconds, or milliseconds where the name says so; a request without a token gets one."""
    first, second = read_trace(_file(tmp_path, f"{heading}\n100, 10 ,0\n1600,20,5\n"))
    assert TraceRequest(0.0, 10, 1) == first
    assert [second_at_s, 20, 5] == pytest.approx([second.at_s, second.prompt_tokens, second.completion_tokens])


def test_dates_with_a_zone_are_read(tmp_path: Path) -> None:
    """A date says its zone or is UTC's."""
    trace = read_trace(_file(tmp_path, "time,input,output\n2024-01-01T00:00:00Z,1,1\n2024-01-01T01:00:02+01:00,1,1\n"))
    assert [0.0, 2.0] == [request.at_s for request in trace]


def test_the_longest_shared_prefix_is_found(tmp_path: Path) -> None:
    """Requests with the same blocks so far have the same number and as many tokens of prefix; one that shares nothing has none."""
    lines = [
        '{"timestamp": 0, "input_length": 1500, "output_length": 5, "hash_ids": [0, 1, 2]}',
        '{"timestamp": 27, "input_length": 1600, "output_length": 6, "hash_ids": [0, 1, 3]}',
        '{"timestamp": 3000, "input_length": 300, "output_length": 0, "hash_ids": [0]}',
        '{"timestamp": 4000, "input_length": 0, "output_length": 7, "hash_ids": [9]}',
        '{"timestamp": 5000, "input_length": 8, "output_length": 8, "more": [[1]]}',
    ]
    expected = (
        TraceRequest(0.0, 1500, 5, prefix=0, prefix_tokens=1024),
        TraceRequest(0.027, 1600, 6, prefix=0, prefix_tokens=1024),
        TraceRequest(3.0, 300, 1, prefix=1, prefix_tokens=300),
        TraceRequest(4.0, 1, 7),
        TraceRequest(5.0, 8, 8),
    )
    assert expected == read_trace(_file(tmp_path, "\n".join(lines)))


@pytest.mark.parametrize(
    ("expected", "content"),
    [
        ("is empty; give a CSV file", ""),
        ("is empty; give a CSV file", "\n\n"),
        ("has a heading and no request", "time,input,output\n"),
        ("line 1: the heading has no column for output; name one of them generatedtokens", "time,input\n1,2\n"),
        ("line 3: it has 2 columns, the heading 3; correct", "time,input,output\n1,2,3\n1,2\n"),
        ("line 2: its time is neither seconds nor a date; write", "time,input,output\nnow,2,3\n"),
        ("line 2: its time is neither seconds nor a date; write", "time,input,output\n1700000000000,2,3\n"),
        ("line 2: its time is neither seconds nor a date; write", "time,input,output\nnan,2,3\n"),
        ('line 2: "many" is not a number of tokens; write', "time,input,output\n1,many,3\n"),
        ('line 2: "-2" is not a number of tokens; write', "time,input,output\n1,2,-2\n"),
        ('line 2: "99999999" is not a number of tokens; write', "time,input,output\n1,2,99999999\n"),
        ("line 2: it is not CSV: field larger", "time,input,output\n" + "1" * 200_000),
        ("line 2: it is not UTF-8; give a text file", b"time,input,output\n\xff\xfe\n"),
        ("line 2: it has more than 1,048,576 bytes; is this", "time,input,output\n" + "1" * (MAX_LINE_BYTES + 1)),
        (
            "line 2: it is not a request: .*output_length.*; write",
            '{"timestamp":1,"input_length":1,"output_length":1}\n{"timestamp":1,"input_length":1}',
        ),
        ("line 1: it is not a request: .*; write", '{"timestamp": 1'),
        ("line 1: it is not a request: .*; write", '{"a":' + "[" * 100_000),
        ("line 1: it is not a request: .*; write", '{"timestamp":-1,"input_length":1,"output_length":1}'),
    ],
)
def test_a_broken_trace_is_refused_with_its_line(tmp_path: Path, expected: str, content: str | bytes) -> None:
    """The message names file and line, says what is wrong and what to do."""
    with pytest.raises(ConfigurationError, match=expected) as refusal:
        read_trace(_file(tmp_path, content))
    assert refusal.value.message.startswith(str(tmp_path))


def test_what_cannot_be_a_trace_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file, too many requests, or too many bytes."""
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        read_trace(tmp_path / "none")
    path = _file(tmp_path, "time,input,output\n" + "1,1,1\n" * 4)
    monkeypatch.setattr(traces, "MAX_REQUESTS", 4)
    assert 4 == len(read_trace(path))
    monkeypatch.setattr(traces, "MAX_REQUESTS", 3)
    with pytest.raises(ConfigurationError, match="line 5: here is request 4, one too many; cut a part out"):
        read_trace(path)
    monkeypatch.setattr(traces, "MAX_BYTES", 3)
    with pytest.raises(ConfigurationError, match="more than 3 bytes; cut a part out"):
        read_trace(path)
