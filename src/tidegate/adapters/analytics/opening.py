"""Opens the store that the configuration names: a ClickHouse server, or chDB in the state directory."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from tidegate.adapters.analytics.chdb_store import ChdbStore
from tidegate.adapters.analytics.clickhouse_store import ClickHouseStore
from tidegate.analytics.asking import AnalyticsStore
from tidegate.config.schema import Configuration
from tidegate.domain.units import Secret
from tidegate.errors import StoreError

DIRECTORY: Final = "analytics"
"""In the state directory: the tables of chDB, and how far records were read."""


class StoreSettings(msgspec.Struct, frozen=True):
    directory: str
    clickhouse: str | None
    """Address of a server, with its password; None for chDB in `directory`."""
    keep_days: int
    memory_bytes: int
    """Of chDB."""


def store_settings(configuration: Configuration, state_directory: Path) -> StoreSettings:
    """Say where the tables of a configuration are, and how long rows stay."""
    analytics = configuration.analytics
    return StoreSettings(
        directory=str(state_directory.absolute() / DIRECTORY),
        clickhouse=analytics.clickhouse.reveal() if analytics.clickhouse is not None else None,
        keep_days=analytics.keep_days,
        memory_bytes=analytics.memory_limit_bytes,
    )


def open_store(settings: StoreSettings, *, is_read_only: bool = False) -> AnalyticsStore:
    """Open it for one thread; `StoreError` when that fails. Where it is read-only, questions can be asked at once."""
    if settings.clickhouse is not None:
        return ClickHouseStore(Secret(settings.clickhouse), keep_days=settings.keep_days)
    directory = Path(settings.directory)
    store = ChdbStore(directory, keep_days=settings.keep_days, memory_bytes=settings.memory_bytes, is_read_only=is_read_only)
    if is_read_only:
        try:
            store.create_tables()
        except StoreError:
            store.close()
            raise
    return store
