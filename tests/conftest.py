"""How the suite keeps within five minutes on two cores: where coverage looks, which process runs what, how laws are drawn."""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

TRACED = tuple(
    f"tests/{part}"
    for part in (
        *("properties/policy/test_pricing_laws.py", "properties/wire/test_length_prefix_laws.py"),
        *("scenarios/test_extensions.py", "scenarios/test_lease_stories.py", "scenarios/test_scenarios.py"),
        *("unit/admin/", "unit/auth/", "unit/billing/", "unit/domain/", "unit/flow/", "unit/gateway/", "unit/limits/"),
        *("unit/policy/", "unit/records/", "unit/resilience/", "unit/routing/", "unit/rules/", "unit/tracing/", "unit/wire/"),
    )
)
"""Tests that cover the sans-I/O half between them. A traced test takes two to four times as long, so that no other is traced."""

WAITING = tuple(
    f"tests/{part}"
    for part in (
        *("e2e/test_shared_limits.py", "e2e/test_local_engine.py", "unit/node/test_node_supervisor.py", "unit/books/test_books_kills.py"),
        *("e2e/test_console.py", "conformance/", "e2e/", "unit/books/", "unit/health/", "unit/limits/", "unit/node/", "unit/samplers/"),
    )
)
"""In the order in which they begin: a long file at the end would leave the other processes idle."""
COMPUTING = tuple(f"tests/{part}/" for part in ("properties", "scenarios", "unit/analytics", "unit/config"))

# The suite says the same of the same code, however slow the machine; `make soak` draws anew each time.
settings.register_profile("suite", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What collecting makes stays to the end: the garbage collector need not go through it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what mostly waits first and what mostly computes last."""
    items.sort(key=_place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Trace only what coverage needs. A test process of xdist has two tracers, one above the other."""
    stopped: list[Coverage] = []
    while not item.nodeid.startswith(TRACED) and (tracer := Coverage.current()) is not None:
        tracer.stop()
        stopped.append(tracer)
    try:
        return (yield)
    finally:
        for tracer in reversed(stopped):
            tracer.start()


def _place(item: pytest.Item) -> int:
    for place, start in enumerate(WAITING):
        if item.nodeid.startswith(start):
            return place
    return len(WAITING) + item.nodeid.startswith(COMPUTING)


class FromBothEnds(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Give the last process files from the back and the others from the front, so that one computes while the others wait."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node is self.nodes[-1]:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Keep the order of the files: xdist would sort them by their number of tests."""
    if config.option.dist != "loadfile":
        return None
    config.option.loadscopereorder = False
    return FromBothEnds(config, log)
