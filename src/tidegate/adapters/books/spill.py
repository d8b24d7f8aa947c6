"""The file in which a worker's entries wait while the books cannot be reached: payloads one after another, each behind its length.

Written and read by one thread. A payload is taken off only after the books have acknowledged it, and one that was acknowledged may come
again after a crash, which the books do not mind. What a crash left of a half-written payload is cut off.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

MAX_SPILL_BYTES: Final = 1_073_741_824
"""Some 5,000,000 entries: an hour of a busy worker. What it cannot take any more waits in memory, and is counted when that is full too."""
READ_BYTES: Final = 262_144
"""Taken back at a time."""
_LENGTH_BYTES: Final = 4
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_OWNER_ONLY: Final = 0o600


class EntrySpillFile:
    """`pending_bytes` may be read from any thread."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_SPILL_BYTES) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._descriptor: int | None = None
        self._size = 0
        self._offset = 0
        """Before it, everything was acknowledged."""

    def __repr__(self) -> str:
        return f"EntrySpillFile({self.path}, pending_bytes={self.pending_bytes})"

    @property
    def pending_bytes(self) -> int:
        return self._size - self._offset

    def adopt(self, orphans: Sequence[Path] = ()) -> None:
        """Take up what an earlier process left here, and in the files of workers that are no more. OSError when that cannot be done."""
        if self.path.exists():
            self._size = _cut_partial(self._open())
        for orphan in orphans:
            left = EntrySpillFile(orphan, max_bytes=self._max_bytes)
            left.adopt()
            while payloads := left.peek():
                self.append(payloads)
                left.forget(payloads)
            left.close()
            orphan.unlink(missing_ok=True)

    def append(self, payloads: Sequence[bytes]) -> None:
        """Add all of them or, with an OSError, none."""
        block = b"".join([len(payload).to_bytes(_LENGTH_BYTES, "big") + payload for payload in payloads])
        if self._size + len(block) > self._max_bytes:
            raise OSError(f"it is full ({self._max_bytes} bytes)")
        descriptor = self._open()
        view, written = memoryview(block), 0
        try:
            while written < len(block):
                written += os.write(descriptor, view[written:])
        except OSError:
            os.ftruncate(descriptor, self._size)
            raise
        self._size += len(block)

    def peek(self) -> list[bytes]:
        """Give the oldest payloads, without taking them off; none when there are none."""
        payloads: list[bytes] = []
        at = self._offset
        while at < self._size and at - self._offset < READ_BYTES:
            start = at + _LENGTH_BYTES
            length = int.from_bytes(os.pread(self._open(), _LENGTH_BYTES, at), "big")
            payloads.append(os.pread(self._open(), length, start))
            at = start + length
        return payloads

    def forget(self, payloads: Sequence[bytes]) -> None:
        """Take off what `peek` gave; an empty file is removed."""
        self._offset += sum(_LENGTH_BYTES + len(payload) for payload in payloads)
        if self._offset >= self._size:
            self.close()
            self.path.unlink(missing_ok=True)
            self._size = self._offset = 0

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        if self._descriptor is None:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._descriptor = os.open(self.path, _FLAGS, _OWNER_ONLY)
        return self._descriptor


def _cut_partial(descriptor: int) -> int:
    """Cut off what does not make a whole payload; give the size left."""
    size, at = os.fstat(descriptor).st_size, 0
    while at + _LENGTH_BYTES <= size:
        length = int.from_bytes(os.pread(descriptor, _LENGTH_BYTES, at), "big")
        if not length or at + _LENGTH_BYTES + length > size:
            break
        at += _LENGTH_BYTES + length
    if at != size:
        os.ftruncate(descriptor, at)
    return at
