"""Random histories of a few operations: entries in any order, twice, late, or never; between them the time goes on."""

from __future__ import annotations

from hypothesis import strategies as st

from tidegate.domain.books import Credit, Dimensions, Entry, Hold, OperationId, Release, Settle
from tidegate.domain.units import TenantId
from tidegate.domain.usage import Evidence, Usage

TENANTS = ("acme", "zoo")
FIRST_S, LAST_S = 1_000.0, 1_100.0
"""Every history happens between these instants, and every hold ends before the second."""

amounts = st.integers(0, 10_000)
operations = st.integers(1, 6).map(lambda number: (OperationId(f"op-{number}"), TenantId(TENANTS[number % 2])))
attempts = st.integers(1, 3)
instants = st.floats(FIRST_S, LAST_S - 1)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """One entry of one of the operations."""
    operation, tenant = draw(operations)
    kind = draw(st.sampled_from("hhhssrc"))
    at, amount, attempt = draw(instants), draw(amounts), draw(attempts)
    if kind == "c":
        return Credit(operation, tenant, draw(st.integers(-5_000, 50_000)), at, note="payment")
    if kind == "h":
        return Hold(operation, attempt, tenant, amount, at, expires_at=draw(instants))
    if kind == "s":
        return Settle(operation, attempt, tenant, amount, at, Evidence.REPORTED, "v1", Usage(amount, 1), Dimensions(key="k", model="m"))
    return Release(operation, attempt, tenant, at)


histories = st.lists(st.tuples(instants, st.lists(entries(), min_size=1, max_size=6)), max_size=8).map(
    lambda batches: sorted(batches, key=lambda batch: batch[0])
)
"""Batches, each with the instant at which it is posted."""


def settlements(history: list[tuple[float, list[Entry]]]) -> dict[str, int]:
    """Give what each tenant must have spent: the first settlement of each attempt counts, whatever else happened."""
    seen: set[tuple[str, int]] = set()
    spent = dict.fromkeys(TENANTS, 0)
    for _, batch in history:
        for entry in batch:
            if isinstance(entry, Settle) and (entry.operation_id, entry.attempt) not in seen:
                seen.add((entry.operation_id, entry.attempt))
                spent[entry.tenant] += entry.amount_micro
    return spent


def credited(history: list[tuple[float, list[Entry]]]) -> dict[str, int]:
    """Give what each tenant was given: of each operation the first credit counts."""
    seen: set[str] = set()
    given = dict.fromkeys(TENANTS, 0)
    for _, batch in history:
        for entry in batch:
            if isinstance(entry, Credit) and entry.operation_id not in seen:
                seen.add(entry.operation_id)
                given[entry.tenant] += entry.amount_micro
    return given
