"""The books in SQLite and in a real PostgreSQL: what is entered, what is refused, what can be asked."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from tests.unit.books.random_entries import FIRST_S, LAST_S, TENANTS, credited, histories, settlements

from tidegate.adapters.books import ledger
from tidegate.adapters.books.ledger import Books, BooksUnavailable, EntryRefused, Posted, Sweep
from tidegate.adapters.books.opening import open_books
from tidegate.domain.books import Balance, Credit, Dimensions, Entry, Hold, OperationId, Release, Settle, SettledCall, UsageRow
from tidegate.domain.units import TenantId
from tidegate.domain.usage import Evidence, Usage
from tidegate.errors import ConfigurationError, InvalidParameter

ACME = TenantId("acme")
NOW = 1_000.0


def hold(number: int, amount: int = 50, *, expires_at: float = 2_000.0) -> Hold:
    return Hold(OperationId(f"op-{number}"), 1, ACME, amount, NOW, expires_at)


def settle(number: int, amount: int = 30, *, at: float = NOW, model: str = "m", evidence: Evidence = Evidence.REPORTED) -> Settle:
    usage = Usage(prompt_tokens=10, completion_tokens=5, cached_tokens=3, reasoning_tokens=2, cache_write_tokens=1)
    by = Dimensions("key-1", "ann", "chat", model, "m*", "openrouter")
    return Settle(OperationId(f"op-{number}"), 1, ACME, amount, at, evidence, "2026-01", usage, by, f"gen-{number}")


def credit(amount: int) -> Credit:
    return Credit(OperationId("paid-1"), ACME, amount, NOW, "invoice 7")


# ── entering ──────────────────────────────────────────────────────────────────


def test_money_is_held_spent_and_given_back(books: Books) -> None:
    """Of a credit of 100, one call spends 30, one is running, one cost nothing."""
    posted = books.post([credit(100), hold(1), hold(2), hold(3), settle(1), Release(OperationId("op-2"), 1, ACME, NOW)], now=NOW)
    assert Posted(6, 0) == posted
    assert [Balance(ACME, 100, 20, 50, 30)] == books.balances()


def test_an_entry_that_comes_again_changes_nothing(books: Books) -> None:
    """In the same batch, in another one, with another amount."""
    assert Posted(2, 2) == books.post([hold(1), hold(1), settle(1), settle(1)], now=NOW)
    assert Posted(0, 2) == books.post([settle(1, 99), hold(1)], now=NOW)
    assert [Balance(ACME, 0, -30, 0, 30)] == books.balances()


def test_operations_of_different_tenants_are_different(books: Books) -> None:
    """No tenant's entry stands in another's way, even of the same name."""
    other = Settle(OperationId("op-1"), 1, TenantId("zoo"), 7, NOW)
    assert Posted(3, 0) == books.post([hold(1), other, settle(1)], now=NOW)
    assert [Balance(ACME, 0, -30, 0, 30), Balance(TenantId("zoo"), 0, -7, 0, 7)] == books.balances()


def test_a_batch_is_entered_whole_or_not_at_all(books: Books) -> None:
    """An amount that the database cannot take leaves nothing of its batch."""
    with pytest.raises(EntryRefused):
        books.post([credit(100), settle(1, 2**63)], now=NOW)
    assert [] == books.balances()
    assert Posted(1, 0) == books.post([credit(100)], now=NOW)


def test_two_writers_settle_once(opened: Callable[[], Books]) -> None:
    """Two desks that enter the same entries at the same time, as after a failover, post each once."""
    entries: list[Entry] = [entry for number in range(50) for entry in (hold(number), settle(number))]
    gate = threading.Barrier(2)
    posted: list[int] = []

    def enter(books: Books) -> None:
        gate.wait(10)
        posted.extend(books.post(entries[start : start + 10], now=NOW).posted for start in range(0, 100, 10))

    threads = [threading.Thread(target=enter, args=(opened(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert 100 == sum(posted)
    assert [Balance(ACME, 0, -1_500, 0, 1_500)] == opened().balances()


# ── expiry ────────────────────────────────────────────────────────────────────


def test_a_hold_past_its_time_is_released(books: Books) -> None:
    """The one that is due, and neither the settled nor the one that still runs; once."""
    books.post([hold(1, expires_at=1_500.0), hold(2, expires_at=1_500.0), hold(3), settle(2)], now=NOW)
    swept = books.expire(Sweep(), now=1_500.0, limit=10)
    assert (2, 1) == (swept.looked, swept.released)
    assert [Balance(ACME, 0, -80, 50, 30)] == books.balances()
    assert 0 == books.expire(swept, now=1_600.0, limit=10).looked
    assert 0 == books.expire(Sweep(), now=1_600.0, limit=10).released
    assert Posted(1, 0) == books.post([settle(1)], now=1_700.0)
    assert [Balance(ACME, 0, -110, 50, 60)] == books.balances()


def test_a_sweep_goes_through_the_holds_page_by_page(books: Books) -> None:
    """Each is looked at once, in the order of their ends, whatever the page's size."""
    books.post([hold(number, expires_at=1_500.0 + number // 2) for number in range(7)], now=NOW)
    place, looked, released = Sweep(), 0, 0
    while (place := books.expire(place, now=3_000.0, limit=3)).looked:
        looked += place.looked
        released += place.released
    assert (7, 7) == (looked, released)
    assert [Balance(ACME, 0, 0, 0, 0)] == books.balances()


def test_a_hold_that_was_moved_expires_at_its_latest_time(books: Books) -> None:
    """The first time is no longer its own."""
    moved = Hold(OperationId("op-1"), 2, ACME, 80, NOW, 1_900.0)
    books.post([hold(1, expires_at=1_500.0), moved], now=NOW)
    first = books.expire(Sweep(), now=1_600.0, limit=10)
    assert 0 == first.released
    assert 1 == books.expire(first, now=1_900.0, limit=10).released


# ── asking ────────────────────────────────────────────────────────────────────


def test_usage_is_summed_by_what_is_asked(books: Books) -> None:
    """Grouped by model, the most expensive first; of a span of time; of a tenant."""
    books.post(
        [settle(1, 10, model="a"), settle(2, 30, model="b", evidence=Evidence.COUNTED), settle(3, 15, model="a", at=1_200.0)], now=NOW
    )
    tokens = Usage(10, 5, 3, 2, 1)
    assert [UsageRow(("b",), 1, 30, tokens, 0), UsageRow(("a",), 1, 10, tokens, 10)] == books.usage(("model",), since=0.0, until=1_200.0)
    assert [UsageRow((), 3, 55, Usage(30, 15, 9, 6, 3), 25)] == books.usage((), since=0.0, until=2_000.0, tenant="acme")
    assert [] == books.usage(("tenant", "key"), since=0.0, until=2_000.0, tenant="zoo")
    assert [] == books.usage((), since=0.0, until=2_000.0, tenant="zoo")
    with pytest.raises(InvalidParameter, match="tenant, key"):
        books.usage(("colour",), since=0.0, until=1.0)


def test_settled_calls_come_back_as_they_were(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, page by page, with everything that a bill or a comparison with the provider's needs."""
    monkeypatch.setattr(ledger, "PAGE", 2)
    entered = [settle(number) for number in range(5)]
    books.post(entered, now=NOW)
    expected = [
        SettledCall(
            e.operation_id,
            e.attempt,
            e.tenant,
            e.amount_micro,
            e.at,
            e.evidence,
            e.price_version,
            e.usage,
            e.dimensions,
            e.upstream_request_id,
        )
        for e in entered
    ]
    assert expected == list(books.settled_calls(since=NOW, until=NOW + 1, upstream="openrouter"))
    assert [] == list(books.settled_calls(since=NOW, until=NOW + 1, upstream="elsewhere"))


def test_verified_books_are_sound(books: Books) -> None:
    """The check counts what there is."""
    books.post([credit(100), hold(1), hold(2), settle(2)], now=NOW)
    found = books.verify()
    assert ((Balance(ACME, 100, 20, 50, 30),), 4, 1, ()) == (found.balances, found.postings, found.open_holds, found.faults)


# ── append only ───────────────────────────────────────────────────────────────


def _attempts(database: str) -> list[str]:
    """Give statements that would falsify the books."""
    columns = "operation_id, attempt, kind, tenant, at, posted_at, credit_micro, balance_micro, holds_micro, spent_micro, evidence"
    statements = [
        "UPDATE tidegate_postings SET spent_micro = 0",
        "DELETE FROM tidegate_postings",
        f"INSERT INTO tidegate_postings ({columns}) VALUES ('x', 0, 'credit', 'acme', 0, 0, -5, 6, 0, 0, NULL)",  # noqa: S608
        f"INSERT INTO tidegate_postings ({columns}) VALUES ('op-1', 1, 'settle', 'acme', 0, 0, 0, 0, 0, 0, 'reported')",  # noqa: S608
    ]
    if database.startswith("postgresql:"):
        return [*statements, "TRUNCATE tidegate_postings"]
    replacing = "INSERT OR REPLACE INTO tidegate_postings SELECT * FROM tidegate_postings"
    return [*statements, replacing, statements[3].replace("INSERT", "INSERT OR REPLACE")]


def _execute(database: str, statement: str) -> None:
    if not database.startswith("postgresql:"):
        with closing(sqlite3.connect(database)) as connection:
            connection.execute(statement)
            connection.commit()
        return
    asyncpg = pytest.importorskip("asyncpg")

    async def run() -> None:
        connection = await asyncpg.connect(database)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(run())


def test_nothing_is_changed_removed_or_uneven(books: Books, database: str) -> None:
    """Whoever opens the database by hand is refused by it: changes, removals, a second settlement, lines that do not sum to zero."""
    books.post([credit(100), settle(1)], now=NOW)
    before = books.verify()
    for statement in _attempts(database):
        with pytest.raises(Exception, match=r"posting|constraint|CHECK|UNIQUE"):
            _execute(database, statement)
    assert before == books.verify()


def test_the_check_finds_what_somebody_forced_in(books: Books, database: str) -> None:
    """Whoever owns the database can take the guards away; the check tells what was done then."""
    if database.startswith("postgresql:"):
        pytest.skip("forcing it in is shown on SQLite")
    books.post([hold(1), settle(1), hold(2)], now=NOW)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("DROP TRIGGER tidegate_no_update")
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("UPDATE tidegate_postings SET spent_micro = 1 WHERE kind = 'settle'")
        connection.execute("UPDATE tidegate_postings SET holds_micro = -10 WHERE operation_id = 'op-2'")
        connection.commit()
    faults = books.verify().faults
    assert "the accounts of tenant acme do not add up" in faults
    assert "operation op-1 has a posting whose lines do not sum to zero" in faults
    assert "operation op-2 holds money after its end, or less than nothing" in faults


def test_the_lines_have_named_accounts(books: Books) -> None:
    """For people who look into the database: each line under the account that it is in."""
    books.post([credit(100), settle(1)], now=NOW)
    lines = books._database.rows("SELECT account, CAST(sum(amount_micro) AS BIGINT) FROM tidegate_lines GROUP BY account ORDER BY account")
    assert [("balance:acme", 70), ("credit:acme", -100), ("spent:acme", 30)] == [tuple(line) for line in lines]


# ── opening ───────────────────────────────────────────────────────────────────


def test_books_are_opened_again_by_the_version_that_wrote_them(opened: Callable[[], Books], database: str) -> None:
    """What was entered is there; books of another version are left alone."""
    opened().post([credit(100)], now=NOW)
    assert [Balance(ACME, 100, 100, 0, 0)] == opened().balances()
    _execute(database, "UPDATE tidegate_books SET schema_version = 99")
    with pytest.raises(ConfigurationError, match="schema version 99"):
        opened()


def test_a_file_that_is_no_books_is_not_touched(tmp_path: Path) -> None:
    """Another program's database, a folder, and a file that is not there to be read."""
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE other (x)")
    for path, words in ((other, "not Tidegate's books"), (tmp_path, "cannot be opened")):
        with pytest.raises(ConfigurationError, match=words):
            open_books(str(path))
    with pytest.raises(ConfigurationError, match="There are no books"):
        open_books(str(tmp_path / "none.sqlite"), create=False)
    assert not (tmp_path / "none.sqlite").exists()


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    """Nobody else on the machine reads who spends what."""
    open_books(str(tmp_path / "books.sqlite")).close()
    assert 0o600 == (tmp_path / "books.sqlite").stat().st_mode & 0o777


def test_a_server_that_is_away_is_unavailable() -> None:
    """And its password is in no message."""
    with pytest.raises(BooksUnavailable) as caught:
        open_books("postgresql://ann:secret@127.0.0.1:1/books")
    assert "127.0.0.1:1/books" in caught.value.message
    assert "secret" not in caught.value.message


# ── the law ───────────────────────────────────────────────────────────────────


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=histories)
def test_credited_is_balance_and_holds_and_spent(history: list[tuple[float, list[Entry]]], books: Books) -> None:
    """Law: after every commit the equation holds, spent is the sum of what was settled first, and holds end."""
    # One database for all examples: each has tenants and operations of its own.
    books.post([], now=FIRST_S)
    number = len(books.balances())
    names = {tenant: TenantId(f"{tenant}-{number}") for tenant in TENANTS}
    spent, given_ = settlements(history), credited(history)
    for now, batch in history:
        books.post([_of_tenant(entry, names[entry.tenant]) for entry in batch], now=now)
        assert [] == [each for each in books.balances() if not each.is_sound]
    place = Sweep()
    while (place := books.expire(place, now=LAST_S, limit=5)).looked:
        pass
    found = books.verify()
    assert () == found.faults
    assert 0 == found.open_holds
    mine = {each.tenant: each for each in found.balances}
    for tenant, name in names.items():
        if name in mine:
            assert (given_[tenant], spent[tenant], 0) == (mine[name].credited_micro, mine[name].spent_micro, mine[name].holds_micro)


def _of_tenant(entry: Entry, tenant: TenantId) -> Entry:
    if isinstance(entry, Credit):
        return Credit(entry.operation_id, tenant, entry.amount_micro, entry.at, entry.note)
    if isinstance(entry, Hold):
        return Hold(entry.operation_id, entry.attempt, tenant, entry.amount_micro, entry.at, entry.expires_at)
    if isinstance(entry, Release):
        return Release(entry.operation_id, entry.attempt, tenant, entry.at)
    return Settle(entry.operation_id, entry.attempt, tenant, entry.amount_micro, entry.at, entry.evidence, entry.price_version, entry.usage)
