"""Who is calling, and what they may use."""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.domain.units import KeyId, TenantId, UserId

DEFAULT_TIER: Final = "default"
"""Of callers of whom no tier is known; its limits are the general ones, unless it is among the tiers."""


class Limits(msgspec.Struct, frozen=True, gc=False):
    """Ceilings of one key; `None` means no ceiling. Token and request windows are 60 s long."""

    tokens_per_minute: int | None = None
    requests_per_minute: int | None = None
    concurrency: int | None = None


class Principal(msgspec.Struct, frozen=True):
    """An authenticated caller. `key_id` is what limits are counted under: a key's id, or `jwt:<issuer-hash>:<subject>`."""

    key_id: KeyId
    tenant: TenantId
    user: UserId
    tier: str = DEFAULT_TIER
    limits: Limits = Limits()
    models: tuple[str, ...] = ("*",)
    """Shell-style patterns of the model names this caller may use."""
    admin: bool = False
    read_only: bool = False
    """An administrator who may look, and change nothing."""
