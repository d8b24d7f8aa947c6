"""How full limits are, over all workers of a node."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from tidegate.domain.statistics import LimitLevel
from tidegate.node.worker_link import WorkerLink
from tidegate.node.worker_pool import WorkerPool

LEVEL = LimitLevel("r;tenant=a", "r", "tenant=a", "tokens", "sliding", 100, 40, 60, is_shadow=False)
OTHER = LimitLevel("q", "q", "everybody together", "requests", "sliding", 10, 1, 60, is_shadow=False)


class FakeLink(WorkerLink):
    """Answers without a process."""

    def __init__(self, levels: tuple[LimitLevel, ...], *, ready: bool = True) -> None:
        self._levels = levels
        self.ready = asyncio.Event()
        if ready:
            self.ready.set()

    async def limit_levels(self) -> tuple[LimitLevel, ...]:
        return self._levels


class FakePool(WorkerPool):
    def __init__(self, links: Sequence[WorkerLink]) -> None:
        self._fake_links = tuple(links)

    def _links(self) -> tuple[WorkerLink, ...]:
        return self._fake_links


def test_the_worker_with_the_least_left_is_believed() -> None:
    """Each counter once, the fullest first; a worker that starts is not asked."""
    fuller = msgspec.structs.replace(LEVEL, left=20)
    empty = msgspec.structs.replace(LEVEL, left=0)
    pool = FakePool([FakeLink((LEVEL,)), FakeLink((OTHER, fuller)), FakeLink((LEVEL,)), FakeLink((empty,), ready=False)])
    assert (OTHER, fuller) == asyncio.run(pool.limit_levels())
