"""Opens the key database: file modes, pragmas, schema and its version. SQLite's errors leave here as `ConfigurationError`.

Several processes open the file at once (CLI, admin, one watcher per worker): WAL lets readers go on while one writes, the busy timeout
bounds every wait for a lock. The change counter is kept by triggers, so that even a row changed by hand reaches every process.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tidegate.adapters.sqlite_file import make_private, statements, turn_wal_on
from tidegate.errors import ConfigurationError

SCHEMA_VERSION: Final = 1
_PRIVATE_DIRECTORY: Final = 0o700

_SCHEMA: Final = """
CREATE TABLE store_state (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    schema_version INTEGER NOT NULL,
    changes INTEGER NOT NULL
);
CREATE TABLE api_keys (
    key_id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    tier TEXT NOT NULL,
    tokens_per_minute INTEGER,
    requests_per_minute INTEGER,
    concurrency INTEGER,
    models TEXT NOT NULL,
    admin INTEGER NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL,
    revoked_at REAL,
    rotated_at REAL
);
CREATE TABLE key_secrets (
    secret_id INTEGER PRIMARY KEY,
    key_id TEXT NOT NULL REFERENCES api_keys (key_id),
    salt BLOB NOT NULL,
    digest BLOB NOT NULL,
    valid_until REAL
);
CREATE INDEX key_secrets_by_key ON key_secrets (key_id);
CREATE TRIGGER api_keys_insert AFTER INSERT ON api_keys BEGIN
    UPDATE store_state SET changes = changes + 1;
END;
CREATE TRIGGER api_keys_update AFTER UPDATE ON api_keys BEGIN
    UPDATE store_state SET changes = changes + 1;
END;
CREATE TRIGGER api_keys_delete AFTER DELETE ON api_keys BEGIN
    UPDATE store_state SET changes = changes + 1;
END;
CREATE TRIGGER key_secrets_insert AFTER INSERT ON key_secrets BEGIN
    UPDATE store_state SET changes = changes + 1;
END;
CREATE TRIGGER key_secrets_update AFTER UPDATE ON key_secrets BEGIN
    UPDATE store_state SET changes = changes + 1;
END;
CREATE TRIGGER key_secrets_delete AFTER DELETE ON key_secrets BEGIN
    UPDATE store_state SET changes = changes + 1;
END;
"""


def open_database(path: Path, *, create: bool, busy_timeout_s: float) -> sqlite3.Connection:
    """Open the database, and make it first if it is missing and `create` is set.

    The connection may be used from any thread, by one at a time.
    """
    if create:
        _make_private(path)
    elif not path.exists():
        raise ConfigurationError(f"The key database {path} is missing; `tidegate keys create` makes it, or restore it from a backup.")
    with readable_errors(path):
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode=rw", uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
        )
    try:
        with readable_errors(path):
            _prepare(connection, path, create=create, busy_timeout_s=busy_timeout_s)
    except ConfigurationError:
        connection.close()
        raise
    return connection


@contextmanager
def readable_errors(path: Path) -> Iterator[None]:
    """Say in words what SQLite's exceptions mean for whoever runs the gateway."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            raise ConfigurationError(
                f"The key database {path} is locked by another process; try again, or find it with `fuser {path}`."
            ) from error
        raise ConfigurationError(
            f"The key database {path} cannot be used ({error}); check its path, permissions and free disk space."
        ) from error
    except sqlite3.DatabaseError as error:
        raise ConfigurationError(
            f"The key database {path} is damaged or no key database ({error}); restore a backup, or move it away and create keys anew."
        ) from error


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold the one write lock; commit at the end, roll back on any exception."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _make_private(path: Path) -> None:
    """Create directory and file for the owner alone before SQLite does.

    A directory that exists keeps its mode: it may be shared on purpose. The file is ours and is tightened.
    """
    try:
        if not path.parent.exists():
            path.parent.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        make_private(path)
    except OSError as error:
        raise ConfigurationError(
            f"The key database {path} cannot be created ({error.strerror}); check the directory's owner, or set `state_directory`."
        ) from error


def _prepare(connection: sqlite3.Connection, path: Path, *, create: bool, busy_timeout_s: float) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")  # a revocation that was reported survives a power cut
    if create:
        turn_wal_on(connection, path, busy_timeout_s=busy_timeout_s)
        with transaction(connection):
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
                for statement in statements(_SCHEMA):
                    connection.execute(statement)
                connection.execute("INSERT INTO store_state VALUES (1, ?, 0)", (SCHEMA_VERSION,))
    if connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'store_state'").fetchone() == (0,):
        raise ConfigurationError(f"{path} is no key database; point `state_directory` at Tidegate's own directory.")
    (found,) = connection.execute("SELECT schema_version FROM store_state").fetchone()
    if found != SCHEMA_VERSION:
        raise ConfigurationError(
            f"The key database {path} has schema version {found}, this Tidegate reads {SCHEMA_VERSION}; run the version that wrote it."
        )
