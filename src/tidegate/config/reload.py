"""Which changes a running gateway cannot take up: those that are built into its sockets, processes and open files.

Everything else (upstreams, routes, limits, tiers, issuers, timeouts, sizes) applies to requests that begin after the reload; the one
exception is the TLS handshake, which keeps the `server.header_timeout_s` of the start. A reload with obstacles changes nothing at all.
"""

from __future__ import annotations

import msgspec

from tidegate.config.bookkeeping import books_are_kept
from tidegate.config.schema import Configuration

FIXED = (
    (("server", "host"), "the API port is already open"),
    (("server", "port"), "the API port is already open"),
    (("server", "workers"), "the worker processes are already running"),
    (("server", "max_body_bytes"), "the counting process was started with it"),
    (("server", "tls"), "the certificate is loaded when the API port opens"),
    (("admin", "host"), "the admin port is already open"),
    (("admin", "port"), "the admin port is already open"),
    (("state_directory",), "keys and sockets in it are in use"),
    (("local_engine",), "the engine's process was started with these settings"),
    (("records",), "the record files are open"),
    (("audit", "queue_bytes"), "the queue is in use"),
    (("audit", "max_file_bytes"), "the audit files are open"),
    (("audit", "keep_files"), "the audit files are open"),
    (("analytics",), "the recorder process was started with these settings"),
    (("tracing",), "the recorder process was started with these settings"),
    (("limits", "store"), "the counters are in it"),
    (("books",), "the ledger process was started with these settings"),
)
"""Settings, or whole sections, that last as long as the process, each with the reason."""


def reload_obstacles(old: Configuration, update: Configuration) -> list[str]:
    """Say what keeps `update` from replacing `old` in a running gateway, a sentence each; empty when nothing does."""
    sentences = []
    for path, reason in FIXED:
        before, after = _at(old, path), _at(update, path)
        if before == after:
            continue
        for name, was, becomes in _differences(".".join(path), before, after):
            show = str if name.endswith(".port") else _shown
            sentences.append(f"{name} cannot change from {show(was)} to {show(becomes)} without a restart: {reason}.")
    if books_are_kept(update) and not books_are_kept(old) and old.books == update.books:
        sentences.append("The first price or budget cannot come without a restart: no process keeps books yet.")
    return sentences


def _at(configuration: Configuration, path: tuple[str, ...]) -> object:
    value: object = configuration
    for step in path:
        value = getattr(value, step)
    return value


def _differences(name: str, before: object, after: object) -> list[tuple[str, object, object]]:
    """Name the single settings that differ; a section that comes or goes is one difference."""
    if not isinstance(before, msgspec.Struct) or not isinstance(after, msgspec.Struct):
        return [(name, before, after)]
    return [
        (f"{name}.{field}", getattr(before, field), getattr(after, field))
        for field in before.__struct_fields__
        if getattr(before, field) != getattr(after, field)
    ]


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, msgspec.Struct):
        return "a section"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else str(value)
