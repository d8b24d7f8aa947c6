"""What a worker's exchange needs of a store."""

from __future__ import annotations

from typing import Protocol

from tidegate.domain.leases import LeaseAnswer, LeaseBatch


class StoreLost(Exception):
    """The store cannot be reached or did not answer in time; the text says why, without a password. Whether it heard is not known."""


class LeaseStore(Protocol):
    """Implemented by `socket_store.SocketStore` and `redis_store.RedisStore`; what goes wrong is a `StoreLost`."""

    async def exchange(self, batch: LeaseBatch, *, deadline_s: float) -> LeaseAnswer: ...
    async def aclose(self) -> None: ...
