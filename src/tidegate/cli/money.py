"""`tidegate usage`, `invoice` and `reconcile`: reports over what was used and what it cost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from typing import TypeVar

import msgspec

from tidegate.adapters.records.reader import RecordReader
from tidegate.adapters.wall_clock import wall_clock
from tidegate.billing.calls import BilledCall, call_of_books, calls_of_record
from tidegate.billing.invoice import invoices, invoices_csv, invoices_json, invoices_text
from tidegate.billing.layout import plain as plain_name
from tidegate.billing.reconcile import days_of, our_figures, read_export, reconciliation_csv, reconciliation_json, reconciliation_text
from tidegate.billing.reconcile import reconcile as compare
from tidegate.billing.usage import report_csv, report_json, report_table, usage_report, usage_rows
from tidegate.cli.books import BooksPlace
from tidegate.cli.report_choices import GroupName, ReportForm
from tidegate.config.bookkeeping import books_are_kept
from tidegate.config.schema import Configuration
from tidegate.domain.books import UsageRow
from tidegate.domain.record import RequestRecord
from tidegate.errors import ConfigurationError
from tidegate.node.exits import Exit
from tidegate.policy.billing.hybrid import ResourceUse
from tidegate.wiring.prices import price_book_of

_Report = TypeVar("_Report")

_MAX_EXPORT_BYTES = 268_435_456
"""A month of single calls of a busy account; more is split by whoever exports it."""


def usage(
    configuration: Configuration,
    by: Sequence[GroupName],
    *,
    since: str | None,
    until: str | None,
    tenant: str | None,
    color: str | None,
    top: int,
    form: ReportForm,
) -> int:
    """Print who used how much."""
    now = datetime.fromtimestamp(wall_clock(), UTC)
    first = instant(since) if since is not None else _month_start(now)
    last = instant(until) if until is not None else now
    calls = _Calls(configuration, first, last, tenant=tenant, color=color)
    rows = calls.usage(by)
    span = (f"{first:%Y-%m-%d %H:%M}", f"{last:%Y-%m-%d %H:%M}")
    report = usage_report(rows, by, top=top, currency=configuration.prices.currency, since=span[0], until=span[1])
    _print(report, form, table=report_table, csv=report_csv, plain=report_json)
    calls.tell()
    return Exit.OK


def invoice(configuration: Configuration, month: str, *, tenant: str | None, color: str | None, form: ReportForm) -> int:
    """Print the invoices of a month."""
    first, last = month_of(month)
    book = price_book_of(configuration)
    calls = _Calls(configuration, first, last, tenant=tenant, color=color)
    resources = calls.resources() if book.hybrid else {}
    made = invoices(calls, month=month, currency=book.currency, plans=book.hybrid, resources=resources)
    _print(made, form, table=invoices_text, csv=invoices_csv, plain=invoices_json)
    calls.tell()
    if last.timestamp() > wall_clock():
        sys.stderr.write(f"note: {month} is not over; this is what it comes to so far.\n")
    return Exit.OK


def reconcile(
    configuration: Configuration,
    export: Path,
    *,
    upstream: str | None,
    color: str | None,
    aliases: Sequence[str],
    tolerance: float,
    form: ReportForm,
) -> int:
    """Compare a provider's export with our figures; 1 when a model drifts beyond the tolerance. The provider bills us for tests too."""
    if not 0 <= tolerance < inf:  # nothing drifts by more than NaN
        raise ConfigurationError(f"A tolerance of {tolerance:g} cannot be meant: write a share of the provider's figure, like 0.01.")
    theirs = read_export(_text_of(export), name=str(export))
    first, last = (datetime.fromtimestamp(at, UTC) for at in days_of(theirs))
    calls = _Calls(configuration, first, last, color=color, with_unbilled=True)
    ours = our_figures(call for call in calls if upstream is None or call.dimensions.upstream == upstream)
    found = compare(theirs, ours, tolerance=tolerance, aliases=dict(_alias(each) for each in aliases))
    _print(found, form, table=reconciliation_text, csv=reconciliation_csv, plain=reconciliation_json)
    calls.tell()
    return Exit.FAILED if found.beyond else Exit.OK


