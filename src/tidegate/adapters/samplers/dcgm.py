"""The page of NVIDIA's DCGM exporter: the GPUs of a machine, which may be another one."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.adapters.samplers.pages import Page
from tidegate.analytics.exposition import dcgm_samples
from tidegate.analytics.samples import GpuOwners, Sample


class DcgmSampler:
    """A `Sampler` of one exporter."""

    def __init__(self, url: str, owners: GpuOwners, *, deadline_s: float) -> None:
        self.name = f"dcgm {url}"
        self._page = Page(url, deadline_s=deadline_s)
        self._owners = owners

    def __repr__(self) -> str:
        return f"DcgmSampler({self._page!r})"

    async def sample(self, *, now: float) -> Sequence[Sample]:  # noqa: ARG002  the page is of when it is asked for
        text = await self._page.text()
        try:
            return dcgm_samples(text, self._owners)
        except ValueError as error:
            raise self._page.not_understood(error) from error

    async def aclose(self) -> None:
        await self._page.aclose()
