"""Check where the tables of records are kept."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from tidegate.config.problem import Problem, Severity
from tidegate.config.schema import Configuration
from tidegate.config.source import Source
from tidegate.config.words import is_loopback, is_name


def check_analytics(configuration: Configuration, source: Source) -> Iterator[Problem]:
    """Messages do not repeat the address: it may hold a password."""
    analytics = configuration.analytics
    if analytics.clickhouse is None:
        return
    path = ("analytics", "clickhouse")
    example = "write it like https://tidegate:password@10.0.0.8:8443/tidegate"
    try:
        address = urlsplit(analytics.clickhouse.reveal())
        host, _ = address.hostname, address.port
    except ValueError:
        host, address = None, urlsplit("")
    database = address.path.strip("/")
    if address.scheme not in {"http", "https"} or not host:
        yield source.problem(path, "analytics.clickhouse names no server", example)
    elif database and not is_name(database):
        yield source.problem(path, "analytics.clickhouse names no database that could be made", example)
    elif address.scheme == "http" and address.password and not is_loopback(host):
        yield source.problem(
            path, "the password of analytics.clickhouse goes over the network in clear", "write https://", severity=Severity.WARNING
        )
    if analytics.enabled is False:
        yield source.problem(
            ("analytics", "enabled"),
            "analytics.clickhouse is set, and nothing is kept there",
            "delete this line",
            severity=Severity.WARNING,
        )
