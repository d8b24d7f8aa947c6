"""The one key that `tidegate up` makes, so that the first request works: kept in `<state>/dev-key`, readable by its owner only, and shown
again at every start."""

from __future__ import annotations

import os
from pathlib import Path

from tidegate.adapters.keys.store import KeyStore
from tidegate.domain.principal import Limits
from tidegate.domain.units import Secret
from tidegate.errors import ConfigurationError

FILE_NAME = "dev-key"
DEVELOPMENT_LIMITS = Limits(tokens_per_minute=1_000_000, concurrency=256)
"""Far above what one person sends, low enough to stop a loop gone wild at a hosted provider; and answers show their limit headers."""
_OWNER_ONLY = 0o600
_MAX_BYTES = 1024
"""A token has 63 characters."""


def development_key(state_directory: Path, keys_file: str, *, now: float) -> Secret:
    """Give the key on file while it works, else make another. It may use every model and is no admin key."""
    path = state_directory / FILE_NAME
    store = KeyStore(state_directory / keys_file)
    try:
        known = _read(path)
        if known and store.snapshot().match(known, wall_now=now) is not None:
            return Secret(known)
        created = store.create(name="development", tenant="development", user="developer", limits=DEVELOPMENT_LIMITS, now=now)
    finally:
        store.close()
    _write(path, created.token)
    return created.token


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ConfigurationError(f"The development key {path} cannot be read ({error.strerror}). Remove it and start again.") from error


def _write(path: Path, token: Secret) -> None:
    try:
        path.unlink(missing_ok=True)  # so that the mode below applies, and a link is not followed
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNER_ONLY)
        with os.fdopen(descriptor, "w") as file:
            file.write(token.reveal() + "\n")
    except OSError as error:
        raise ConfigurationError(f"The development key cannot be written to {path} ({error.strerror}).") from error
