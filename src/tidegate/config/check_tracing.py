"""Check where spans are sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidegate.config.problem import Problem, Severity
from tidegate.config.schema import Configuration
from tidegate.config.schema_tracing import OtlpSection
from tidegate.config.source import Source
from tidegate.config.words import is_header_name, is_header_value, is_loopback, split_url

MAX_RESOURCE_ATTRIBUTES: Final = 64
"""They go with every batch; a few say where a node is."""
_EXAMPLE: Final = "write it like http://127.0.0.1:4318/v1/traces"


def check_tracing(configuration: Configuration, source: Source) -> Iterator[Problem]:
    """Messages do not repeat the address or a header's value: either may hold a password."""
    tracing = configuration.tracing
    if len(tracing.resource) > MAX_RESOURCE_ATTRIBUTES:
        yield source.problem(
            ("tracing", "resource"), f"tracing.resource has more than {MAX_RESOURCE_ATTRIBUTES} attributes", "leave some of them out"
        )
    if tracing.otlp is not None:
        yield from _check_collector(tracing.otlp, source)


def _check_collector(otlp: OtlpSection, source: Source) -> Iterator[Problem]:
    path = ("tracing", "otlp", "endpoint")
    address = split_url(otlp.endpoint)
    if isinstance(address, str):
        yield source.problem(path, f"tracing.otlp.endpoint {address}", f"{_EXAMPLE}; what is secret belongs into tracing.otlp.headers")
    elif address.path in {"", "/"}:
        yield source.problem(path, "tracing.otlp.endpoint has no path", _EXAMPLE)
    elif address.scheme == "http" and otlp.headers and not is_loopback(address.hostname or ""):
        yield source.problem(path, "the headers of tracing.otlp go over the network in clear", "write https://", severity=Severity.WARNING)
    for name, value in otlp.headers.items():
        if not is_header_name(name) or not is_header_value(value.reveal()):
            yield source.problem(
                ("tracing", "otlp", "headers"),
                f"the header {name[:64]!r} or its value cannot be sent",
                "leave out line breaks and the like",
            )
