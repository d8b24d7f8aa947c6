"""`tidegate credit` and `tidegate books`: give a tenant money, show where tenants stand, check that nothing is missing."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path

import msgspec

from tidegate.adapters.books.ledger import Books
from tidegate.adapters.books.opening import open_books
from tidegate.adapters.wall_clock import wall_clock
from tidegate.billing.layout import plain, table
from tidegate.config.schema import Configuration
from tidegate.domain.books import LARGEST_MICRO, Balance, Credit, OperationId
from tidegate.domain.money import MICRO, money_text
from tidegate.domain.units import TenantId
from tidegate.errors import InvalidParameter
from tidegate.node.exits import Exit
from tidegate.wiring.books import LONGEST_NAME, books_database


class BooksPlace:
    """Where the books of a configuration are, and what their money is called."""

    def __init__(self, configuration: Configuration) -> None:
        self.database = books_database(configuration, Path(configuration.state_directory))
        self.currency = configuration.prices.currency

    @contextmanager
    def open(self, *, create: bool = False) -> Iterator[Books]:
        with closing(open_books(self.database, create=create)) as books:
            yield books


def credit(place: BooksPlace, tenant: str, amount: str, *, note: str, reference: str | None, as_json: bool) -> int:
    """Give a tenant an amount. The same `reference` counts once."""
    amount_micro = parse_amount(amount)
    for name, text in (("tenant", tenant), ("reference", reference)):
        if text is not None and not (text.isprintable() and 0 < len(text) <= LONGEST_NAME):
            raise InvalidParameter(f"The {name} is empty, longer than {LONGEST_NAME} characters, or not printable.", param=name)
    operation = OperationId(f"credit.{reference if reference is not None else secrets.token_hex(8)}")
    now = wall_clock()
    with place.open(create=True) as books:
        posted = books.post([Credit(operation, TenantId(tenant), amount_micro, now, note)], now=now).posted
        balance = next(each for each in books.balances() if each.tenant == tenant)
    if as_json:
        print(msgspec.json.encode({"operation": operation, "posted": bool(posted), "balance": balance}).decode())
        return Exit.OK
    if not posted:
        sys.stderr.write(f"{operation} was entered before; nothing was changed.\n")
    print(f"{plain(tenant)} has {_money(balance.balance_micro, place.currency)}.")
    return Exit.OK


def balance(place: BooksPlace, *, as_json: bool) -> int:
    """Show where every tenant stands."""
    with place.open() as books:
        balances = books.balances()
    if as_json:
        print(msgspec.json.format(msgspec.json.encode({"balances": balances})).decode())
    else:
        print(_table(balances, place.currency), end="")
    return Exit.OK


def verify(place: BooksPlace, *, as_json: bool) -> int:
    """Check the whole books; 1 when something is missing."""
    with place.open() as books:
        found = books.verify()
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        print(_table(found.balances, place.currency), end="")
        verdict = "sound: credited = balance + holds + spent" if not found.faults else f"NOT sound: {len(found.faults)} faults"
        print(f"{found.postings:,} postings, {found.open_holds:,} open holds; {verdict}.")
        sys.stderr.write("".join(f"{fault}\n" for fault in found.faults))
    return Exit.FAILED if found.faults else Exit.OK


def parse_amount(text: str) -> int:
    """Read an amount of whole units, like `12.50`, as millionths; exact, or refused."""
    try:
        micro = Decimal(text) * MICRO
        exact = micro.is_finite() and micro == micro.to_integral_value() and 0 < abs(micro) <= LARGEST_MICRO
    except InvalidOperation:
        exact = False
    if not exact:
        raise InvalidParameter(f"{text!r} is not an amount: write it like 12.50, with at most six decimals, and not 0.", param="amount")
    return int(micro)


def _table(balances: Sequence[Balance], currency: str) -> str:
    if not balances:
        return "The books are empty.\n"
    rows = [("tenant", "credited", "balance", "holds", "spent")]
    for each in balances:
        credited, balance = _money(each.credited_micro, currency), _money(each.balance_micro, currency)
        rows.append((each.tenant, credited, balance, _money(each.holds_micro, currency), _money(each.spent_micro, currency)))
    return table(rows)


def _money(amount_micro: int, currency: str) -> str:
    return f"{money_text(amount_micro, grouped=True)} {currency}".rstrip()
