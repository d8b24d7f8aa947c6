"""Where an issuer's public keys come from: a file, re-read when it changes, or a URL, fetched when needed and kept.

Invariants of the URL: at most one fetch at a time and one per `RETRY_S`, however many tokens with unknown key names arrive (a stranger can
invent those); a fetch that fails leaves the old keys in force, those from before a reload too; trouble is logged once when it begins and
once when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Protocol

from tidegate.adapters.jwt.key_set import MAX_DOCUMENT_BYTES, KeySet, parse_key_set
from tidegate.errors import ConfigurationError, TidegateError

_LOG = logging.getLogger(__name__)

RETRY_S: Final = 30.0
REFRESH_S: Final = 3600.0
FETCH_DEADLINE_S: Final = 5.0
FILE_CHECK_S: Final = 1.0

Fetch = Callable[[str], Awaitable[bytes]]
"""Gets a document by address. Failures are `TidegateError`, `OSError` or `TimeoutError`; reads no more than a bounded number of bytes."""


class KeySource(Protocol):
    """The keys of one issuer. `now` is the caller's monotonic clock, in seconds."""

    def keys(self, *, now: float) -> KeySet:
        """Give the keys known now, without waiting."""

    def can_refresh(self, *, now: float) -> bool:
        """Tell whether `refresh` may bring keys that `keys` does not have."""

    async def refresh(self, *, now: float) -> None:
        """Fetch the keys again, or join a fetch under way; never raises for a source that fails."""

    async def close(self) -> None: ...

    def go_on_from(self, earlier: KeySource) -> None:
        """Begin with the keys of an earlier source of the same place: they stay in force until this one has fetched its own."""


class Trouble:
    """Remembers whether a source works, and logs only the changes."""

    __slots__ = ("_source", "current")

    def __init__(self, source: str) -> None:
        self._source = source
        self.current: str | None = None

    def began(self, trouble: str) -> None:
        if trouble != self.current:
            _LOG.warning("key_set.became_unavailable: %s: %s The keys known until now stay in force.", self._source, trouble)
        self.current = trouble

    def ended(self) -> None:
        if self.current is not None:
            _LOG.warning("key_set.became_available: %s", self._source)
        self.current = None


class JwksFile:
    """Keys in a local file. It is looked at once a second at most, when a token needs it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys = KeySet()
        self._looked_at: float | None = None
        self._seen: tuple[int, int, int] | None = None
        self._trouble = Trouble(str(path))

    def keys(self, *, now: float) -> KeySet:
        if self._looked_at is None or now - self._looked_at >= FILE_CHECK_S:
            self._looked_at = now
            self._read_if_changed()
        return self._keys

    def can_refresh(self, *, now: float) -> bool:  # noqa: ARG002  `keys` is always up to date
        return False

    async def refresh(self, *, now: float) -> None: ...

    async def close(self) -> None: ...

    def go_on_from(self, earlier: KeySource) -> None:
        if isinstance(earlier, JwksFile):
            self._keys, self._seen, self._trouble = earlier._keys, earlier._seen, earlier._trouble  # noqa: SLF001  the same class

    def _read_if_changed(self) -> None:
        try:
            found = self._path.stat()
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            if seen == self._seen:
                return
            with self._path.open("rb") as file:
                document = file.read(MAX_DOCUMENT_BYTES + 1)
            self._keys = parse_key_set(document, source=str(self._path))
        except OSError as error:
            self._trouble.began(f"it cannot be read ({error.strerror}); check the path and its permissions.")
            self._seen = None
        except ConfigurationError as error:  # perhaps half written: looked at again in a second
            self._trouble.began(error.message)
            self._seen = None
        else:
            self._seen = seen
            self._trouble.ended()


class JwksUrl:
    """Keys at a URL. All calls come from one event loop's thread."""

    def __init__(self, url: str, *, fetch: Fetch) -> None:
        self._url = url
        self._fetch = fetch
        self._keys = KeySet()
        self._attempted_at: float | None = None
        self._loaded_at: float | None = None
        self._flight: asyncio.Task[None] | None = None
        self._trouble = Trouble(url)

    def keys(self, *, now: float) -> KeySet:
        """Give the keys at hand; once they are an hour old, using them starts a fetch in the background."""
        if self._loaded_at is not None and now - self._loaded_at >= REFRESH_S and self._flight is None and self.can_refresh(now=now):
            self._begin(now)
        return self._keys

    def can_refresh(self, *, now: float) -> bool:
        return self._flight is not None or self._attempted_at is None or now - self._attempted_at >= RETRY_S

    async def refresh(self, *, now: float) -> None:
        if not self.can_refresh(now=now):
            return
        flight = self._flight if self._flight is not None else self._begin(now)
        await asyncio.shield(flight)  # a client that leaves must not take the fetch of the others with it

    async def close(self) -> None:
        flight = self._flight
        if flight is not None:
            flight.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await flight

    def go_on_from(self, earlier: KeySource) -> None:
        """The first fetch of this one need not wait: what was tried by the earlier one is not counted."""
        if isinstance(earlier, JwksUrl):
            self._keys, self._loaded_at, self._trouble = earlier._keys, earlier._loaded_at, earlier._trouble  # noqa: SLF001  as above

    def _begin(self, now: float) -> asyncio.Task[None]:
        self._attempted_at = now
        self._flight = asyncio.get_running_loop().create_task(self._load(now), name="tidegate-jwks-fetch")
        self._flight.add_done_callback(self._flight_ended)
        return self._flight

    def _flight_ended(self, flight: asyncio.Task[None]) -> None:
        self._flight = None
        if not flight.cancelled() and (error := flight.exception()) is not None:
            _LOG.error("key_set.fetch_failed_unexpectedly: %s", self._url, exc_info=error)

    async def _load(self, now: float) -> None:
        try:
            async with asyncio.timeout(FETCH_DEADLINE_S):
                document = await self._fetch(self._url)
            self._keys = parse_key_set(document, source=self._url)
        except TimeoutError:
            self._trouble.began(f"no answer within {FETCH_DEADLINE_S:g} s; check that this machine reaches it.")
        except OSError as error:
            self._trouble.began(f"it cannot be reached ({error}); check that this machine reaches it.")
        except TidegateError as error:
            self._trouble.began(f"{error.message.rstrip('.')}.")
        else:
            self._loaded_at = now
            self._trouble.ended()
