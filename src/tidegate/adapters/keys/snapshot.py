"""What the gateway knows of all keys at one version of the store: immutable, shared freely between threads.

`match` is the one place that decides whether an API key is good. Neither `repr` shows a digest.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec

from tidegate.adapters.keys.tokens import digest_of, key_id_of
from tidegate.domain.principal import Principal
from tidegate.domain.units import KeyId


class StoredSecret(msgspec.Struct, frozen=True):
    """One secret of a key as a salted digest; `valid_until` (seconds since the epoch) is set once it has been rotated out."""

    salt: bytes
    digest: bytes
    valid_until: float | None = None

    def __repr__(self) -> str:
        return f"StoredSecret(****, valid_until={self.valid_until})"


class KeyEntry(msgspec.Struct, frozen=True):
    """One key. `principal.limits` are the key's own, not yet merged with its tier's. Times are seconds since the epoch."""

    principal: Principal
    secrets: tuple[StoredSecret, ...]
    expires_at: float | None = None
    revoked: bool = False


class KeyMatch(msgspec.Struct, frozen=True):
    """A token that is good now, and until when (None: until something changes)."""

    principal: Principal
    expires_at: float | None


class KeySnapshot(Mapping[KeyId, KeyEntry]):
    """All keys by id, revoked ones included, at one `version` of the store."""

    __slots__ = ("_entries", "version")

    def __init__(self, entries: Mapping[KeyId, KeyEntry], *, version: int) -> None:
        self._entries = MappingProxyType(dict(entries))
        self.version = version

    def match(self, token: str, *, wall_now: float) -> KeyMatch | None:
        """Give the principal of a good token; None for one that is malformed, unknown, revoked or expired."""
        key_id = key_id_of(token)
        if key_id is None:
            return None
        entry = self._entries.get(key_id)
        if entry is None or entry.revoked or not _lasts(entry.expires_at, wall_now):
            return None
        for secret in entry.secrets:
            if hmac.compare_digest(digest_of(token, secret.salt), secret.digest) and _lasts(secret.valid_until, wall_now):
                return KeyMatch(principal=entry.principal, expires_at=_earlier(entry.expires_at, secret.valid_until))
        return None

    def why_not(self, token: str, *, wall_now: float) -> str:
        """Say for operators why `match` gives None; of the token only its public id is told."""
        key_id = key_id_of(token)
        if key_id is None:
            return "what came begins like a key and is none: cut off, or mistyped"
        entry = self._entries.get(key_id)
        if entry is None:
            return f"no key here has the id {key_id}: it is another gateway's, or another state directory's"
        if entry.revoked:
            return f"key {key_id} is revoked"
        if not _lasts(entry.expires_at, wall_now):
            return f"key {key_id} has expired"
        return f"key {key_id} is not the one that came: it was rotated, or the rest of it is wrong"

    def __getitem__(self, key_id: KeyId) -> KeyEntry:
        return self._entries[key_id]

    def __iter__(self) -> Iterator[KeyId]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"KeySnapshot(version={self.version}, keys={len(self._entries)})"


def _lasts(end: float | None, wall_now: float) -> bool:
    return end is None or wall_now < end


def _earlier(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
