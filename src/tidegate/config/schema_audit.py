"""Settings of audit: whose bodies are kept, and in which way."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tidegate.config.section import Section
from tidegate.domain.audit import AuditPolicy


class AuditRuleSection(Section, frozen=True, kw_only=True):
    """How the bodies of some requests are kept; all that is given must match. The first rule that holds decides."""

    policy: Annotated[AuditPolicy, Meta(description="What is kept.")]
    tenant: Annotated[str | None, Meta(description="The tenant; a shell-style pattern.")] = None
    route: Annotated[str | None, Meta(description="The pattern of the route; a shell-style pattern, too.")] = None


class AuditPatternSection(Section, frozen=True, kw_only=True):
    """Something more to mask, as `[name]`."""

    name: Annotated[str, Meta(description="Lower-case letters, digits and underscores. Several patterns may have one name.")]
    pattern: Annotated[
        str,
        Meta(
            description="Characters, classes (`[A-Z]`, `\\d`, `\\w`, `\\s`, `.`) and `\\b`, each repeated by `?`, `*`, `+`, `{3}` or "
            "`{2,8}`; a repetition takes all it can, up to 64. No groups, no alternatives."
        ),
    ]


class AuditSection(Section, frozen=True, kw_only=True):
    """Bodies of requests and answers, beside the request records."""

    policy: Annotated[
        AuditPolicy,
        Meta(
            description="What is kept where no rule holds: nothing (`off`); sizes, hashes, roles and parameters (`metadata`); the text "
            "with placeholders for what betrays a person or opens a door (`redacted`); the text with credentials masked (`full`)."
        ),
    ] = AuditPolicy.OFF
    rules: Annotated[tuple[AuditRuleSection, ...], Meta(description="Exceptions by tenant and route.")] = ()
    patterns: Annotated[tuple[AuditPatternSection, ...], Meta(description="What `redacted` masks beside what it knows.")] = ()
    max_body_bytes: Annotated[
        int, Meta(ge=1024, le=2_097_152, description="Kept of each body; the rest is cut off, and the line says so.")
    ] = 65_536
    queue_bytes: Annotated[
        int, Meta(ge=1_048_576, description="Bodies of one worker waiting to be written; beyond it they are dropped and counted.")
    ] = 67_108_864
    max_file_bytes: Annotated[int, Meta(ge=4096, description="A file is rotated at this size.")] = 104_857_600
    keep_files: Annotated[int, Meta(ge=1, description="Rotated files kept per worker.")] = 10
