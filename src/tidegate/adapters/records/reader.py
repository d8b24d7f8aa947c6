"""Reads request records back, for reports: every worker's file and the rotated ones beside it, in no particular order.

Files are opened before any is read, and one that was reached under two names (a worker may rotate meanwhile) is read once. A line that is
no record (the last one may be half written) is counted, not fatal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from io import BufferedReader
from pathlib import Path

import msgspec

from tidegate.domain.record import RequestRecord

_PATTERN = "requests-*.jsonl*"
_DECODER = msgspec.json.Decoder(RequestRecord)


class RecordReader:
    """The records of one directory. `unreadable` counts the lines that were passed over so far."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.unreadable = 0

    def __repr__(self) -> str:
        return f"RecordReader({str(self.directory)!r}, unreadable={self.unreadable})"

    def records(self, *, since: float, until: float) -> Iterator[RequestRecord]:
        """Give the records of requests that ended in a span of seconds since the epoch, `until` not included."""
        with ExitStack() as stack:
            files: dict[tuple[int, int], BufferedReader] = {}
            for path in sorted(self.directory.glob(_PATTERN)):
                try:
                    file = stack.enter_context(path.open("rb"))
                except FileNotFoundError:
                    continue  # rotated away since it was listed
                status = os.fstat(file.fileno())
                if status.st_mtime >= since:  # a record is written after its request ended
                    files[status.st_dev, status.st_ino] = file
            for file in files.values():
                yield from self._read(file, since, until)

    def _read(self, file: BufferedReader, since: float, until: float) -> Iterator[RequestRecord]:
        for line in file:
            try:
                record = _DECODER.decode(line)
            except (msgspec.DecodeError, RecursionError):
                self.unreadable += bool(line.strip())
                continue
            if since <= record.started_at + record.duration_s < until:
                yield record
