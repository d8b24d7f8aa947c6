"""The two files a worker's records go to: the rotated log, and the spill that stands in for it.

Both hold whole lines only. `append` writes its block entirely or, when it raises, leaves nothing of it behind; a partial last line left
by a crash is separated with a newline before anything is added. Nothing here logs or retries: `jsonl` decides when to write where.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

REPLAY_BYTES = 262_144
"""Copied at a time from the spill: a bound on memory, large against the cost of a system call."""

LOOK_EVERY_S = 0.1
"""So long at most are records written to a file that someone moved or removed: to look before each block costs as much as writing it."""

_OPEN_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_OWNER_ONLY = 0o600


class RotatingFile:
    """`path`, moved to `path.1`, `path.2` … when it is full; `keep_files` of those are kept."""

    def __init__(self, path: Path, *, max_bytes: int, keep_files: int, look_every_s: float = LOOK_EVERY_S) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._keep_files = keep_files
        self._look_every_s = look_every_s
        self._descriptor: int | None = None
        self._size = 0
        """Of the file when it was looked at, and what was written since."""
        self._look_at = 0.0

    def append(self, block: bytes, *, rotate: bool = True) -> None:
        """Add whole lines; OSError when they cannot be written."""
        descriptor = self._current()
        if rotate and not self._has_room(block):
            self._look_at = 0.0  # what is to be rotated must still be there, and as large
            descriptor = self._current()
            if not self._has_room(block):
                self._rotate()
                descriptor = self._current()
        try:
            _write_all(descriptor, block)
        except OSError:
            self.close()
            raise
        self._size += len(block)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _has_room(self, block: bytes) -> bool:
        return not self._size or self._size + len(block) <= self._max_bytes

    def _current(self) -> int:
        """Give a descriptor of the file that `path` names, or named a moment ago: an operator may have moved or removed it."""
        now = time.monotonic()
        if self._descriptor is not None:
            if now < self._look_at:
                return self._descriptor
            self._look_at = now + self._look_every_s
            opened = os.fstat(self._descriptor)
            self._size = opened.st_size
            try:
                named = self.path.stat()
            except OSError:
                named = None
            if named is not None and (named.st_ino, named.st_dev) == (opened.st_ino, opened.st_dev):
                return self._descriptor
            self.close()
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self.path, _OPEN_FLAGS & ~os.O_NOFOLLOW, _OWNER_ONLY)
        try:
            _start_on_fresh_line(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size
        self._look_at = now + self._look_every_s
        return descriptor

    def _rotate(self) -> None:
        """Shift the numbers up, oldest first, so that a crash in between overwrites nothing."""
        self.close()
        oldest = self._numbered(self._keep_files)
        if oldest.exists():
            size = oldest.stat().st_size
            oldest.unlink()
            self._count_deleted(size)
        for number in range(self._keep_files - 1, 0, -1):
            source = self._numbered(number)
            if source.exists():
                source.rename(self._numbered(number + 1))
        self.path.rename(self._numbered(1))

    def _count_deleted(self, size: int) -> None:
        """Add to the count beside the log, so that a reader who was away can tell how much it missed."""
        path = deleted_count(self.path)
        try:
            before = read_deleted(path)
            path.write_text(f"{before + size:020d}")  # always as long, so that a full disk has room for it
        except OSError:
            return  # the count is for people; the log goes on

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def deleted_count(log: Path) -> Path:
    """Name the file that has the number of bytes deleted of a rotated log since it was begun."""
    return log.with_suffix(".deleted")


def read_deleted(path: Path) -> int:
    """Read that number; 0 where nothing was deleted yet."""
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        return 0


class SpillFile:
    """Lines waiting until the log can be written again, in order. Bounded; private to this user.

    A spill left by a process that was killed is taken over: what of it had already reached the log is recognised by comparing both files,
    so that nothing is written twice.
    """

    def __init__(self, path: Path, *, max_bytes: int) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._descriptor: int | None = None
        self._size = 0
        self._offset = 0
        """Bytes of the front that are in the log already."""

    @property
    def pending_bytes(self) -> int:
        return self._size - self._offset

    def adopt(self, log: Path) -> None:
        """Take over what an earlier process left; call once, before anything is written to `log`."""
        if self.path.is_symlink() or not self.path.exists():
            return
        descriptor = self._open()
        self._size = _cut_partial_line(descriptor)
        if self._size:
            self._offset = _replayed_bytes(descriptor, self._size, log)
        if self.pending_bytes == 0:
            self._clear()

    def append(self, block: bytes) -> bool:
        """Add whole lines; False when the spill is full, OSError when it cannot be written."""
        if self._size + len(block) > self._max_bytes:
            return False
        descriptor = self._open()
        _write_all(descriptor, block)
        self._size += len(block)
        return True

    def replay(self, log: RotatingFile) -> None:
        """Move everything to the log; OSError when the log fails again, and then what was moved is not moved twice."""
        descriptor = self._open()
        while self.pending_bytes:
            block = os.pread(descriptor, REPLAY_BYTES, self._offset)
            end = block.rfind(b"\n") + 1
            if end == 0:  # a single line longer than REPLAY_BYTES
                block = os.pread(descriptor, self.pending_bytes, self._offset)
                end = block.find(b"\n") + 1 or len(block)
            log.append(block[:end], rotate=False)  # the log's tail must stay comparable with this file until it is empty
            self._offset += end
        self._clear()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _clear(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)
        self._size = self._offset = 0

    def _open(self) -> int:
        if self._descriptor is None:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self.path, _OPEN_FLAGS, _OWNER_ONLY)
            if os.fstat(descriptor).st_uid != os.geteuid():
                os.close(descriptor)
                raise PermissionError(f"{self.path} belongs to another user")
            self._descriptor = descriptor
        return self._descriptor


def _write_all(descriptor: int, block: bytes) -> None:
    written = os.write(descriptor, block)
    try:
        while written < len(block):
            written += os.write(descriptor, block[written:])
    except OSError:
        _cut_off(descriptor, written)
        raise


def _cut_off(descriptor: int, written: int) -> None:
    """Take back the first part of a block whose rest found no room."""
    try:
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
    except OSError:
        return  # not a plain file; the caller's own error is the one to report


def _start_on_fresh_line(descriptor: int) -> None:
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        _write_all(descriptor, b"\n")


def _cut_partial_line(descriptor: int) -> int:
    """Remove what follows the last newline; give the size left."""
    size = os.fstat(descriptor).st_size
    if not size:
        return 0
    with mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as content:
        whole = content.rfind(b"\n") + 1
    if whole != size:
        os.ftruncate(descriptor, whole)
    return whole


def _replayed_bytes(descriptor: int, size: int, log: Path) -> int:
    """Tell how many leading bytes of the spill end the log already; a partial line there is cut off, to be written again whole."""
    try:
        log_descriptor = os.open(log, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        log_size = os.fstat(log_descriptor).st_size
        if not log_size:
            return 0
        with (
            mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as spill,
            mmap.mmap(log_descriptor, log_size, access=mmap.ACCESS_READ) as content,
        ):
            first_line = spill[: spill.find(b"\n") + 1]
            whole = content.rfind(b"\n") + 1
            start = content.rfind(first_line, max(0, log_size - size))
            if start < 0:
                start = whole  # perhaps the crash came inside the first line
            if not _same(content, start, spill, log_size - start):
                return 0
        if whole != log_size:
            os.ftruncate(log_descriptor, whole)
        return whole - start
    finally:
        os.close(log_descriptor)


def _same(content: mmap.mmap, start: int, spill: mmap.mmap, length: int) -> bool:
    return all(
        content[start + at : start + min(at + REPLAY_BYTES, length)] == spill[at : min(at + REPLAY_BYTES, length)]
        for at in range(0, length, REPLAY_BYTES)
    )
