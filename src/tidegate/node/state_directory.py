"""The state directory as a running node uses it: made private, held by one node at a time, and telling where the node listens.

`lock` is held with `flock`, so it is free again however the node ends. `endpoints.json` is present only while the node serves; it is for
scripts and tests that start a node on free ports.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tidegate.errors import ConfigurationError

ENDPOINTS_FILE = "endpoints.json"
LOCK_FILE = "lock"
_LOG = logging.getLogger("tidegate.node")
_OWNER_ONLY = 0o600
_OWNER_ONLY_DIRECTORY = 0o700


class Endpoints(msgspec.Struct, frozen=True):
    """Addresses without a path, as a client on this machine would use them."""

    api: str
    admin: str


def make_private(directory: Path) -> None:
    """Make the directory for this user alone; one that exists keeps its mode, since it may be shared on purpose."""
    try:
        directory.mkdir(mode=_OWNER_ONLY_DIRECTORY, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"The state directory {directory} cannot be made ({error.strerror}). Set state_directory to a directory this user may write.",
            param="state_directory",
        ) from error


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Hold the directory for one node: two would write the same record files."""
    path = directory / LOCK_FILE
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY)
    except OSError as error:
        raise ConfigurationError(
            f"The state directory {directory} cannot be written ({error.strerror}). Check owner and free space, or set state_directory.",
            param="state_directory",
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
            raise ConfigurationError(
                f"Another Tidegate{f' (process {holder})' if holder else ''} runs with the state directory {directory}. "
                "Stop it, or give this one a state_directory of its own.",
                param="state_directory",
            ) from error
        with contextlib.suppress(OSError):  # the number only helps people; a full disk is no reason not to serve
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def write_endpoints(directory: Path, endpoints: Endpoints) -> None:
    """Write the file whole or not at all; without room for it the node serves all the same."""
    path = directory / ENDPOINTS_FILE
    draft = path.with_suffix(".draft")
    try:
        draft.write_bytes(msgspec.json.encode(endpoints) + b"\n")
        draft.replace(path)
    except OSError as error:
        _LOG.warning("state_directory.unwritable %s cannot be written (%s). Check owner and free space.", path, error.strerror)


def read_endpoints(directory: Path) -> Endpoints | None:
    """Read where a node of this directory says that it listens; one that was killed says so for ever."""
    try:
        return msgspec.json.decode((directory / ENDPOINTS_FILE).read_bytes(), type=Endpoints)
    except (OSError, msgspec.MsgspecError):
        return None


def forget_endpoints(directory: Path) -> None:
    (directory / ENDPOINTS_FILE).unlink(missing_ok=True)
