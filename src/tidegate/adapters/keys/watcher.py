"""Carries every change of the key database to this process within a second.

A thread asks for the store's version a few times a second and hands each fresh snapshot to the event loop. Invariants: the callback runs on
the loop's thread only, never after `close()`; a database that is missing, locked or damaged leaves the last snapshot standing;
each change between working and not working is logged once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from tidegate.adapters.keys.snapshot import KeySnapshot
from tidegate.adapters.keys.store import KeyStore
from tidegate.errors import ConfigurationError

_LOG = logging.getLogger(__name__)
_LOCK_WAIT_S: Final = 0.5  # a reader in WAL mode hardly ever waits; longer would delay the next poll and `close`
_JOIN_DEADLINE_S: Final = 5.0


class WatcherStatistics(msgspec.Struct, frozen=True):
    polls: int
    snapshots: int
    """Snapshots handed to the loop."""
    version: int | None
    """Of the last one; None before the first."""
    trouble: str | None
    """Why the database cannot be read at this moment; None when it can."""


class KeyWatcher:
    """Watch `path` for `on_snapshot`. Begins with `start()`: the first snapshot comes as soon as the database can be read."""

    def __init__(
        self, path: Path, *, loop: asyncio.AbstractEventLoop, on_snapshot: Callable[[KeySnapshot], None], interval_s: float = 0.25
    ) -> None:
        self._path = path
        self._loop = loop
        self._on_snapshot = on_snapshot
        self._interval_s = interval_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tidegate-key-watcher", daemon=True)
        self._store: KeyStore | None = None
        self._file: tuple[int, int] | None = None
        self._statistics = WatcherStatistics(polls=0, snapshots=0, version=None, trouble=None)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and wait for it; safe to repeat, safe before `start()`."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_DEADLINE_S)

    def statistics(self) -> WatcherStatistics:
        return self._statistics

    def _watch(self) -> None:
        try:
            while not self._closing.is_set():
                try:
                    self._poll()
                except Exception as error:  # noqa: BLE001  the thread's outermost frame: if it ended, revoked keys would go on working
                    self._note_trouble(f"The key watcher failed unexpectedly ({error!r}); report this with the log.")
                self._closing.wait(self._interval_s)
        finally:
            self._close_store()

    def _poll(self) -> None:
        before = self._statistics
        try:
            fresh = self._read_if_changed()
        except ConfigurationError as error:
            self._note_trouble(error.message)
            return
        if before.trouble is not None:
            _LOG.warning("key_database.became_readable: %s", self._path)
        delivered = fresh is not None and self._hand_over(fresh)
        self._statistics = WatcherStatistics(
            polls=before.polls + 1,
            snapshots=before.snapshots + delivered,
            version=fresh.version if fresh is not None else before.version,
            trouble=None,
        )

    def _note_trouble(self, trouble: str) -> None:
        before = self._statistics
        self._close_store()  # the next poll opens the file afresh
        self._statistics = msgspec.structs.replace(before, polls=before.polls + 1, trouble=trouble)
        if before.trouble != trouble:
            _LOG.warning("key_database.became_unreadable: %s The keys known until now stay in force.", trouble)

    def _read_if_changed(self) -> KeySnapshot | None:
        file = self._identify_file()
        if self._store is not None and file != self._file:  # deleted, or another file put in its place
            self._close_store()
        if self._store is None:
            self._store = KeyStore(self._path, create_file=False, busy_timeout_s=_LOCK_WAIT_S)
            self._file = file
            return self._store.snapshot()
        if self._store.version() != self._statistics.version:
            return self._store.snapshot()
        return None

    def _identify_file(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _hand_over(self, fresh: KeySnapshot) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._deliver, fresh)
        except RuntimeError:  # the loop is closed: nobody is left to tell
            self._closing.set()
            return False
        return True

    def _deliver(self, fresh: KeySnapshot) -> None:
        if not self._closing.is_set():
            self._on_snapshot(fresh)

    def _close_store(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None
