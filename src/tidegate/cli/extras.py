"""Which optional parts are installed, and which settings want one."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

from tidegate.config.bookkeeping import POSTGRES_SCHEMES
from tidegate.config.schema import Configuration
from tidegate.config.schema_sampling import GpuName
from tidegate.doctor.services import EXTRAS


def installed() -> frozenset[str]:
    """Name the extras that can be imported here."""
    return frozenset(extra.name for extra in EXTRAS if importlib.util.find_spec(extra.module) is not None)


def needed(configuration: Configuration) -> dict[str, str]:
    """Say which setting needs which extra; the local model has a check of its own."""
    database = configuration.books.database
    wanted: Iterable[tuple[str, str, bool]] = (
        ("analytics", "analytics.enabled", configuration.analytics.enabled is True or configuration.analytics.clickhouse is not None),
        ("gpu", "sampling.gpu", configuration.sampling.gpu is GpuName.NVML),
        ("otlp", "tracing.otlp", configuration.tracing.otlp is not None),
        ("postgres", "books.database", database is not None and database.reveal().startswith(POSTGRES_SCHEMES)),
        ("qwen", "an upstream's tokenizer", any(each.tokenizer == "qwen3.6" for each in configuration.upstreams.values())),
        ("redis", "limits.store or shared", configuration.limits.store is not None or configuration.shared is not None),
        ("rules", "degradation.rules_file", configuration.degradation.rules_file is not None),
    )
    return {name: setting for name, setting, is_needed in wanted if is_needed}
