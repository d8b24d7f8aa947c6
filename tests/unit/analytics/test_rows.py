"""A record of any version becomes rows; what is no record does not."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.analytics.rows import body_rows, instant, request_rows, timestamp
from tidegate.analytics.schema import ATTEMPTS, BY_NAME, REQUESTS, TABLES, page
from tidegate.domain.outcome import Outcome
from tidegate.domain.record import AttemptRecord, RequestRecord
from tidegate.domain.usage import Evidence, Usage

NOW = 1_793_780_000.125
PLACE = {"started_at": "2026-11-04 08:13:20.125", "source": "s", "offset": 7}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
fields = st.sampled_from(
    [column.path or column.name for table in (REQUESTS, ATTEMPTS) for column in table.columns] + ["usage", "business_context"]
)


def rows_of(record: object) -> dict[str, list[dict[str, object]]]:
    made = request_rows(json.dumps(record).encode(), node="n", source="s", offset=7)
    assert made is not None
    return {table: [dict(row) for row in rows] for table, rows in made.items()}


def test_a_record_with_nothing_but_a_start_has_a_row() -> None:
    """Whatever else it lacks, the row lacks, too."""
    expected = {"node": "n", "attempts": 0, "gateway_s": 0.0, **PLACE}
    assert {"requests": [expected], "attempts": []} == rows_of({"started_at": NOW})


def test_the_attempt_that_answered_has_the_figures_of_the_record() -> None:
    """Those before it have their own; pool and phases come from the replica's name and the last attempt."""
    attempts = [
        {"attempt": 1, "replica": "a/0", "usage": {"prompt_tokens": 3}},
        {"attempt": 2, "replica": "b/1", "queue_s": 0.25, "decode_s": None},
        "of another version",
    ]
    made = rows_of({"started_at": NOW, "attempts": attempts, "usage": {"prompt_tokens": 9, "completion_tokens": 4}})
    assert [("a", 3, None), ("b", 9, 4)] == [
        (row["upstream"], row["prompt_tokens"], row.get("completion_tokens")) for row in made["attempts"]
    ]
    [request] = made["requests"]
    assert ("b/1", 0.25, None, 2) == (request["replica"], request["queue_s"], request["decode_s"], request["attempts"])


@pytest.mark.parametrize(
    ("evidence", "tokens", "expected"), [("estimated", 2, "estimated"), ("reported", 2, "reported"), ("estimated", 0, None)]
)
def test_tokens_always_have_their_evidence(evidence: str, tokens: int, expected: str | None) -> None:
    """Records leave out a field that is as it is by default; where tokens were used, the column says it all the same."""
    record = RequestRecord("r", NOW, "chat", Outcome.OK, 200, 1.5, usage=Usage(completion_tokens=tokens), evidence=Evidence(evidence))
    assert expected == rows_of(json.loads(msgspec.json.encode(record)))["requests"][0].get("evidence")


def test_what_a_worker_writes_finds_its_columns() -> None:
    """Every plain field of the record is a column, or part of one."""
    columns = {column.path.partition(".")[0] for column in REQUESTS.columns} | {"started_at", "attempts", "business_context"}
    attempt_columns = {column.path.partition(".")[0] for column in ATTEMPTS.columns}
    assert set(RequestRecord.__struct_fields__) - columns - {"prompt_tokens_bound"} == set()
    assert set(AttemptRecord.__struct_fields__) - attempt_columns == set()
    record = RequestRecord("r", NOW, "chat", Outcome.OK, 200, 1.5, attempts=(AttemptRecord(1, "a/0", "ok"),))
    assert {"outcome": "ok", "status": 200}.items() <= rows_of(json.loads(msgspec.json.encode(record)))["requests"][0].items()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"{",
        b'{"started_at":true}',
        b'{"started_at":"now"}',
        b'{"started_at":1e18}',
        b'{"started_at":0}',
        b"[" * 5_000,
        b"\0" * 9,
    ],
)
def test_what_has_no_start_is_no_record(line: bytes) -> None:
    """Neither a request nor a body."""
    assert request_rows(line, node="n", source="s", offset=0) is None
    assert body_rows(line, source="s", offset=0) is None


def test_a_body_is_a_row() -> None:
    """As the audit policy left it."""
    made = body_rows(
        json.dumps({"request_id": "r", "started_at": NOW, "kind": "request", "body": "b", "truncated": True}).encode(), source="s", offset=7
    )
    assert {"bodies": [{"request_id": "r", "kind": "request", "body": "b", "truncated": True, **PLACE}]} == made


@given(record=st.dictionaries(fields, json_values, max_size=6), attempt=st.dictionaries(fields, json_values, max_size=4))
def test_nothing_in_a_record_stops_it(record: dict[str, object], attempt: dict[str, object]) -> None:
    """Law: a field of any kind gives a row whose cells their columns take, or none of that name."""
    for table, rows in rows_of(record | {"started_at": NOW, "attempts": [attempt, record.get("attempts")]}).items():
        types = {column.name: column.type for column in BY_NAME[table].columns}
        for row in rows:
            assert {name for name, value in row.items() if not _fits(types[name], value)} == set()


def _fits(kind: str, value: object) -> bool:
    match kind:
        case "Nullable(Float64)":
            return value is None or isinstance(value, float)
        case "Float64":
            return isinstance(value, float)
        case "Bool":
            return isinstance(value, bool)
        case "UInt8" | "UInt16" | "UInt32" | "UInt64":
            return isinstance(value, int) and 0 <= value < 2 ** int(kind[4:])
        case "Int64":
            return isinstance(value, int) and -(2**63) <= value < 2**63
        case _ if kind.startswith("Map"):
            return isinstance(value, dict)
        case _:
            return isinstance(value, str)


@given(at=st.integers(946_684_800_000, 4_102_444_799_999))
def test_times_are_written_to_the_millisecond(at: int) -> None:
    """Law: what is written can be read again, within half a millisecond of what a float holds."""
    assert abs(at / 1000 - instant(timestamp(at / 1000))) <= 0.0011


def test_columns_have_names_of_their_own_and_a_sentence_each() -> None:
    """The page that documents them has a line for each."""
    lines = list(page())
    for table in TABLES:
        assert len(set(table.names)) == len(table.columns)
        assert all(column.sentence.endswith(".") for column in table.columns)
        assert f"## {table.name}" in lines
    assert sum(len(table.columns) for table in TABLES) == sum(line.startswith("| `") for line in lines)


def test_numbers_of_hundreds_of_digits_are_none() -> None:
    """A float cannot hold them, and the row is made without."""
    huge = 10**400
    record = {"started_at": NOW, "ttft_s": 0.1, "duration_s": huge, "usage": {"completion_tokens": huge}, "attempts": [{"queue_s": huge}]}
    [request] = rows_of(record)["requests"]
    assert (0.0, None, None) == (request["gateway_s"], request["queue_s"], request.get("tpot_s"))