class _Calls:
    """The calls that ended in a span: out of the books where they are kept, else out of the request records.

    Only the records know of colours, and of what nobody was billed for. Of one `color`, all calls are meant, billed or not.
    """

    def __init__(
        self,
        configuration: Configuration,
        since: datetime,
        until: datetime,
        *,
        tenant: str | None = None,
        color: str | None = None,
        with_unbilled: bool = False,
    ) -> None:
        self._configuration = configuration
        self._since = since.timestamp()
        self._until = until.timestamp()
        self._tenant = tenant
        self._color = color
        self._with_unbilled = with_unbilled
        self._kept = books_are_kept(configuration)
        self._in_books = self._kept and color is None
        self._unreadable = 0

    def __iter__(self) -> Iterator[BilledCall]:
        if not self._in_books:
            yield from self._of_records()
            return
        with BooksPlace(self._configuration).open() as books:
            for settled in books.settled_calls(since=self._since, until=self._until, tenant=self._tenant or ""):
                yield call_of_books(settled)
        if self._with_unbilled and self._records.is_dir():
            yield from self._of_records(only_unbilled=True)

    def usage(self, by: Sequence[GroupName]) -> list[UsageRow]:
        """Sum them up, grouped."""
        if not self._in_books:
            return usage_rows(self._of_records(), by)
        with BooksPlace(self._configuration).open() as books:
            return books.usage(by, since=self._since, until=self._until, tenant=self._tenant or "")

    def resources(self) -> dict[str, ResourceUse]:
        """Give what each tenant used of memory and traffic, which only the records know."""
        used: dict[str, ResourceUse] = {}
        for call in self._of_records():
            used[call.tenant] = used.get(call.tenant, ResourceUse()).plus(call.resources)
        return used

    def tell(self) -> None:
        """Say on standard error where the figures are from, and what could not be read."""
        if self._color is not None:
            sys.stderr.write(
                f'note: this is what requests of the color "{plain_name(self._color)}" came to, billed or not, '
                "out of the request records, of which old ones are deleted.\n"
            )
        elif not self._kept:
            sys.stderr.write("note: no books are kept, so this is out of the request records, of which old ones are deleted.\n")
        if self._unreadable:
            sys.stderr.write(f"note: {self._unreadable} lines of the request records cannot be read and were passed over.\n")

    def _of_records(self, *, only_unbilled: bool = False) -> Iterator[BilledCall]:
        directory = self._records
        if not directory.is_dir():
            raise ConfigurationError(f"There are no request records in {directory}: name the gateway's configuration with --config.")
        reader = RecordReader(directory)
        for record in reader.records(since=self._since, until=self._until):
            if self._is_meant(record) and (record.unbilled or not only_unbilled):
                yield from calls_of_record(record)
        self._unreadable = reader.unreadable

    @property
    def _records(self) -> Path:
        return Path(self._configuration.records.directory or Path(self._configuration.state_directory) / "records")

    def _is_meant(self, record: RequestRecord) -> bool:
        if self._tenant is not None and record.tenant != self._tenant:
            return False
        if self._color is not None:
            return record.color == self._color
        return self._with_unbilled or not record.unbilled


def instant(text: str) -> datetime:
    """Read a day or an instant; what names no zone is in UTC."""
    try:
        read = datetime.fromisoformat(text)
        return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ConfigurationError(f'"{text}" is neither a day nor a time: write 2026-11-30 or 2026-11-30T08:00.') from None


def month_of(text: str) -> tuple[datetime, datetime]:
    """Give the first instant of a month, and of the one after it."""
    if not text:
        raise ConfigurationError(f"Say which month: tidegate invoice --month {datetime.fromtimestamp(wall_clock(), UTC):%Y-%m}")
    try:
        first = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC)
        return first, _month_start(first + timedelta(days=31))
    except (ValueError, OverflowError):
        raise ConfigurationError(f'"{text}" is not a month: write it like 2026-11.') from None


def _month_start(at: datetime) -> datetime:
    return at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _alias(text: str) -> tuple[str, str]:
    theirs, equals, ours = text.partition("=")
    if not (theirs and equals and ours):
        raise ConfigurationError(f'"{text}" does not say which of our models it is: write --alias THEIRS=OURS.')
    return theirs, ours


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_EXPORT_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(
            f"The export {path} cannot be read: {error.strerror or error}. Name the CSV file that the provider gave you."
        ) from error
    if len(raw) > _MAX_EXPORT_BYTES:
        raise ConfigurationError(f"{path} is larger than {_MAX_EXPORT_BYTES:,} bytes; export a shorter span, or days instead of calls.")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not in UTF-8 (byte {error.start}); export or save it again as CSV in UTF-8.") from error


def _print(
    report: _Report, form: ReportForm, *, table: Callable[[_Report], str], csv: Callable[[_Report], str], plain: Callable[[_Report], object]
) -> None:
    """Print a report in the form that was asked for; `plain` gives what JSON is made of."""
    if form is ReportForm.TABLE:
        print(table(report), end="")
    elif form is ReportForm.CSV:
        print(csv(report), end="")
    else:
        print(msgspec.json.format(msgspec.json.encode(plain(report))).decode())
