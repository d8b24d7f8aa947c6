"""Opens the feed of spans that the configuration asks for. Where the extra `otlp` is missing it says so."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tidegate.adapters.analytics.positions import PositionFile
from tidegate.adapters.otlp.span_feed import Reception, SpanFeed, SpanReceiver, Unavailable
from tidegate.analytics.spans import Span
from tidegate.analytics.tail_sampling import TailSampling
from tidegate.config.schema import Configuration
from tidegate.domain.units import Secret

DIRECTORY: Final = "tracing"
"""In the state directory: how far records were read for the collector."""
_MISSING: Final = "Spans need the package's extra `otlp`: pip install 'tidegate[otlp]'."


class TracingSettings(msgspec.Struct, frozen=True):
    directory: str
    endpoint: str
    headers: dict[str, str]
    resource: dict[str, str]
    keep_ratio: float
    slow_s: float


def tracing_settings(configuration: Configuration, state_directory: Path) -> TracingSettings | None:
    """Say where the spans of a configuration go; None: nowhere."""
    tracing = configuration.tracing
    if tracing.otlp is None:
        return None
    return TracingSettings(
        directory=str(state_directory.absolute() / DIRECTORY),
        endpoint=tracing.otlp.endpoint,
        headers={name: value.reveal() for name, value in tracing.otlp.headers.items()},
        resource={"service.name": tracing.service_name, **tracing.resource},
        keep_ratio=tracing.keep_ratio,
        slow_s=tracing.slow_s,
    )


def open_span_feed(settings: TracingSettings, records: Path, *, resource: Mapping[str, str]) -> SpanFeed:
    """Open it for one thread. `resource` is what is known of this process; what the configuration says wins."""
    directory = Path(settings.directory)
    with contextlib.suppress(OSError):  # then the first position cannot be written, and the feed says so
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    receiver = _collector(settings, {**resource, **settings.resource})
    return SpanFeed(records, PositionFile(directory), receiver, sampling=TailSampling(settings.keep_ratio, settings.slow_s))


def _collector(settings: TracingSettings, resource: Mapping[str, str]) -> SpanReceiver:
    try:
        from tidegate.adapters.otlp.collector import Collector
    except ModuleNotFoundError:
        return _Nobody()
    return Collector(settings.endpoint, {name: Secret(value) for name, value in settings.headers.items()}, resource=resource)


class _Nobody:
    """Stands where a collector would be, if it could be reached."""

    def send(self, spans: list[Span]) -> Reception:
        del spans
        return Unavailable(_MISSING)

    def close(self) -> None:
        return None
