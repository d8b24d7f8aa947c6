"""Triton's trace files: one that grows, or (`log-frequency`) numbered ones, `NAME.0`, `NAME.1` and so on, each written at once."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidegate.adapters.samplers.tail import Tail
from tidegate.analytics.samples import Sample
from tidegate.analytics.triton_trace import TritonTrace

MAX_FILE_BYTES: Final = 16_777_216
"""Read of a numbered file."""


class TritonFiles:
    """Reads what comes after it was made."""

    def __init__(self, path: Path, *, replica: str) -> None:
        self._path = path
        self._tail = Tail(path)
        self._trace = TritonTrace(replica=replica)
        self._numbered: int | None = None
        """The last numbered file that is read, or was there before; -1 when there was none."""

    def __repr__(self) -> str:
        return f"TritonFiles({str(self._path)!r})"

    def read(self) -> list[Sample]:
        """Give figures of the requests that were written since the last time; `OSError` while there is no file."""
        if self._numbered is None:
            self._numbered = self._newest()
        try:
            piece, is_beginning = self._tail.read(), self._tail.began_anew
        except FileNotFoundError:
            numbered = self._next_numbered()
            if numbered is None:
                raise
            piece, is_beginning = numbered, True
        if is_beginning:
            self._trace.begin_anew()
        return self._trace.feed(piece)

    def close(self) -> None:
        self._tail.close()

    def _newest(self) -> int:
        prefix = f"{self._path.name}."
        found = (each.name.removeprefix(prefix) for each in self._path.parent.glob(f"{prefix}*") if each.name.startswith(prefix))
        return max((int(number) for number in found if number.isdecimal()), default=-1)

    def _next_numbered(self) -> bytes | None:
        """Give the next one if it is there and whole; nothing while there is none yet; None when there never was one."""
        assert self._numbered is not None
        try:
            with self._path.with_name(f"{self._path.name}.{self._numbered + 1}").open("rb") as file:
                piece = file.read(MAX_FILE_BYTES)
        except FileNotFoundError:
            return b"" if self._numbered >= 0 else None
        if not piece.rstrip().endswith(b"]") and len(piece) < MAX_FILE_BYTES:
            return b""
        self._numbered += 1
        return piece
