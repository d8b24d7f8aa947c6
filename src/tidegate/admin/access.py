"""Who may use the admin API: holders of an API key made with `--admin`, by the key itself or by a session of the console.

Everyone else gets the same 401, or a 403 for a good key without that right. Invariants: a key that was revoked, rotated or has expired
stops at once, and its sessions with it; a session changes nothing without the token that only the console's own pages have; a key made
with `--read-only` changes nothing at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.requests import Request

from tidegate.adapters.keys.snapshot import KeySnapshot
from tidegate.adapters.keys.store import KeyStore
from tidegate.admin.sessions import COOKIE, CSRF_HEADER, Session, Sessions, fingerprint_of
from tidegate.domain.principal import Principal
from tidegate.errors import Forbidden, Unauthenticated

_SCHEME = "bearer "
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_WANTED = (
    "The admin API needs a valid admin key: send `Authorization: Bearer <key>`. "
    "Make one on the gateway's machine with `tidegate keys create --admin`."
)


class Door:
    """Lets administrators in. `sessions` None: there is no console. `wall_clock` gives seconds since the epoch."""

    def __init__(self, store: KeyStore, *, wall_clock: Callable[[], float], sessions: Sessions | None = None) -> None:
        self._store = store
        self._wall_clock = wall_clock
        self._sessions = sessions
        self._keys: KeySnapshot | None = None

    async def admit(self, request: Request, *, changes: bool = False) -> Principal:
        """Give the caller; `Unauthenticated` or `Forbidden` otherwise. `changes`: it is asked for more than a look."""
        authorization = request.headers.get("authorization", "")
        if authorization[: len(_SCHEME)].lower() == _SCHEME:
            caller = await self.administrator(authorization[len(_SCHEME) :].strip())
        else:
            session = await self.session(request.cookies.get(COOKIE, ""))
            if session is None:
                raise Unauthenticated(_WANTED)
            if request.method not in _SAFE_METHODS and not session.is_sent_with(request.headers.get(CSRF_HEADER, "")):
                raise Forbidden(f"A change by session needs the page's own token in `{CSRF_HEADER}`. Load the page again.")
            caller = session.principal
        if changes and caller.read_only:
            raise Forbidden(f"Key {caller.key_id} may look, and change nothing. Use an admin key made without `--read-only`.")
        return caller

    async def administrator(self, token: str) -> Principal:
        """Give whose admin key this is."""
        keys = await self._current_keys()
        match = keys.match(token, wall_now=self._wall_clock()) if token else None
        if match is None:
            raise Unauthenticated(_WANTED)
        if not match.principal.admin:
            raise Forbidden(f"Key {match.principal.key_id} is not an admin key. Make one with `tidegate keys create --admin`.")
        return match.principal

    async def begin_session(self, token: str) -> str:
        """Give the value of the cookie for whoever holds this admin key."""
        assert self._sessions is not None, "only the console begins sessions"
        caller = await self.administrator(token)
        entry = (await self._current_keys())[caller.key_id]
        return self._sessions.begin(caller.key_id, fingerprint_of(entry), now=self._wall_clock())

    async def session(self, cookie: str) -> Session | None:
        """Give the session of a cookie; None when it has ended or never was one."""
        if self._sessions is None or not cookie:
            return None
        return self._sessions.read(cookie, await self._current_keys(), now=self._wall_clock())

    async def _current_keys(self) -> KeySnapshot:
        """Read the keys anew where they changed. In a thread: it waits for the disk and for locks."""
        self._keys = await asyncio.to_thread(_read, self._store, self._keys)
        return self._keys


def _read(store: KeyStore, known: KeySnapshot | None) -> KeySnapshot:
    return known if known is not None and known.version == store.version() else store.snapshot()
