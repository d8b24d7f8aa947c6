"""What wiring makes of `limits.store`: where a worker's counters are, and who exchanges leases for them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import msgspec

from tidegate.adapters.limits.keeper import Keeper
from tidegate.adapters.limits.socket_store import SocketStore
from tidegate.adapters.limits.store import LeaseStore
from tidegate.adapters.wall_clock import wall_clock
from tidegate.config.schema import Configuration
from tidegate.domain.units import Secret
from tidegate.errors import ConfigurationError
from tidegate.policy.metering.counter import CounterSource
from tidegate.policy.metering.leases.leased_counters import LeasedCounters
from tidegate.policy.metering.local_counters import LocalCounters


class WorkerLimits(msgspec.Struct, frozen=True):
    """Where one worker's counters are. Without a keeper they are all its own."""

    source: CounterSource
    keeper: Keeper | None = None

    def levels(self) -> dict[str, float]:
        return {} if self.keeper is None else self.keeper.levels()

    def counters(self) -> dict[str, float]:
        return {} if self.keeper is None else self.keeper.counters()


def worker_limits(configuration: Configuration, ledger_socket: Path | None, *, incarnation: str, workers: int) -> WorkerLimits:
    """Give a worker's counters: leased where others share them, else in its own memory. `ConfigurationError` for a store that cannot be.

    `incarnation` is drawn anew for every start of a worker; the ledger process knows it by it.
    """
    epoch_s = wall_clock() - time.monotonic()
    address = configuration.limits.store
    if address is None and ledger_socket is None:
        return WorkerLimits(LocalCounters(epoch_s=epoch_s, workers=workers))
    counters = LeasedCounters(epoch_s=epoch_s)
    if address is not None:
        store, name = _redis_store(address), _shown(address)
    else:
        store, name = SocketStore(str(ledger_socket)), str(ledger_socket)
    rng = Random(os.urandom(32))  # noqa: S311  jitter
    return WorkerLimits(counters, Keeper(counters, store, worker=incarnation, name=name, clock=time.monotonic, rng=rng))


def _redis_store(address: Secret) -> LeaseStore:
    try:
        from tidegate.adapters.limits.redis_store import RedisStore  # imported only where a store is configured
    except ModuleNotFoundError:
        raise ConfigurationError(
            "limits.store needs the package redis, which is not installed: pip install 'tidegate[redis]', or delete the setting"
        ) from None
    try:
        return RedisStore(address)
    except (ValueError, TypeError):
        raise ConfigurationError(
            "limits.store is not an address of a Redis; write it like redis://10.0.0.7:6379/0 or rediss://user:password@host:6379/0"
        ) from None


def _shown(address: Secret) -> str:
    """Give the address without user, password and options."""
    parts = urlsplit(address.reveal())
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
