"""A configuration made ready for one worker, and the end of what only it used."""

from __future__ import annotations

import asyncio

import msgspec

from tidegate.adapters.counting.service import TokenCountService
from tidegate.adapters.records.audit import AuditSettings
from tidegate.config.schema import Configuration
from tidegate.domain.units import ReplicaId
from tidegate.gateway.authenticate import CachedAuthenticator
from tidegate.gateway.services import Services
from tidegate.http.client import UpstreamPool
from tidegate.wiring.health import WatchPlan
from tidegate.wiring.parts import TokenKeys


class Prepared(msgspec.Struct, frozen=True):
    """A configuration made ready; nothing uses it before its commit."""

    configuration: Configuration
    services: Services
    pools: dict[ReplicaId, UpstreamPool]
    authenticator: CachedAuthenticator
    tokens: TokenKeys | None
    counter: TokenCountService
    watch: WatchPlan
    audit: AuditSettings

    async def aclose(self) -> None:
        """Close what only this configuration used."""
        if self.tokens is not None:
            await self.tokens.close()
        await asyncio.gather(*(pool.aclose() for pool in self.pools.values()))
