"""Creates, lists, rotates and revokes API keys in SQLite, and hands out snapshots of them.

Invariants: a token is shown once, by the call that drew it, and only its salted digest is written; a revoked key keeps its row; every
change raises `version()`, in every process that has the file open. A `KeyStore` may be used from several threads, one call at a time.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import msgspec

from tidegate.adapters.keys.database import open_database, readable_errors, transaction
from tidegate.adapters.keys.snapshot import KeyEntry, KeySnapshot, StoredSecret
from tidegate.adapters.keys.tokens import PREFIX, digest_of, draw_key_id, draw_salt, draw_token
from tidegate.domain.principal import Limits, Principal
from tidegate.domain.units import KeyId, Secret, TenantId, UserId
from tidegate.errors import ConfigurationError, InvalidParameter

MAX_SECRETS_PER_KEY: Final = 8  # each is one more HMAC for a wrong token; rotations within each other's grace are rare
MAX_TEXT_CHARACTERS: Final = 200  # names are for people and for log lines
MAX_MODELS: Final = 100  # patterns are tried one by one on every request
_NO_ADMIN, _ADMIN, _LOOKS_ONLY = range(3)  # the column `admin`
_FIND_ACTIVE: Final = "SELECT 1 FROM api_keys WHERE key_id = ? AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)"


class CreatedKey(msgspec.Struct, frozen=True):
    """A fresh token; this is the only time it can be read."""

    key_id: KeyId
    token: Secret


class KeySummary(msgspec.Struct, frozen=True):
    """What may be shown of a key: nothing that helps to use it. Times are seconds since the epoch."""

    key_id: KeyId
    name: str
    tenant: TenantId
    user: UserId
    tier: str
    limits: Limits
    """The key's own; what it leaves open comes from its tier."""
    models: tuple[str, ...]
    admin: bool
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    rotated_at: float | None
    read_only: bool = False


