"""Where a worker's records and bodies go, made of a configuration."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Final

from tidegate.adapters.metrics.figures import figures
from tidegate.adapters.records.audit import SHORTEST_SECRET, AuditSettings, BodyRecorder
from tidegate.adapters.records.jsonl import JsonLinesRecorder
from tidegate.adapters.records.lines import LogFormat
from tidegate.adapters.records.sink import LogSink
from tidegate.adapters.wall_clock import wall_clock
from tidegate.config.schema import Configuration
from tidegate.domain.audit import AuditRule, AuditRules
from tidegate.wire.masking import Masker, MaskPattern

_OPENS: Final = re.compile("(?i)auth|key|token|secret|cookie")
"""Names of headers whose value may be a credential; those of others are too ordinary to look for in texts."""
_AUDIT_LEVELS: Final = ("queued_bytes", "stuck")


def records_directory(configuration: Configuration, state_directory: Path) -> Path:
    """Say where the files of records and bodies are."""
    directory = configuration.records.directory
    return Path(directory) if directory is not None else state_directory / "records"


def request_recorder(configuration: Configuration, state_directory: Path, *, worker: int, log_format: LogFormat) -> JsonLinesRecorder:
    """Make what keeps the records of one worker."""
    records = configuration.records
    return JsonLinesRecorder(
        records_directory(configuration, state_directory),
        worker=worker,
        spill_directory=Path(tempfile.gettempdir()),
        max_file_bytes=records.max_file_bytes,
        keep_files=records.keep_files,
        queue_records=records.queue_records,
        sink=LogSink(),
        log_format=log_format,
        clock=wall_clock,
    )


def body_recorder(configuration: Configuration, state_directory: Path, *, worker: int, log_format: LogFormat) -> BodyRecorder:
    """Make what keeps the bodies of one worker; it keeps none until it is configured."""
    audit = configuration.audit
    return BodyRecorder(
        records_directory(configuration, state_directory),
        worker=worker,
        max_file_bytes=audit.max_file_bytes,
        keep_files=audit.keep_files,
        queue_bytes=audit.queue_bytes,
        sink=LogSink(),
        log_format=log_format,
        clock=wall_clock,
    )


def audit_settings(configuration: Configuration) -> AuditSettings:
    """Read `audit`; `ConfigurationError` for a pattern that cannot be used."""
    audit = configuration.audit
    upstreams = configuration.upstreams.values()
    secrets = [
        *(upstream.api_key for upstream in upstreams if upstream.api_key is not None),
        *(value for upstream in upstreams for name, value in upstream.headers.items() if _OPENS.search(name)),
    ]
    return AuditSettings(
        rules=AuditRules(audit.policy, tuple(AuditRule(rule.policy, rule.tenant, rule.route) for rule in audit.rules)),
        masker=Masker([MaskPattern(each.name, each.pattern) for each in audit.patterns]),
        secrets=tuple({secret.reveal() for secret in secrets if len(secret.reveal()) >= SHORTEST_SECRET}),
        max_body_bytes=audit.max_body_bytes,
    )


def audit_figures(bodies: BodyRecorder) -> tuple[dict[str, float], dict[str, float]]:
    """Give levels and counters."""
    return figures("audit", bodies.statistics(), levels=_AUDIT_LEVELS)
