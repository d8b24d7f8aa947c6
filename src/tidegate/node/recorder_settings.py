"""Whether a node keeps tables of its records or sends them on as spans, and what the recorder process is told."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import msgspec

from tidegate.adapters.analytics.opening import StoreSettings, store_settings
from tidegate.adapters.otlp.opening import TracingSettings, tracing_settings
from tidegate.config.schema import Configuration
from tidegate.wiring.records import records_directory

SETTINGS_VARIABLE = "TIDEGATE_RECORDER"
"""JSON of `RecorderSettings`: an address in it may hold a password, which a command line would show."""


class RecorderSettings(msgspec.Struct, frozen=True):
    records: str
    """The directory that the workers' files are in."""
    store: StoreSettings | None
    """None: no tables are kept."""
    tracing: TracingSettings | None = None
    """None: no spans are sent."""


def keeps_tables(configuration: Configuration) -> bool:
    """Say whether tables are kept: where the configuration says so, or where they can be."""
    analytics = configuration.analytics
    if analytics.enabled is not None:
        return analytics.enabled
    return analytics.clickhouse is not None or importlib.util.find_spec("chdb") is not None


def is_recorder_wanted(configuration: Configuration) -> bool:
    """Say whether anything is done with records once they are written."""
    return keeps_tables(configuration) or configuration.tracing.otlp is not None


def recorder_environment(configuration: Configuration) -> dict[str, str]:
    """Give what the process is told."""
    state_directory = Path(configuration.state_directory)
    settings = RecorderSettings(
        str(records_directory(configuration, state_directory).absolute()),
        store_settings(configuration, state_directory) if keeps_tables(configuration) else None,
        tracing_settings(configuration, state_directory),
    )
    return {SETTINGS_VARIABLE: msgspec.json.encode(settings).decode()}
