"""How far record files were read, kept in one small file that is written whole or not at all.

Without the file everything is read anew, and what the store has already is found there and left out. So losing it costs time and no row.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Annotated, Final

import msgspec

FILE: Final = "positions.json"
_OWNER_ONLY: Final = 0o600
Place = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""In a file, in bytes."""


class Range(msgspec.Struct, frozen=True):
    """A piece of a source, in bytes."""

    source: str
    start: Place
    end: Place


class Position(msgspec.Struct, frozen=True):
    offset: Place
    size: Place
    """Of the file when this was written: if it is deleted meanwhile, that much of it is lost."""
    chain: str = ""
    """The file's name without its number: `requests-0`; empty where it has none any more, and is accounted for."""


class Positions(msgspec.Struct, frozen=True):
    sources: dict[str, Position] = {}
    """What is before these offsets is in the store."""
    intended: tuple[Range, ...] = ()
    """The batch that was being put in when this was written: it is put in as the same one again."""
    deleted: dict[str, int] = {}
    """For each chain, the bytes of deleted files that are accounted for: were read, or counted as lost."""
    lost_bytes: int = 0
    """Since there are records here."""


_decode = msgspec.json.Decoder(Positions).decode


class PositionFile:
    """`positions.json` in a directory. For one thread."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE

    def __repr__(self) -> str:
        return f"PositionFile({str(self._path)!r})"

    def read(self) -> Positions:
        """Give what was written last; nothing when there is none, or it is damaged. `OSError` when it cannot be read."""
        try:
            return _decode(self._path.read_bytes())
        except FileNotFoundError:
            return Positions()
        except (msgspec.MsgspecError, RecursionError):
            return Positions()

    def write(self, positions: Positions) -> None:
        """Replace it, for good: what it says survives a loss of power. `OSError` when that fails, and then the old one stands."""
        draft = self._path.with_suffix(".draft")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _OWNER_ONLY)
        try:
            content = memoryview(msgspec.json.encode(positions))
            while content:
                content = content[os.write(descriptor, content) :]
            os.fsync(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise
        finally:
            os.close(descriptor)
        draft.replace(self._path)
