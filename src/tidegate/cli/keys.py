"""`tidegate keys`: make, list, revoke and rotate API keys in the state directory. A running gateway follows within a second."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.cells import cell_len, set_cell_size

from tidegate.adapters.keys.store import KeyStore
from tidegate.adapters.wall_clock import wall_clock
from tidegate.admin.keys import KeyRequest, RotationRequest, ShownKey, ShownToken, create_key, list_keys, revoke_key, rotate_key
from tidegate.node.exits import Exit
from tidegate.node.state_directory import make_private
from tidegate.wiring.worker import KEYS_FILE


def create(directory: Path, request: KeyRequest, *, as_json: bool) -> int:
    with _store(directory) as store:
        _show_token(create_key(store, request, now=wall_clock()), as_json=as_json)
    if not as_json:
        sys.stderr.write(f"It works at gateways whose state directory is {directory.resolve()}.\n")
    return Exit.OK


def show(directory: Path, *, as_json: bool, everything: bool) -> int:
    """List keys; revoked and expired ones only with `everything`."""
    with _store(directory) as store:
        keys = [key for key in list_keys(store, now=wall_clock()) if everything or key.state == "active"]
    if as_json:
        print(msgspec.json.format(msgspec.json.encode({"keys": keys})).decode())
    elif keys:
        print(_table(keys), end="")
    else:
        kind = "keys" if everything else "working keys"
        sys.stderr.write(
            f"There are no {kind} in {directory.resolve()}. Make one with `tidegate keys create --name NAME`; if the gateway's state "
            "directory is another, name it with --state-directory, or its file with --config.\n"
        )
    return Exit.OK


def revoke(directory: Path, key_id: str, *, as_json: bool) -> int:
    with _store(directory) as store:
        revoked = revoke_key(store, key_id, now=wall_clock())
    print(msgspec.json.encode({"revoked": revoked}).decode() if as_json else "Revoked. A running gateway refuses the key within a second.")
    return Exit.OK


def rotate(directory: Path, key_id: str, *, grace_s: float, as_json: bool) -> int:
    with _store(directory) as store:
        _show_token(rotate_key(store, key_id, RotationRequest(grace_s), now=wall_clock()), as_json=as_json)
    if not as_json and grace_s:
        sys.stderr.write(f"The old key works for another {grace_s:g} s.\n")
    return Exit.OK


@contextmanager
def _store(directory: Path) -> Iterator[KeyStore]:
    make_private(directory)
    store = KeyStore(directory / KEYS_FILE)
    try:
        yield store
    finally:
        store.close()


def _show_token(token: ShownToken, *, as_json: bool) -> None:
    """Print the key alone on standard output, so that it can be captured, and the words for people beside it."""
    if as_json:
        print(msgspec.json.encode(token).decode())
        return
    print(token.key)
    sys.stderr.write(f"This is key {token.key_id}, and the only time it is shown. Send it as `Authorization: Bearer <key>`.\n")


def _table(keys: list[ShownKey]) -> str:
    """Lay keys out in columns, one line each whatever the width of the terminal, so that ids can be copied and lines grepped."""
    rows = [("key", "name", "tenant", "user", "tier", "limits", "models", "state", "created (UTC)")]
    rows += [
        (
            key.key_id,
            f"{key.name} ({'admin, read-only' if key.read_only else 'admin'})" if key.admin else key.name,
            key.tenant,
            key.user,
            key.tier,
            _limits(key),
            " ".join(key.models),
            key.state,
            datetime.fromtimestamp(key.created_at, UTC).strftime("%Y-%m-%d %H:%M"),
        )
        for key in keys
    ]
    widths = [max(cell_len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "".join("  ".join(map(set_cell_size, row, widths)).rstrip() + "\n" for row in rows)


def _limits(key: ShownKey) -> str:
    ceilings = ((key.tokens_per_minute, "tokens/min"), (key.requests_per_minute, "requests/min"), (key.concurrency, "at once"))
    return ", ".join(f"{ceiling:,} {unit}" for ceiling, unit in ceilings if ceiling is not None) or "of its tier"