class KeyStore:
    """The key database. `create_file` False opens an existing one only, and never makes or migrates anything."""

    def __init__(self, path: Path, *, create_file: bool = True, busy_timeout_s: float = 5.0) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection = open_database(path, create=create_file, busy_timeout_s=busy_timeout_s)
        self._version_seen: tuple[int, int] | None = None
        self._version = 0

    def create(
        self,
        *,
        name: str,
        tenant: str,
        user: str,
        now: float,
        tier: str = "default",
        limits: Limits | None = None,
        models: tuple[str, ...] = ("*",),
        admin: bool = False,
        read_only: bool = False,
        expires_at: float | None = None,
    ) -> CreatedKey:
        """Make a key; `now` and `expires_at` are seconds since the epoch. A value out of range is an `InvalidParameter`."""
        own = limits or Limits()
        _check(name=name, tenant=tenant, user=user, tier=tier, models=models)
        if read_only and not admin:
            raise InvalidParameter("Only an admin key can be read-only: other keys see nothing of the admin API.", param="read_only")
        _check_numbers(own, expires_at=expires_at, now=now)
        ceilings = (own.tokens_per_minute, own.requests_per_minute, own.concurrency)
        with self._writing() as connection:
            key_id = self._unused_id(connection)
            connection.execute(
                "INSERT INTO api_keys (key_id, name, tenant, user, tier, tokens_per_minute, requests_per_minute, concurrency,"
                " models, admin, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    key_id,
                    name,
                    tenant,
                    user,
                    tier,
                    *ceilings,
                    msgspec.json.encode(models).decode(),
                    _rank(admin=admin, read_only=read_only),
                    now,
                    expires_at,
                ),
            )
            token = self._add_secret(connection, key_id)
        return CreatedKey(key_id=key_id, token=token)

    def list(self) -> list[KeySummary]:
        """Give every key, revoked ones too, oldest first."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT key_id, name, tenant, user, tier, tokens_per_minute, requests_per_minute, concurrency, models, admin,"
                " created_at, expires_at, revoked_at, rotated_at FROM api_keys ORDER BY created_at, key_id"
            ).fetchall()
        return [
            KeySummary(
                key_id=key_id,
                name=name,
                tenant=tenant,
                user=user,
                tier=tier,
                limits=Limits(tokens_per_minute=tokens, requests_per_minute=requests, concurrency=concurrency),
                models=_models(models),
                admin=admin != _NO_ADMIN,
                read_only=admin == _LOOKS_ONLY,
                created_at=created_at,
                expires_at=expires_at,
                revoked_at=revoked_at,
                rotated_at=rotated_at,
            )
            for (
                key_id,
                name,
                tenant,
                user,
                tier,
                tokens,
                requests,
                concurrency,
                models,
                admin,
                created_at,
                expires_at,
                revoked_at,
                rotated_at,
            ) in rows
        ]

    def revoke(self, key_id_or_prefix: str, now: float) -> KeyId | None:
        """Stop a key for good and give its id; None when no active key is meant.

        Takes an id, the first characters of one, or a whole token. A beginning that fits several keys revokes none and says so.
        """
        wanted = bare_id(key_id_or_prefix)
        if not wanted:
            return None
        with self._writing() as connection:
            found = [
                key_id
                for (key_id,) in connection.execute(
                    "SELECT key_id FROM api_keys WHERE revoked_at IS NULL AND substr(key_id, 1, length(?1)) = ?1 ORDER BY key_id LIMIT 9",
                    (wanted,),
                )
            ]
            if wanted in found:
                found = [wanted]
            if len(found) > 1:
                raise InvalidParameter(
                    f"'{wanted}' is the beginning of several keys ({', '.join(found)}); none was revoked. Give more characters.",
                    param="key_id",
                )
            if not found:
                return None
            connection.execute("UPDATE api_keys SET revoked_at = ? WHERE key_id = ?", (now, found[0]))
        return KeyId(found[0])

    def rotate(self, key_id: str, now: float, grace_s: float) -> CreatedKey | None:
        """Give a key a fresh token; its earlier ones work for `grace_s` more seconds at most. None when there is no such active key."""
        if not 0 <= grace_s < float("inf"):
            raise InvalidParameter(f"The grace of a rotation is a number of seconds from 0, not {grace_s}.", param="grace_s")
        wanted = bare_id(key_id)
        with self._writing() as connection:
            if connection.execute(_FIND_ACTIVE, (wanted, now)).fetchone() is None:
                return None
            grace_ends_at = now + grace_s
            connection.execute(
                "UPDATE key_secrets SET valid_until = ?1 WHERE key_id = ?2 AND (valid_until IS NULL OR valid_until > ?1)",
                (grace_ends_at, wanted),
            )
            connection.execute("DELETE FROM key_secrets WHERE key_id = ? AND valid_until <= ?", (wanted, now))
            (working,) = connection.execute("SELECT count(*) FROM key_secrets WHERE key_id = ?", (wanted,)).fetchone()
            if working >= MAX_SECRETS_PER_KEY:
                raise InvalidParameter(
                    f"Key {wanted} has {working} working tokens from earlier rotations; wait for a grace to end, or rotate with grace 0.",
                    param="grace_s",
                )
            token = self._add_secret(connection, KeyId(wanted))
            connection.execute("UPDATE api_keys SET rotated_at = ? WHERE key_id = ?", (now, wanted))
        return CreatedKey(key_id=KeyId(wanted), token=token)

    def snapshot(self) -> KeySnapshot:
        """Read all keys as of one instant."""
        with self._reading() as connection:
            connection.execute("BEGIN")
            try:
                (version,) = connection.execute("SELECT changes FROM store_state").fetchone()
                entries = dict(_entries(connection))
            finally:
                connection.execute("COMMIT")
        return KeySnapshot(entries, version=version)

    def version(self) -> int:
        """Give the number of changes so far; cheap enough to ask several times a second."""
        with self._reading() as connection:
            (others_changes,) = connection.execute("PRAGMA data_version").fetchone()
            seen = (others_changes, connection.total_changes)
            if seen != self._version_seen:
                (self._version,) = connection.execute("SELECT changes FROM store_state").fetchone()
                self._version_seen = seen
            return self._version

    def close(self) -> None:
        """Close the file; safe to repeat."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"KeyStore({str(self._path)!r})"

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, readable_errors(self._path):
            yield self._connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._reading() as connection, transaction(connection):
            yield connection

    @staticmethod
    def _unused_id(connection: sqlite3.Connection) -> KeyId:
        while True:  # 36**10 ids: a second round is rarer than a broken disk
            key_id = draw_key_id()
            if connection.execute("SELECT 1 FROM api_keys WHERE key_id = ?", (key_id,)).fetchone() is None:
                return key_id

    @staticmethod
    def _add_secret(connection: sqlite3.Connection, key_id: KeyId) -> Secret:
        token, salt = draw_token(key_id), draw_salt()
        connection.execute(
            "INSERT INTO key_secrets (key_id, salt, digest) VALUES (?, ?, ?)", (key_id, salt, digest_of(token.reveal(), salt))
        )
        return token


