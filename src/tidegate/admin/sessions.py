"""Sessions of the console: a signed cookie instead of the admin key, so that no page and no address ever holds a secret.

Nothing is kept on the server but the secret that signs. A cookie says whose session it is and when it began; whether it still counts is
asked of the keys at every request: it ends after twelve hours, and with its key (revoked, expired or given another token).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections import OrderedDict
from pathlib import Path
from typing import Final

import msgspec
from itsdangerous import BadData, URLSafeSerializer

from tidegate.adapters.keys.snapshot import KeyEntry, KeySnapshot
from tidegate.domain.principal import Principal
from tidegate.domain.units import KeyId
from tidegate.errors import ConfigurationError

COOKIE: Final = "tidegate_session"
CSRF_HEADER: Final = "x-tidegate-csrf"
SESSION_S: Final = 43_200
"""Twelve hours: a working day, so that a machine left open is not open tomorrow."""
SECRET_FILE: Final = "console-secret"  # noqa: S105  a name
_SECRET_BYTES: Final = 32
_OWNER_ONLY: Final = 0o600
_MOST_COOKIE: Final = 1024
FAILURES: Final = 5
FAILURES_OF_ALL: Final = 60
FAILURE_SPAN_S: Final = 60.0
_MOST_ADDRESSES: Final = 1024


class Session(msgspec.Struct, frozen=True):
    """A session that counts now."""

    principal: Principal
    csrf: str
    ends_at: float

    def is_sent_with(self, token: str) -> bool:
        """Tell whether a request has the token that the session's pages were given."""
        return hmac.compare_digest(self.csrf.encode(), token.encode())


class Sessions:
    """Makes and reads cookies. Instants are seconds since the epoch."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._serializer = URLSafeSerializer(
            secret, salt="tidegate.console.session", signer_kwargs={"key_derivation": "hmac", "digest_method": hashlib.sha256}
        )

    def __repr__(self) -> str:
        return "Sessions(****)"

    def begin(self, key_id: KeyId, fingerprint: str, *, now: float) -> str:
        signed: str = self._serializer.dumps([key_id, fingerprint, int(now), secrets.token_urlsafe(12)])
        return signed

    def read(self, cookie: str, keys: KeySnapshot, *, now: float) -> Session | None:
        """Give the session; None for one that is forged, over, or whose key is not what it was."""
        if len(cookie) > _MOST_COOKIE:
            return None
        try:
            key_id, fingerprint, began_at, _ = self._serializer.loads(cookie)
        except BadData:
            return None
        entry = keys.get(key_id)
        if entry is None or entry.revoked or not entry.principal.admin or not hmac.compare_digest(fingerprint, fingerprint_of(entry)):
            return None
        ends_at = min(began_at + SESSION_S, entry.expires_at if entry.expires_at is not None else float("inf"))
        if not began_at - 1 <= now < ends_at:
            return None
        csrf = hmac.new(self._secret, b"csrf:" + cookie.encode(), hashlib.sha256).hexdigest()
        return Session(entry.principal, csrf, ends_at)


class LoginGuard:
    """Holds back whoever guesses keys: after five failures within a minute an address waits, after sixty everybody does.

    Keys have 160 bits and cannot be guessed; this keeps the attempt from costing the disk and the log.
    """

    def __init__(self) -> None:
        self._failures: OrderedDict[str, list[float]] = OrderedDict()
        self._of_all: list[float] = []

    def wait_s(self, address: str, *, now: float) -> float:
        """Seconds until this address may try again; 0 when it may now."""
        own = _recent(self._failures.get(address, []), now)
        self._of_all = _recent(self._of_all, now)
        waits = [FAILURE_SPAN_S - (now - own[-FAILURES])] if len(own) >= FAILURES else []
        if len(self._of_all) >= FAILURES_OF_ALL:
            waits.append(FAILURE_SPAN_S - (now - self._of_all[-FAILURES_OF_ALL]))
        return max(waits, default=0.0)

    def failed(self, address: str, *, now: float) -> None:
        self._failures[address] = [*_recent(self._failures.pop(address, []), now), now][-FAILURES:]
        self._of_all = [*_recent(self._of_all, now), now][-FAILURES_OF_ALL:]
        while len(self._failures) > _MOST_ADDRESSES:
            self._failures.popitem(last=False)


def _recent(failures: list[float], now: float) -> list[float]:
    return [at for at in failures if 0 <= now - at < FAILURE_SPAN_S]


def fingerprint_of(entry: KeyEntry) -> str:
    """Name the newest token of a key, without saying anything about it."""
    return hashlib.sha256(b"session:" + entry.secrets[0].digest).hexdigest()[:32]


def signing_secret(state_directory: Path) -> bytes:
    """Give the secret that signs, made when there is none: sessions outlive a restart of the gateway."""
    path = state_directory / SECRET_FILE
    try:
        known = path.read_bytes() if path.exists() else b""
        if len(known) == _SECRET_BYTES:
            return known
        fresh = secrets.token_bytes(_SECRET_BYTES)
        draft = path.with_suffix(".draft")
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNER_ONLY), "wb") as file:
            file.write(fresh)
        draft.replace(path)
    except OSError as error:
        raise ConfigurationError(f"The console's secret {path} cannot be kept ({error.strerror}). Check owner and free space.") from error
    return fresh
