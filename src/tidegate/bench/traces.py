"""Traces of real traffic: when requests came, and how long they and their answers were. Times are seconds from the first request.

Two forms, told apart by the first line:
* CSV with a heading. The Azure traces (`TIMESTAMP, ContextTokens, GeneratedTokens`), BurstGPT's, and any other whose columns are called
  as in `COLUMNS`. Times are seconds, milliseconds where the column's name ends in `_ms`, or dates.
* JSON Lines of Mooncake's kind: `timestamp` in milliseconds, `input_length`, `output_length`, and perhaps `hash_ids`, one for each block of
  512 tokens; as each stands for all of the prompt up to its end, requests that share one share the prefix that ends there.

A request gets the longest prefix that it shares with any other. Requests with different longest prefixes share nothing here, even where
theirs began alike, so a prefix cache finds a little less than in the original.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import msgspec

from tidegate.errors import ConfigurationError

MAX_REQUESTS = 2_000_000
"""Of a trace and of a plan: planned, each takes 240 bytes, so half a gigabyte in all, and four microseconds to make."""
MAX_BYTES = 536_870_912
"""2 million lines of the longest kind that the public traces have on average, 250 bytes."""
MAX_LINE_BYTES = 1_048_576
"""A prompt of 50 million tokens has as many block ids as fit."""
BLOCK_TOKENS = 512
_LATEST_S = 1e11  # a number above is a time in milliseconds, in a column that does not say so
MOST_TOKENS = 10_000_000
"""Of one request: longer than any model takes."""
COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "time": ("timestamp", "time", "time_s", "arrival_time", "arrived_at", "at_s", "timestamp_ms", "time_ms"),
    "input": ("contexttokens", "input", "input_tokens", "prompt_tokens", "input_length", "request tokens"),
    "output": ("generatedtokens", "output", "output_tokens", "completion_tokens", "output_length", "response tokens"),
}
"""What the columns may be called, in any case; the first that is there counts."""


class TraceRequest(msgspec.Struct, frozen=True, gc=False):
    """One request of a trace."""

    at_s: float
    prompt_tokens: int
    completion_tokens: int
    prefix: int | None = None
    prefix_tokens: int = 0


_Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)]


class _JsonLine(msgspec.Struct):
    timestamp: Annotated[float, msgspec.Meta(ge=0, le=1e15)]
    input_length: _Count
    output_length: _Count
    hash_ids: list[int] = []


def read_trace(path: Path) -> tuple[TraceRequest, ...]:
    """Read a whole trace, in order of time; `ConfigurationError` names the line that is at fault."""
    try:
        with path.open("rb") as file:
            if path.stat().st_size > MAX_BYTES:
                raise ConfigurationError(f"{path} has more than {MAX_BYTES:,} bytes; cut a part out of it, for example with `head -n`")
            lines = _lines(path, iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""))
            first = next(lines, None)
            if first is None:
                raise ConfigurationError(f"{path} is empty; give a CSV file with a heading, or JSON Lines")
            requests = _of_json(path, first, lines) if first[1].startswith("{") else _of_csv(path, first, lines)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}; give the path of a trace, CSV or JSON Lines") from error
    if not requests:
        raise ConfigurationError(f"{path} has a heading and no request; give a trace with requests")
    requests.sort(key=lambda request: request.at_s)
    origin = requests[0].at_s
    return tuple(msgspec.structs.replace(request, at_s=request.at_s - origin) for request in requests)


def _lines(path: Path, raw_lines: Iterator[bytes]) -> Iterator[tuple[int, str]]:
    """Give each line that is not blank, with its number; refuse what no trace has."""
    found = 0
    for number, raw in enumerate(raw_lines, start=1):
        if len(raw) > MAX_LINE_BYTES:
            raise _wrong(path, number, f"it has more than {MAX_LINE_BYTES:,} bytes", "is this the right file?")
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as error:
            raise _wrong(path, number, "it is not UTF-8", "give a text file, unpacked") from error
        if not text:
            continue
        found += 1
        if found > MAX_REQUESTS + 1:
            raise _wrong(path, number, f"here is request {MAX_REQUESTS + 1:,}, one too many", "cut a part out, for example with `head -n`")
        yield number, text


def _of_csv(path: Path, heading: tuple[int, str], lines: Iterator[tuple[int, str]]) -> list[TraceRequest]:
    names = [name.strip().lower() for name in _cells(path, *heading)]
    places: dict[str, int] = {}
    for column, known in COLUMNS.items():
        name = next((name for name in known if name in names), None)
        if name is None:
            raise _wrong(path, heading[0], f"the heading has no column for {column}", f"name one of them {', '.join(known)}")
        places[column] = names.index(name)
    unit_s = 0.001 if names[places["time"]].endswith("_ms") else 1.0
    requests: list[TraceRequest] = []
    for number, text in lines:
        row = _cells(path, number, text)
        if len(row) != len(names):
            raise _wrong(path, number, f"it has {len(row)} columns, the heading {len(names)}", "correct or remove the line")
        try:
            at_s = _instant(row[places["time"]].strip(), unit_s)
        except ValueError as error:
            raise _wrong(path, number, "its time is neither seconds nor a date", "write 12.5 or 2023-11-16 18:15:46.68") from error
        prompt_tokens, completion_tokens = (_count(path, number, row[places[column]]) for column in ("input", "output"))
        requests.append(TraceRequest(at_s, prompt_tokens, completion_tokens))
    return requests


def _cells(path: Path, number: int, text: str) -> list[str]:
    try:
        return next(csv.reader([text]))
    except csv.Error as error:
        raise _wrong(path, number, f"it is not CSV: {error}", "correct or remove the line") from error


def _instant(text: str, unit_s: float) -> float:
    try:
        value = float(text) * unit_s
    except ValueError:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    if not abs(value) < _LATEST_S:
        raise ValueError(text)
    return value


def _count(path: Path, number: int, text: str) -> int:
    try:
        value = int(text.strip()[:20])
    except ValueError:
        value = -1
    if not 0 <= value <= MOST_TOKENS:
        raise _wrong(path, number, f'"{text[:40]}" is not a number of tokens', f"write a whole number from 0 to {MOST_TOKENS:,}")
    return max(1, value)


def _of_json(path: Path, first: tuple[int, str], lines: Iterator[tuple[int, str]]) -> list[TraceRequest]:
    """Read all, then see which blocks more than one request has."""
    decode = msgspec.json.Decoder(_JsonLine).decode
    read: list[_JsonLine] = []
    for number, text in (first, *lines):
        try:
            read.append(decode(text))
        except (msgspec.DecodeError, RecursionError) as error:
            remedy = 'write {"timestamp": ms, "input_length": tokens, "output_length": tokens}'
            raise _wrong(path, number, f"it is not a request: {error}", remedy) from error
    having = Counter(block for line in read for block in enumerate(line.hash_ids))
    numbers: dict[tuple[int, int], int] = {}
    requests: list[TraceRequest] = []
    for line in read:
        shared = next((block for block in reversed(list(enumerate(line.hash_ids))) if having[block] > 1), None)
        prompt_tokens = max(1, line.input_length)
        at_s, completion_tokens = line.timestamp / 1000, max(1, line.output_length)
        if shared is None:
            requests.append(TraceRequest(at_s, prompt_tokens, completion_tokens))
            continue
        prefix_tokens = min((shared[0] + 1) * BLOCK_TOKENS, prompt_tokens)
        requests.append(TraceRequest(at_s, prompt_tokens, completion_tokens, numbers.setdefault(shared, len(numbers)), prefix_tokens))
    return requests


def _wrong(path: Path, number: int, problem: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(f"{path}, line {number}: {problem}; {remedy}")
