"""Budgets that a reload adds: which ones those are, and what the ledger process is told of them."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import msgspec
import pytest

from tidegate.adapters.books.spent_before import Budgets
from tidegate.adapters.frame_server import FrameServer
from tidegate.adapters.frames import BEGIN
from tidegate.config.schema import Configuration
from tidegate.config.schema_books import BooksSection
from tidegate.config.schema_limits import LimitsSection, ScopeSection
from tidegate.config.schema_prices import MoneyBudgetSection
from tidegate.domain.limits import LimitMode, Period
from tidegate.domain.units import Secret
from tidegate.errors import InternalError
from tidegate.node.ledger_link import begin_budgets
from tidegate.node.ledger_settings import BUDGETS_VARIABLE, added_budgets, asks_books, budgets_of, ledger_environment

DAY = MoneyBudgetSection(name="day", scope=ScopeSection(tenant="each"), amount=5, per=Period.DAY)
MONTH = MoneyBudgetSection(name="month", amount=90)


def configured(*budgets: MoneyBudgetSection) -> Configuration:
    return Configuration(budgets=budgets)


def names(budgets: Budgets) -> list[str]:
    return [rule.name for rule in budgets.rules]


def test_what_a_reload_adds_is_counted_from_then_on() -> None:
    """What was there before is counted from the start, and what an earlier reload brought from that one."""
    first = budgets_of(configured(DAY), now=100.0)
    second = budgets_of(configured(DAY, MONTH), now=200.0, before=first)
    third = budgets_of(configured(MONTH, DAY), now=300.0, before=second)
    assert {"day": 100.0, "month": 200.0} == {rule.name: third.counted_from(rule) for rule in third.rules}
    assert (["month"], []) == (names(added_budgets(second, first)), names(added_budgets(third, second)))
    assert 200.0 == added_budgets(second, first).counted_from(second.rules[1])


@pytest.mark.parametrize(
    ("update", "is_another"),
    [
        (msgspec.structs.replace(DAY, amount=9), False),
        (msgspec.structs.replace(DAY, mode=LimitMode.SHADOW), False),
        (msgspec.structs.replace(DAY, per=Period.HOUR), True),
        (msgspec.structs.replace(DAY, scope=ScopeSection(tenant="acme")), True),
        (msgspec.structs.replace(DAY, name="days"), True),
    ],
)
def test_a_budget_is_another_by_its_name_its_scope_and_its_period(update: MoneyBudgetSection, *, is_another: bool) -> None:
    """Those are what its counter is called and how it counts."""
    before = budgets_of(configured(DAY), now=100.0)
    after = budgets_of(configured(update), now=200.0, before=before)
    assert is_another is bool(added_budgets(after, before).rules)
    assert (200.0 if is_another else 100.0) == after.counted_from(after.rules[0])


def test_a_store_that_outlives_nodes_is_not_told() -> None:
    """It knows what it has counted; without books there is nothing to tell either."""
    shared = Configuration(budgets=(DAY,), limits=LimitsSection(store=Secret("redis://127.0.0.1:6379/0")))
    without = Configuration(budgets=(DAY,), books=BooksSection(enabled=False))
    told = [ledger_environment(each, Path(), budgets_of(each, now=1.0)) for each in (configured(DAY), shared, without)]
    assert [True, False, False] == [BUDGETS_VARIABLE in each for each in told]
    assert [True, False, False] == [asks_books(each) for each in (configured(DAY), shared, without)]
    assert budgets_of(configured(DAY), now=1.0) == msgspec.json.decode(told[0][BUDGETS_VARIABLE], type=Budgets)


@pytest.mark.parametrize(
    ("behaviour", "reason"), [("absent", "No such file"), ("closes", "could not be read"), ("hangs", "no answer within")]
)
def test_a_ledger_process_that_does_not_answer_refuses_the_reload(tmp_path: Path, behaviour: str, reason: str) -> None:
    """With the budgets' names and the reason, within its deadline."""
    path = tmp_path / "ledger.sock"
    told = budgets_of(configured(DAY, MONTH), now=1.0)

    async def fail(payload: bytes) -> bytes:
        assert told == msgspec.json.decode(payload, type=Budgets)
        raise InternalError("The books are away.")

    async def ask() -> None:
        if behaviour == "absent":
            await begin_budgets(path, told)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            if behaviour == "hangs":
                await begin_budgets(path, told, deadline_s=0.05)
            server = FrameServer(listener, {BEGIN: fail})
            try:
                await begin_budgets(path, told)
            finally:
                server.close()

    with pytest.raises(InternalError, match=r"day, month") as refused:
        asyncio.run(ask())
    assert reason in refused.value.message
