"""Follows record files as they grow and are rotated, and gives each whole line once and in order.

Files belong to chains: `requests-0.jsonl` is written, `requests-0.jsonl.1` was before it, and so on. What a file is called changes, so it
is known by what it is: its *source* is a hash of its first line, which no rename, copy or restart changes. Within a chain the oldest file
is read first, and only to the end once it is rotated does the next one begin.

Invariants: of each chain one file is open, so a file that was begun is read to its end even when it is deleted meanwhile, and no more disk
is held than that. What was deleted unread is counted in bytes. A line is given only with its newline.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from tidegate.adapters.analytics.positions import Position, Positions
from tidegate.adapters.records.files import read_deleted

READ_BYTES: Final = 1_048_576
"""Read at a time from one file: some thousand records."""
MAX_LINE_BYTES: Final = 16_777_216
"""Longer ones are given in pieces, which nobody can read as records: a file of something else must not fill the memory."""
MAX_FILES: Final = 20_000
"""Looked at in one directory: 256 workers with their rotated files, several times over. Others wait until some are gone."""
_STEADY_TRIES: Final = 5
_FIRST_BYTES: Final = 4_096  # holds most records
_NAME: Final = re.compile(r"(?P<chain>(?P<kind>[a-z]+)-\d+)\.jsonl(?:\.(?P<number>\d+))?")
_SOURCE_CHARS: Final = 24
_Inode = tuple[int, int]


class RecordLine(msgspec.Struct, frozen=True, gc=False):
    """One line, its newline included, and where it stood."""

    kind: str
    """How the file's name begins: `requests`."""
    source: str
    offset: int
    text: bytes

    @property
    def end(self) -> int:
        return self.offset + len(self.text)


class Followed(msgspec.Struct):
    """One file of a chain."""

    source: str
    chain: str
    size: int
    is_final: bool
    """It was rotated, so nothing is added any more."""
    offset: int = 0
    """Read up to here."""
    descriptor: int | None = None
    is_gone: bool = False
    """It has no name here any more."""

    @property
    def kind(self) -> str:
        return self.chain.partition("-")[0]

    @property
    def unread(self) -> int:
        return max(0, self.size - self.offset)


