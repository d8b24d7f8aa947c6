"""Who may use the admin API: holders of an API key made with `--admin`. Everyone else gets the same 401, or a 403 for a good key without
that right."""

from __future__ import annotations

from tidegate.adapters.keys.store import KeyStore
from tidegate.domain.principal import Principal
from tidegate.errors import Forbidden, Unauthenticated

_SCHEME = "bearer "


def administrator(store: KeyStore, authorization: str, *, now: float) -> Principal:
    """Give the caller; `Unauthenticated` or `Forbidden` otherwise. Reads the store anew, so that a revoked key stops at once."""
    token = authorization[len(_SCHEME) :].strip() if authorization[: len(_SCHEME)].lower() == _SCHEME else ""
    match = store.snapshot().match(token, wall_now=now) if token else None
    if match is None:
        raise Unauthenticated(
            "The admin API needs a valid admin key: send `Authorization: Bearer <key>`. "
            "Make one on the gateway's machine with `tidegate keys create --admin`."
        )
    if not match.principal.admin:
        raise Forbidden(f"Key {match.principal.key_id} is not an admin key. Make one with `tidegate keys create --admin`.")
    return match.principal
