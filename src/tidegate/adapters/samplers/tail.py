"""What others append to a file or write into a pipe, from now on."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

MAX_READ_BYTES: Final = 1_048_576
"""At once. What such a file gets in a second is far less."""


class Tail:
    """Reads on in a file. `OSError` while there is none; one that is replaced or begun anew is read from its start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._met_before = False
        self.began_anew = False
        """What the last `read` gave begins a file."""

    def __repr__(self) -> str:
        return f"Tail({str(self._path)!r})"

    def read(self) -> bytes:
        """Give what came since the last time; what a file had when it was met first is passed over."""
        self.began_anew = False
        try:
            met = self._path.stat()
        except FileNotFoundError:
            self._met_before = True  # whatever is made here later is new
            raise
        if self._file is not None:
            ours = os.fstat(self._file)
            if (met.st_dev, met.st_ino) != (ours.st_dev, ours.st_ino):
                self.close()
        if self._file is None:
            self._open()
        assert self._file is not None
        if stat.S_ISREG(met.st_mode) and met.st_size < os.lseek(self._file, 0, os.SEEK_CUR):
            os.lseek(self._file, 0, os.SEEK_SET)
            self.began_anew = True
        try:
            return os.read(self._file, MAX_READ_BYTES)
        except BlockingIOError:
            return b""  # a pipe that has nothing at the moment

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if self._met_before:
            self.began_anew = True
        elif stat.S_ISREG(os.fstat(self._file).st_mode):
            os.lseek(self._file, 0, os.SEEK_END)
        self._met_before = True