def _entries(connection: sqlite3.Connection) -> Iterator[tuple[KeyId, KeyEntry]]:
    """Yield each key after its last secret; the newest secret comes first, as the one most likely to be used.

    Row by row, not `fetchall`: SQLite gives up the interpreter's lock at each row, so a watcher thread never holds up the event loop.
    """
    current: tuple[KeyId, KeyEntry] | None = None
    for (
        key_id,
        tenant,
        user,
        tier,
        tokens,
        requests,
        concurrency,
        models,
        admin,
        expires_at,
        revoked_at,
        salt,
        digest,
        valid_until,
    ) in connection.execute(
        "SELECT key_id, tenant, user, tier, tokens_per_minute, requests_per_minute, concurrency, models, admin, expires_at, revoked_at,"
        " salt, digest, valid_until FROM api_keys JOIN key_secrets USING (key_id) ORDER BY key_id, secret_id DESC"
    ):
        secret = StoredSecret(salt=salt, digest=digest, valid_until=valid_until)
        if current is not None and current[0] == key_id:
            current = (key_id, msgspec.structs.replace(current[1], secrets=(*current[1].secrets, secret)))
            continue
        if current is not None:
            yield current
        limits = Limits(tokens_per_minute=tokens, requests_per_minute=requests, concurrency=concurrency)
        principal = Principal(
            key_id=key_id, tenant=tenant, user=user, tier=tier, limits=limits, models=_models(models), admin=admin != _NO_ADMIN
        )
        if admin == _LOOKS_ONLY:
            principal = msgspec.structs.replace(principal, read_only=True)
        current = (key_id, KeyEntry(principal=principal, secrets=(secret,), expires_at=expires_at, revoked=revoked_at is not None))
    if current is not None:
        yield current


def _models(stored: str) -> tuple[str, ...]:
    try:
        return msgspec.json.decode(stored, type=tuple[str, ...])
    except msgspec.DecodeError as error:
        raise ConfigurationError(
            "A key's `models` in the key database is not a list of names; restore the database from a backup."
        ) from error


def _rank(*, admin: bool, read_only: bool) -> int:
    return _NO_ADMIN if not admin else _LOOKS_ONLY if read_only else _ADMIN


def bare_id(text: str) -> str:
    """Take the id out of whatever a person pasted: an id, its beginning, `tg-…`, or a whole token."""
    return text.strip().removeprefix(PREFIX).partition("-")[0]


def _check(*, name: str, tenant: str, user: str, tier: str, models: tuple[str, ...]) -> None:
    for field, text in (("name", name), ("tenant", tenant), ("user", user), ("tier", tier), *(("models", model) for model in models)):
        if not text.strip() or len(text) > MAX_TEXT_CHARACTERS or not text.isprintable():
            raise InvalidParameter(f"The key's `{field}` must be 1 to {MAX_TEXT_CHARACTERS} printable characters.", param=field)
    if not 1 <= len(models) <= MAX_MODELS:
        raise InvalidParameter(f"A key needs 1 to {MAX_MODELS} model patterns; `*` allows every model.", param="models")


def _check_numbers(limits: Limits, *, expires_at: float | None, now: float) -> None:
    for field in Limits.__struct_fields__:
        ceiling = getattr(limits, field)
        if ceiling is not None and not 1 <= ceiling < 2**63:
            raise InvalidParameter(f"The key's `{field}` must be at least 1, or left out for the tier's; it is {ceiling}.", param=field)
    if expires_at is not None and not now < expires_at < float("inf"):
        raise InvalidParameter(
            "The key's end (`expires_at`) must lie in the future: give it a time above 0, or leave it out and it never ends.",
            param="expires_at",
        )
