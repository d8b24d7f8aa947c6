"""`tidegate credit` and `tidegate books`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tidegate.adapters.books.opening import open_books
from tidegate.cli.books import parse_amount
from tidegate.cli.main import main
from tidegate.domain.books import Hold, OperationId, Settle
from tidegate.domain.units import TenantId
from tidegate.errors import InvalidParameter

Captured = pytest.CaptureFixture[str]


def run(directory: Path, *words: str) -> int:
    return main([*words, "--state-directory", str(directory)])


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_credit_is_a_balance(tmp_path: Path, capsys: Captured) -> None:
    """Given, given again under the same reference, and taken back."""
    assert 0 == run(tmp_path, "credit", "acme", "12.5", "--reference", "invoice-7", "--note", "January")
    assert 0 == run(tmp_path, "credit", "acme", "12.5", "--reference", "invoice-7")
    assert 0 == run(tmp_path, "credit", "acme", "-0.000001")
    told = capsys.readouterr()
    assert ["acme has 12.50 USD.", "acme has 12.50 USD.", "acme has 12.499999 USD."] == told.out.splitlines()
    assert "credit.invoice-7 was entered before; nothing was changed." in told.err


def test_balances_are_shown_for_people_and_programs(tmp_path: Path, capsys: Captured) -> None:
    """What was given, what may be used, what is held, what was spent."""
    run(tmp_path, "credit", "acme", "1_000", "--json")
    assert {"operation", "posted", "balance"} == set(msgspec.json.decode(capsys.readouterr().out))
    with closing(open_books(str(tmp_path / "books.sqlite"))) as books:
        held = [Hold(OperationId(each), 1, TenantId("acme"), 250_000_000, 1.0, 9e9) for each in ("a", "b")]
        books.post([*held, Settle(OperationId("a"), 1, TenantId("acme"), 1_234_567, 2.0)], now=2.0)
    assert 0 == run(tmp_path, "books", "balance")
    assert "acme    1,000.00 USD  748.765433 USD  250.00 USD  1.234567 USD" == capsys.readouterr().out.splitlines()[1]
    assert 0 == run(tmp_path, "books", "balance", "--json")
    assert 250_000_000 == msgspec.json.decode(capsys.readouterr().out)["balances"][0]["holds_micro"]
    assert 0 == run(tmp_path, "books", "verify")
    assert "4 postings, 1 open holds; sound: credited = balance + holds + spent." == capsys.readouterr().out.splitlines()[-1]


def test_books_that_were_tampered_with_fail_the_check(tmp_path: Path, capsys: Captured) -> None:
    """Exit status 1, and each fault on standard error."""
    run(tmp_path, "credit", "acme", "5")
    with closing(sqlite3.connect(tmp_path / "books.sqlite")) as connection:
        connection.execute("DROP TRIGGER tidegate_no_update")
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("UPDATE tidegate_postings SET balance_micro = 1")
        connection.commit()
    assert 1 == run(tmp_path, "books", "verify")
    told = capsys.readouterr()
    assert told.out.endswith("NOT sound: 2 faults.\n")
    assert "the accounts of tenant acme do not add up" in told.err
    assert 1 == run(tmp_path, "books", "verify", "--json")


def test_without_books_there_is_advice(tmp_path: Path, capsys: Captured) -> None:
    """Looking makes no file; a first credit does."""
    assert 2 == run(tmp_path, "books", "balance")
    assert "There are no books at" in capsys.readouterr().err
    assert not (tmp_path / "books.sqlite").exists()


def test_empty_books_are_said_to_be_empty(tmp_path: Path, capsys: Captured) -> None:
    """Instead of a heading over nothing."""
    open_books(str(tmp_path / "books.sqlite")).close()
    assert 0 == run(tmp_path, "books", "balance")
    assert "The books are empty.\n" == capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "at_fault"),
    [(("", "5"), "tenant"), (("acme\n", "5"), "tenant"), (("a" * 201, "5"), "tenant"), (("acme", "5", "--reference", ""), "reference")],
)
def test_money_is_given_to_somebody(tmp_path: Path, capsys: Captured, words: tuple[str, ...], at_fault: str) -> None:
    """A variable that is not set in a script makes no account without a name, and no two payments one."""
    assert 0 != run(tmp_path, "credit", *words)
    assert f"The {at_fault} is empty, longer than 200 characters, or not printable." in capsys.readouterr().err
    assert not (tmp_path / "books.sqlite").exists()


@pytest.mark.parametrize("amount", ["", "0", "1.0000001", "nan", "inf", "ten", "1e30"])
def test_amounts_are_exact_or_refused(amount: str) -> None:
    """Nothing is rounded."""
    with pytest.raises(InvalidParameter):
        parse_amount(amount)
    assert 12_500_000 == parse_amount("12.5")
    assert -1 == parse_amount("-0.000001")
