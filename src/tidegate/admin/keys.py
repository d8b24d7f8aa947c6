"""The key half of the admin API: what may be asked, and what is shown of a key. Used by the CLI's `--json` output too."""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from tidegate.adapters.keys.store import CreatedKey, KeyStore, KeySummary, bare_id
from tidegate.domain.principal import Limits
from tidegate.domain.units import KeyId
from tidegate.errors import InvalidJson, InvalidParameter, KeyNotFound

Ceiling = Annotated[int, Meta(ge=1)] | None
Body = TypeVar("Body", bound=msgspec.Struct)
MAX_GRACE_S = 604_800
"""A week: an old token that lives longer than that has been forgotten."""
_LONGEST_ID = 20
"""Characters of an id that a message repeats; ours have ten."""


class KeyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /admin/keys`."""

    name: str
    tenant: str = "default"
    user: str | None = None
    """None: the name."""
    tier: str = "default"
    tokens_per_minute: Ceiling = None
    requests_per_minute: Ceiling = None
    concurrency: Ceiling = None
    models: tuple[str, ...] = ("*",)
    admin: bool = False
    read_only: bool = False
    """Of an admin key: it may look, and change nothing."""
    expires_in_s: Annotated[float, Meta(gt=0)] | None = None


class RotationRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /admin/keys/{id}/rotate`; may be left out."""

    grace_s: Annotated[float, Meta(ge=0, le=MAX_GRACE_S)] = 0.0
    """How long the old token still works."""


class ShownToken(msgspec.Struct, frozen=True):
    """A fresh token: the only time it is shown."""

    key_id: str
    key: str


class ShownKey(msgspec.Struct, frozen=True):
    """What may be seen of a key. Times are seconds since the epoch."""

    key_id: str
    name: str
    tenant: str
    user: str
    tier: str
    tokens_per_minute: int | None
    requests_per_minute: int | None
    concurrency: int | None
    models: tuple[str, ...]
    admin: bool
    state: str
    """`active`, `expired` or `revoked`."""
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    rotated_at: float | None
    read_only: bool = False


def create_key(store: KeyStore, request: KeyRequest, *, now: float) -> ShownToken:
    created = store.create(
        name=request.name,
        tenant=request.tenant,
        user=request.user if request.user is not None else request.name,
        now=now,
        tier=request.tier,
        limits=Limits(request.tokens_per_minute, request.requests_per_minute, request.concurrency),
        models=request.models,
        admin=request.admin,
        read_only=request.read_only,
        expires_at=None if request.expires_in_s is None else now + request.expires_in_s,
    )
    return _shown(created)


def list_keys(store: KeyStore, *, now: float) -> list[ShownKey]:
    return [show_key(summary, now=now) for summary in store.list()]


def revoke_key(store: KeyStore, key_id: str, *, now: float) -> KeyId:
    """Stop a key and give its whole id; `KeyNotFound` when there is no such active key."""
    revoked = store.revoke(key_id, now)
    if revoked is None:
        raise _not_found(store, key_id, now=now)
    return revoked


def rotate_key(store: KeyStore, key_id: str, request: RotationRequest, *, now: float) -> ShownToken:
    """Give a key another token; `KeyNotFound` when there is no such active key."""
    rotated = store.rotate(key_id, now, request.grace_s)
    if rotated is None:
        raise _not_found(store, key_id, now=now)
    return _shown(rotated)


def _not_found(store: KeyStore, text: str, *, now: float) -> KeyNotFound:
    """Say why a key cannot be changed. Of a whole token that a person pasted only the id is repeated."""
    wanted = bare_id(text)[:_LONGEST_ID]
    state = next((key.state for key in list_keys(store, now=now) if key.key_id == wanted), None)
    if state is not None:
        return KeyNotFound(f"Key {wanted} {'is revoked already' if state == 'revoked' else 'has expired'}.", param="key_id")
    return KeyNotFound(
        f"There is no active key {wanted!r}. `tidegate keys list` or GET /admin/keys shows those that there are.", param="key_id"
    )


def show_key(summary: KeySummary, *, now: float) -> ShownKey:
    expired = summary.expires_at is not None and summary.expires_at <= now
    return ShownKey(
        key_id=summary.key_id,
        name=summary.name,
        tenant=summary.tenant,
        user=summary.user,
        tier=summary.tier,
        tokens_per_minute=summary.limits.tokens_per_minute,
        requests_per_minute=summary.limits.requests_per_minute,
        concurrency=summary.limits.concurrency,
        models=summary.models,
        admin=summary.admin,
        state="revoked" if summary.revoked_at is not None else "expired" if expired else "active",
        created_at=summary.created_at,
        expires_at=summary.expires_at,
        revoked_at=summary.revoked_at,
        rotated_at=summary.rotated_at,
        read_only=summary.read_only,
    )


def decode(body: bytes, kind: type[Body]) -> Body:
    """Read a JSON body; `InvalidJson` or `InvalidParameter` says what is wrong with it."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise InvalidParameter(f"{error}. The fields are: {', '.join(kind.__struct_fields__)}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidJson(f"The body is not JSON ({error}).") from error


def _shown(created: CreatedKey) -> ShownToken:
    return ShownToken(key_id=created.key_id, key=created.token.reveal())
