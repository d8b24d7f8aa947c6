"""The supervisor's end of the recorder process: keeps it running, and knows how it is."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tidegate.adapters.analytics.client import RecorderAsker
from tidegate.adapters.analytics.feed import FeedStatistics
from tidegate.adapters.records.lines import LogFormat
from tidegate.adapters.samplers.plan import SamplingPlan, SamplingStatistics
from tidegate.admin.view import RecorderSnapshot
from tidegate.analytics.span_figures import SpanStatistics
from tidegate.config.schema import Configuration
from tidegate.errors import StoreError
from tidegate.node.companion import Companion
from tidegate.node.recorder_settings import keeps_tables, recorder_environment

RECORDER_COMMAND: Final = (sys.executable, "-P", "-m", "tidegate.node.recorder")
REFRESH_S: Final = 2.0
"""Age of its figures at most, while it answers."""


class RecorderLink:
    """The recorder process of one node, from `run` until that is cancelled."""

    def __init__(
        self,
        configuration: Configuration,
        path: Path,
        *,
        sampled: Callable[[], SamplingPlan],
        log_format: LogFormat,
        command: Sequence[str] = RECORDER_COMMAND,
    ) -> None:
        """`path` is of the socket on which it is to answer; `sampled` says what is to be sampled at the moment."""
        arguments = ("--socket", str(path), "--log-format", str(log_format))
        self._companion = Companion("recorder", (*command, *arguments), environment=recorder_environment(configuration))
        self._asker = RecorderAsker(path)
        self._feed = FeedStatistics() if keeps_tables(configuration) else None
        self._spans = SpanStatistics() if configuration.tracing.otlp is not None else None
        self._sampled = sampled
        self._sampling = SamplingStatistics()
        self._responsive = False

    def __repr__(self) -> str:
        return f"RecorderLink({self._companion!r})"

    @property
    def asker(self) -> RecorderAsker | None:
        """Whom questions about past requests are put to; None where no tables are kept."""
        return self._asker if self._feed is not None else None

    def spans(self) -> SpanStatistics | None:
        """Say how spans get to the collector; None where none are sent."""
        return self._spans

    def sampling(self) -> SamplingStatistics:
        """Say how the sources of samples are."""
        return self._sampling

    def snapshot(self) -> RecorderSnapshot | None:
        """Say how it is; None where no tables are kept."""
        companion, feed = self._companion.statistics(), self._feed
        if feed is None:
            return None
        return RecorderSnapshot(
            running=companion.running,
            restarts=companion.restarts,
            responsive=companion.running and self._responsive,
            store_available=companion.running and self._responsive and not feed.trouble,
            trouble=feed.trouble,
            rows=feed.rows,
            lines=feed.lines,
            unreadable=feed.unreadable,
            expired=feed.expired,
            backlog_bytes=feed.backlog_bytes,
            lag_s=feed.lag_s,
            lost_bytes=feed.lost_bytes,
            samples_dropped=feed.samples_dropped,
        )

    async def run(self) -> None:
        """Keep it running; ends only by cancellation, and then the process is gone."""
        asking = asyncio.ensure_future(self._refresh())
        try:
            await self._companion.run()
        finally:
            asking.cancel()

    def kill(self) -> None:
        """End the process at once; for a forced stop."""
        self._companion.kill()

    async def _refresh(self) -> None:
        while True:
            try:
                if self._feed is not None:
                    self._feed = await self._asker.status()
                    self._sampling = await self._asker.sample(self._sampled())
                if self._spans is not None:
                    self._spans = await self._asker.span_status()
                self._responsive = True
            except (StoreError, OSError):
                self._responsive = False
            await asyncio.sleep(REFRESH_S)
