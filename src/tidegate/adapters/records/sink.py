"""Writes log lines to a descriptor without ever waiting for its reader.

A line that the reader (a terminal, a pipe to a collector) does not take at once is counted as dropped: the log is a convenience, the
record file is the truth. Lines go out in pieces of at most `PIPE_BUF` bytes, which the kernel writes whole, so processes sharing the
descriptor do not mix lines.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterable

PIECE_BYTES = 4096
"""`PIPE_BUF` on Linux: written whole or not at all; a pipe that polls writable has room for this much."""


class LogSink:
    """One descriptor. Used by one thread at a time; does not close it."""

    def __init__(self, descriptor: int = 2) -> None:
        self._descriptor = descriptor
        self._room = select.poll()
        self._room.register(descriptor, select.POLLOUT)
        self.dropped_lines = 0

    def write(self, lines: Iterable[str]) -> None:
        """Write lines, each with its newline."""
        piece: list[bytes] = []
        size = 0
        for line in lines:
            encoded = line.encode("utf-8", "backslashreplace")
            if piece and size + len(encoded) > PIECE_BYTES:
                self._write_piece(piece)
                piece, size = [], 0
            piece.append(encoded)
            size += len(encoded)
        if piece:
            self._write_piece(piece)

    def _write_piece(self, piece: list[bytes]) -> None:
        try:
            if self._room.poll(0):
                os.write(self._descriptor, b"".join(piece))
                return
        except OSError:
            pass  # the reader is gone; counted below like one that is slow
        self.dropped_lines += len(piece)
