"""One line of a record file to rows of the tables.

Tolerant, so that files written by older and newer versions are kept: a field that is unknown is passed over, one that is missing is
missing from the row, too (the store then has the nothing of its type), and so is one of another kind, or becomes that nothing. Only what
has no start, or is no JSON object, is no record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from tidegate.analytics.asking import Value
from tidegate.analytics.schema import ATTEMPTS, BODIES, REQUESTS, Column, Table
from tidegate.domain.usage import Evidence
from tidegate.wire.business_context import parse_business_context

Row = dict[str, Value]
Rows = Mapping[str, Sequence[Row]]
"""Rows by the name of their table, all of the same day."""
Record = Mapping[str, object]

MAX_ATTEMPTS: Final = 255
"""What the column `attempts` holds; a retry policy allows far fewer."""
_EARLIEST: Final = 946_684_800.0
_LATEST: Final = 4_102_444_800.0
"""Years 2000 and 2100: what lies outside was not dated by a clock that works, and no partition is made for it."""
_MAX_INTEGER: Final = {"UInt8": 2**8 - 1, "UInt16": 2**16 - 1, "UInt32": 2**32 - 1, "UInt64": 2**64 - 1, "Int64": 2**63 - 1}
_LARGEST: Final = 1e18
"""Of a number that may have a fraction; one of hundreds of digits is no float at all."""
_decode = msgspec.json.Decoder().decode


def request_rows(line: bytes, *, node: str, source: str, offset: int) -> Rows | None:
    """Give the rows of a request's record; None for what is none."""
    record = _record(line)
    started_at = _instant(record)
    if record is None or started_at is None:
        return None
    attempts = [each for each in _list(record.get("attempts")) if isinstance(each, dict)][:MAX_ATTEMPTS]
    place: Row = {"started_at": started_at, "source": source, "offset": offset}
    request = {**_row(REQUESTS, record), **_computed(record, attempts), **place, "node": node, "attempts": len(attempts)}
    request_id = request.get("request_id", "")
    rows = []
    for attempt in attempts:
        replica = _text(attempt.get("replica"))
        rows.append({**_row(ATTEMPTS, attempt), **place, "request_id": request_id, "upstream": replica.rpartition("/")[0]})
    if rows and request.get("completion_tokens"):  # the record's own figures are of the attempt that answered
        rows[-1] |= {name: request[name] for name in ("prompt_tokens", "cached_tokens", "completion_tokens") if name in request}
    return {REQUESTS.name: [request], ATTEMPTS.name: rows}


def body_rows(line: bytes, *, source: str, offset: int) -> Rows | None:
    """Give the row of a body that the audit policy kept; None for what is none."""
    record = _record(line)
    started_at = _instant(record)
    if record is None or started_at is None:
        return None
    return {BODIES.name: [{**_row(BODIES, record), "started_at": started_at, "source": source, "offset": offset}]}


def timestamp(at: float) -> str:
    """Write seconds since the epoch as the tables have it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def instant(at: str) -> float:
    """Read what `timestamp` wrote."""
    return datetime.strptime(at, "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC).timestamp()


def _computed(record: Record, attempts: Sequence[Record]) -> Row:
    """Give the columns that stand nowhere in the record."""
    duration_s, ttft_s = _seconds(record.get("duration_s")) or 0.0, _seconds(record.get("ttft_s"))
    row: Row = {"gateway_s": max(0.0, duration_s - (_seconds(record.get("upstream_s")) or 0.0))}
    if attempts:
        last = attempts[-1]
        row["replica"] = _text(last.get("replica"))
        row |= {name: _seconds(last[name]) for name in ("queue_s", "prefill_s", "decode_s") if name in last}
    usage = record.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    if isinstance(usage, dict) and "evidence" not in record and (usage.get("prompt_tokens") or tokens):
        row["evidence"] = Evidence.ESTIMATED.value  # records leave out what is as it is without being said
    if ttft_s is not None and isinstance(tokens, int) and 1 < tokens <= _LARGEST:
        row["tpot_s"] = max(0.0, duration_s - ttft_s) / (tokens - 1)
    context = record.get("business_context")
    if isinstance(context, str):
        row["context"] = parse_business_context(context.encode("utf-8", "replace"))
    return row


def _record(line: bytes) -> Record | None:
    try:
        record = _decode(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _instant(record: Record | None) -> str | None:
    """Give when the request began, as text; None without a time that can be one."""
    started_at = record.get("started_at") if record is not None else None
    if isinstance(started_at, bool) or not isinstance(started_at, int | float) or not _EARLIEST <= started_at < _LATEST:
        return None
    return timestamp(started_at)


def _row(table: Table, record: Record) -> Row:
    row: Row = {}
    for name, first, second, take in _TAKES[table.name]:
        value = record.get(first)
        if second and value is not None:
            value = value.get(second) if isinstance(value, dict) else None
        if value is not None:
            row[name] = take(value)
    return row


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
        return None
    return float(value)


def _seconds_or_0(value: object) -> float:
    return _seconds(value) or 0.0


def _truth(value: object) -> bool:
    return value is True


def _integer(most: int, least: int) -> Callable[[object], Value]:
    def take(value: object) -> Value:
        return min(max(value, least), most) if isinstance(value, int) and not isinstance(value, bool) else 0

    return take


def _take(column: Column) -> Callable[[object], Value]:
    """Give what makes a cell of this column out of whatever stands in a record."""
    match column.type:
        case "Nullable(Float64)":
            return _seconds
        case "Float64":
            return _seconds_or_0
        case "Bool":
            return _truth
        case kind if kind in _MAX_INTEGER:
            return _integer(_MAX_INTEGER[kind], -_MAX_INTEGER[kind] - 1 if kind == "Int64" else 0)
        case _:
            return _text


_TAKES: Final = {
    table.name: tuple((column.name, *column.path.partition(".")[::2], _take(column)) for column in table.columns if column.path)
    for table in (REQUESTS, ATTEMPTS, BODIES)
}
