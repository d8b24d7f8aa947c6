"""`/metrics` of a model server: vLLM, or llama.cpp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidegate.adapters.samplers.pages import Page
from tidegate.adapters.samplers.plan import ServerSource
from tidegate.analytics.exposition import ModelServerPages
from tidegate.analytics.samples import Sample

LONGEST_INTERVALS: Final = 3.5
"""Counts of a longer time are of no second in particular."""


class ModelServerSampler:
    """A `Sampler` of one replica."""

    def __init__(self, source: ServerSource, *, every_s: float, deadline_s: float) -> None:
        self.name = f"{source.kind} {source.replica}"
        self._page = Page(source.url, headers=source.headers, verify_tls=source.verify_tls, deadline_s=deadline_s)
        self._pages = ModelServerPages(source.kind, replica=source.replica, longest_s=LONGEST_INTERVALS * every_s)

    def __repr__(self) -> str:
        return f"ModelServerSampler({self._page!r})"

    async def sample(self, *, now: float) -> Sequence[Sample]:
        text = await self._page.text()
        try:
            return self._pages.take(text, now=now)
        except ValueError as error:
            raise self._page.not_understood(error) from error

    async def aclose(self) -> None:
        await self._page.aclose()
