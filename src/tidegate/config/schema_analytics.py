"""Settings of the store that answers questions about past requests."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tidegate.config.section import Section
from tidegate.domain.units import Secret


class AnalyticsSection(Section, frozen=True, kw_only=True):
    """Request records in tables, for `tidegate query`, the console and the doctor. Needs the extra `analytics`."""

    enabled: Annotated[
        bool | None,
        Meta(description="Keep tables (true) or not (false); without it, they are kept where chDB is installed or `clickhouse` is set."),
    ] = None
    clickhouse: Annotated[
        Secret | None,
        Meta(
            description="A ClickHouse server over HTTP, like `https://user:password@host:8443/tidegate`; without it chDB keeps the tables "
            "in the state directory."
        ),
    ] = None
    keep_days: Annotated[int, Meta(ge=1, le=3650, description="Rows older than this are deleted.")] = 30
    memory_limit_bytes: Annotated[
        int, Meta(ge=268_435_456, description="Memory of chDB for inserts, merges and questions; beyond it a question fails.")
    ] = 2_147_483_648