class Follower:
    """The record files of one directory. `positions` is what an earlier process wrote down. For one thread."""

    def __init__(self, directory: Path, *, kinds: Iterable[str], positions: Positions) -> None:
        self.directory = directory
        self._kinds = frozenset(kinds)
        self._positions = positions.sources
        self._deleted = dict(positions.deleted) if positions.sources else None
        """For each chain, the bytes of deleted files that are accounted for; None where there is nothing to go by yet."""
        self._has_looked = False
        self._chains: dict[str, list[Followed]] = {}
        """Oldest first."""
        self._known: dict[_Inode, Followed] = {}
        self._turn = 0
        self.lost_bytes = 0
        """Of files that were deleted before they were read."""

    def __repr__(self) -> str:
        return f"Follower({str(self.directory)!r}, files={len(self._known)}, backlog_bytes={self.backlog_bytes})"

    @property
    def backlog_bytes(self) -> int:
        return sum(file.unread for chain in self._chains.values() for file in chain)

    def positions(self) -> dict[str, Position]:
        """Say how far every file is read that is there, or still read; of a file and its copies, the one that is furthest behind."""
        positions = {} if self._has_looked else dict(self._positions)
        for file in (each for chain in self._chains.values() for each in chain):
            known = positions.get(file.source)
            if known is None or file.offset < known.offset:
                positions[file.source] = Position(file.offset, file.size, "" if file.is_gone else file.chain)
        return positions

    def deleted(self) -> dict[str, int]:
        """Say of how many deleted bytes of each chain it is known what became of them."""
        return dict(self._deleted or {})

    def look(self) -> None:
        """See which files there are and how large they are. `OSError` when the directory cannot be read."""
        present = self._steady_listing()
        if present is None:
            return  # renamed at every look: next time
        seen: dict[_Inode, Followed] = {}
        chains: dict[str, list[Followed]] = {}
        for place in sorted(present, key=lambda each: (each[0], -each[1])):
            chain, number, path = place
            status = present[place]
            inode = (status.st_dev, status.st_ino)
            file = self._known.get(inode)
            if file is None or file.descriptor is None:  # nothing but an open file keeps its number from being given to another
                source = _source(path, inode)
                if source is None:
                    return  # renamed since
                if file is None or file.source != source:
                    file = self._met(source, chain, status.st_size, among=seen) if source else None
            if file is None or inode in seen:
                continue
            file.is_final, file.size = number > 0, status.st_size
            file.offset = min(file.offset, file.size)  # a block that did not fit was taken back, and will be written again
            seen[inode] = file
            chains.setdefault(chain, []).append(file)
        self._forget_gone(seen, chains)
        self._known, self._chains = seen, chains
        if not self._has_looked:
            self._has_looked = True
            there = {file.source for file in seen.values()}
            for position in [each for source, each in self._positions.items() if source not in there]:
                self.lost_bytes += max(0, position.size - position.offset)
                self._account(position.chain, position.size)
        self._count_unseen()

    def read(self, *, max_lines: int, max_bytes: int) -> list[RecordLine]:
        """Take the next lines, about `max_bytes` at most; each chain in its turn. `OSError` when one cannot be read."""
        lines: list[RecordLine] = []
        room = max_bytes
        names = sorted(self._chains)
        for number in range(len(names)):
            chain = self._chains[names[(self._turn + number) % len(names)]]
            while room > 0 and len(lines) < max_lines and (file := self._next_of(chain)) is not None:
                try:
                    taken = self._lines_of(file, max_lines=max_lines - len(lines), max_bytes=room)
                except OSError:
                    if lines:
                        return lines  # the error will come again
                    raise
                if not taken:
                    break
                room -= sum(len(line.text) for line in taken)
                lines += taken
        self._turn += 1
        return lines

    def read_range(self, source: str, start: int, end: int) -> list[RecordLine]:
        """Take again what stood between two offsets of a source, and go on after it; nothing when it is not there any more."""
        file = next((each for chain in self._chains.values() for each in chain if each.source == source), None)
        if file is None or file.size < end:
            return []
        file.offset = start
        lines: list[RecordLine] = []
        while file.offset < end:
            taken = self._lines_of(file, max_lines=end - start, max_bytes=end - file.offset)
            if not taken:
                break
            lines += taken
        return lines

    def close(self) -> None:
        for chain in self._chains.values():
            for file in chain:
                _close(file)

    # ── looking ───────────────────────────────────────────────────────────────

    def _steady_listing(self) -> dict[tuple[str, int, str], os.stat_result] | None:
        """List until twice in a row the same files have the same names: between those, no file was overlooked because it was renamed."""
        before = self._listing()
        for _ in range(_STEADY_TRIES):
            listing = self._listing()
            if {place: status.st_ino for place, status in before.items()} == {place: status.st_ino for place, status in listing.items()}:
                return listing
            before = listing
        return None

    def _listing(self) -> dict[tuple[str, int, str], os.stat_result]:
        found: dict[tuple[str, int, str], os.stat_result] = {}
        try:
            entries = os.scandir(self.directory)
        except FileNotFoundError:
            return found  # the first record makes it
        with entries:
            for entry in entries:
                named = _NAME.fullmatch(entry.name)
                if named is None or named["kind"] not in self._kinds:
                    continue
                try:
                    status = Path(entry.path).stat()
                except FileNotFoundError:
                    continue
                if not stat.S_ISREG(status.st_mode):
                    continue  # whatever it is, no worker writes it, and it must not hold up the files beside it
                found[named["chain"], int(named["number"] or 0), entry.path] = status
                if len(found) >= MAX_FILES:
                    break
        return found

    def _met(self, source: str, chain: str, size: int, *, among: Mapping[_Inode, Followed]) -> Followed:
        """Take up a file that was not seen before: where an earlier process left off, if one did."""
        if any(source == file.source for file in (*self._known.values(), *among.values())):
            offset = size  # a copy says nothing of its own
        else:
            position = self._positions.get(source)
            offset = position.offset if position is not None else 0
        return Followed(source, chain, size, is_final=False, offset=offset)

    def _forget_gone(self, seen: Mapping[_Inode, Followed], chains: dict[str, list[Followed]]) -> None:
        """Keep the open file of a chain although its name is gone; of all others, what was not read is lost."""
        for name, chain in self._chains.items():
            for number, file in enumerate([each for each in chain if each not in seen.values()]):
                if file.is_gone:
                    if file.unread:
                        chains.setdefault(name, []).insert(number, file)
                    else:
                        _close(file)
                    continue
                if file.descriptor is not None:
                    file.size = os.fstat(file.descriptor).st_size  # it may have grown between the last look and its end
                self._account(name, file.size)
                if file.descriptor is not None and file.unread:
                    file.is_final = file.is_gone = True
                    chains.setdefault(name, []).insert(number, file)
                else:
                    self.lost_bytes += file.unread
                    _close(file)

    def _account(self, chain: str, size: int) -> None:
        if self._deleted is not None:
            self._deleted[chain] = self._deleted.get(chain, 0) + size

    def _count_unseen(self) -> None:
        """Count as lost what workers deleted that was never seen here, because nobody looked for long."""
        paths = [path for kind in self._kinds for path in self.directory.glob(f"{kind}-*.deleted")]
        counts = {path.stem: read_deleted(path) for path in paths}
        known = self._deleted
        if known is None:
            self._deleted = counts
            return
        for chain, deleted in counts.items():
            unseen = deleted - known.get(chain, 0)
            if unseen > 0:
                self.lost_bytes += unseen
                known[chain] = deleted

    # ── reading ───────────────────────────────────────────────────────────────

    def _next_of(self, chain: list[Followed]) -> Followed | None:
        """Give the oldest file of a chain that has, or may get, something to read."""
        for file in chain:
            if file.unread or not file.is_final:
                return file if file.unread else None
            _close(file)
        return None

    def _lines_of(self, file: Followed, *, max_lines: int, max_bytes: int) -> list[RecordLine]:
        block = self._block(file, min(READ_BYTES, max(max_bytes, 1)))
        if block is None:
            self.lost_bytes += file.unread
            file.offset = file.size
            return []
        lines: list[RecordLine] = []
        for text in _split(block):
            if len(lines) == max_lines:
                break
            lines.append(RecordLine(file.kind, file.source, file.offset, text))
            file.offset += len(text)
        return lines

    def _block(self, file: Followed, size: int) -> bytes | None:
        """Read whole lines; empty while the last one is being written, None when the file cannot be found any more."""
        if file.descriptor is None and not self._open(file):
            return None
        assert file.descriptor is not None
        while True:
            block = os.pread(file.descriptor, min(size, file.unread), file.offset)
            whole = block.rfind(b"\n") + 1
            if whole:
                return block[:whole]
            if len(block) >= MAX_LINE_BYTES or (file.is_final and len(block) == file.unread):
                return block  # no record: too long for one, or torn and never to be finished
            if len(block) < size:
                return b""
            size *= 2

    def _open(self, file: Followed) -> bool:
        """Open by any name that it has now: it may be renamed at any moment."""
        inode = next(key for key, each in self._known.items() if each is file)
        for _ in range(_STEADY_TRIES):
            for path in [place[2] for place, status in self._listing().items() if (status.st_dev, status.st_ino) == inode]:
                try:
                    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                except FileNotFoundError:
                    continue
                status = os.fstat(descriptor)
                if (status.st_dev, status.st_ino) == inode:
                    file.descriptor = descriptor
                    return True
                os.close(descriptor)
        return False


def _source(path: str, inode: _Inode) -> str | None:
    """Say what a file is; empty while it has no whole line, None when that name is another file's by now."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != inode:
            return None
        first = _first_line(descriptor)
    finally:
        os.close(descriptor)
    return hashlib.sha256(first).hexdigest()[:_SOURCE_CHARS] if first else ""


def _first_line(descriptor: int) -> bytes:
    """Give the first line; empty while there is no whole one. Of one that is too long, what is read."""
    size = _FIRST_BYTES
    while True:
        block = os.pread(descriptor, size, 0)
        end = block.find(b"\n") + 1
        if end:
            return block[:end]
        if len(block) < size:
            return b""
        if size >= MAX_LINE_BYTES:
            return block
        size *= 2


def _split(block: bytes) -> list[bytes]:
    """Split at line feeds, and at nothing else."""
    parts = block.split(b"\n")
    last = parts.pop()
    return [part + b"\n" for part in parts] + ([last] if last else [])


def _close(file: Followed) -> None:
    if file.descriptor is not None:
        os.close(file.descriptor)
        file.descriptor = None
