"""What wiring makes of `books`: where they are, how a worker reaches them, and what requests enter in them.

One request is one operation. Its name begins with the worker's own draw, by which the ledger process knows who counted what it cost; then
come the instant of its begin and its id. A client may choose the id: two requests with the same one are two operations all the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final, Protocol

from tidegate.adapters.books.journal import Journal
from tidegate.adapters.books.spill import EntrySpillFile
from tidegate.config.bookkeeping import books_are_kept
from tidegate.config.schema import Configuration
from tidegate.domain.books import LARGEST_MICRO, Dimensions, Entry, Hold, OperationId, Release, Settle
from tidegate.domain.record import AttemptRecord, RequestRecord, billed_attempts
from tidegate.domain.units import TenantId

BOOKS_FILE: Final = "books.sqlite"
LONGEST_NAME: Final = 200  # of what clients choose; enough for any name, and an index of it stays small


def books_database(configuration: Configuration, state_directory: Path) -> str:
    """Give what `adapters.books.opening.open_books` takes."""
    database = configuration.books.database
    return str(state_directory / BOOKS_FILE) if database is None else database.reveal()


def journal_of(socket_path: str, state_directory: Path, *, worker: int, workers: int, rng: Random) -> Journal:
    """Give a worker's journal. Files of workers that are no more are taken over by those that are."""
    pattern = "journal-*.spill"
    orphans = []
    for path in sorted(state_directory.glob(pattern)):
        number = path.stem.removeprefix("journal-")
        if number.isdigit() and int(number) >= workers and int(number) % workers == worker:
            orphans.append(path)
    spill = EntrySpillFile(state_directory / pattern.replace("*", str(worker)))
    return Journal(socket_path, spill=spill, orphans=orphans, rng=rng)


class EntryPost(Protocol):
    """Takes entries; see `Journal.post`."""

    def post(self, entry: Entry) -> None: ...


class BookKeeper:
    """Enters what one worker's requests hold and cost. `incarnation` is drawn anew for every start of a worker."""

    def __init__(self, journal: EntryPost, *, incarnation: str, hold_expiry_s: float) -> None:
        self._journal = journal
        self._incarnation = incarnation
        self._hold_expiry_s = hold_expiry_s
        self._held: dict[OperationId, int] = {}
        """Holds of running requests, and how often each was moved; as many as there are requests."""

    def __repr__(self) -> str:
        return f"BookKeeper({self._incarnation}, holding={len(self._held)})"

    def hold(self, request_id: str, started_at: float, tenant: TenantId, cost_micro: int, *, at: float) -> None:
        """Hold what a request may come to cost, in place of what it held before. Instants are seconds since the epoch."""
        operation = self._operation(request_id, started_at)
        moved = self._held.get(operation, 0)
        if cost_micro == 0 and moved == 0:
            return
        self._held[operation] = moved + 1
        amount = min(cost_micro, LARGEST_MICRO)
        self._journal.post(Hold(operation, moved + 1, TenantId(_clean(tenant)), amount, at, at + self._hold_expiry_s))

    def end(self, record: RequestRecord) -> None:
        """Settle each attempt that used or cost something; release what is held for one that did neither, or is not billed."""
        operation = self._operation(record.request_id, record.started_at)
        moved = self._held.pop(operation, 0)
        settled = False
        for entry in () if record.unbilled else settlements(record, operation):
            settled = True
            self._journal.post(entry)
        if moved and not settled:
            tenant = TenantId(_clean(record.tenant))
            self._journal.post(Release(operation, moved, tenant, record.started_at + record.duration_s))

    def _operation(self, request_id: str, started_at: float) -> OperationId:
        return OperationId(f"{self._incarnation}.{int(started_at * 1_000_000):x}.{request_id}")


class WorkerBooks:
    """One worker's books: the journal, and who enters in it."""

    def __init__(self, journal: Journal, keeper: BookKeeper) -> None:
        self.journal = journal
        self.keeper = keeper

    def __repr__(self) -> str:
        return f"WorkerBooks({self.journal!r}, {self.keeper!r})"

    def levels(self) -> dict[str, float]:
        now = self.journal.statistics()
        return {"books.alone": float(not now.connected), "books.unacknowledged_bytes": float(now.in_flight_bytes + now.spilled_bytes)}

    def counters(self) -> dict[str, float]:
        now = self.journal.statistics()
        return {"books.posted": float(now.posted), "books.refused": float(now.refused), "books.lost": float(now.lost)}


def worker_books(
    configuration: Configuration, ledger_socket: Path | None, state_directory: Path, *, incarnation: str, worker: int, workers: int
) -> WorkerBooks | None:
    """Give a worker's books; None where none are kept."""
    if ledger_socket is None or not books_are_kept(configuration):
        return None
    rng = Random(os.urandom(32))  # noqa: S311  jitter
    journal = journal_of(str(ledger_socket), state_directory, worker=worker, workers=workers, rng=rng)
    keeper = BookKeeper(journal, incarnation=incarnation, hold_expiry_s=configuration.books.hold_expiry_s)
    return WorkerBooks(journal, keeper)


def settlements(record: RequestRecord, operation: OperationId) -> Iterator[Settle]:
    """Give the settlements of a finished request, one for each attempt that used or cost something."""
    for attempt, usage, evidence in billed_attempts(record):
        yield Settle(
            operation_id=operation,
            attempt=attempt.attempt,
            tenant=TenantId(_clean(record.tenant)),
            amount_micro=min(attempt.cost_micro, LARGEST_MICRO),
            at=record.started_at + record.duration_s,
            evidence=evidence,
            price_version=record.price_version,
            usage=usage,
            dimensions=_dimensions(record, attempt),
            upstream_request_id=_clean(attempt.upstream_request_id or ""),
        )


def _dimensions(record: RequestRecord, attempt: AttemptRecord) -> Dimensions:
    return Dimensions(
        key=_clean(record.key_id),
        user=_clean(record.user),
        feature=_clean(record.feature),
        model=_clean(attempt.model or record.model),
        route=record.route,
        upstream=attempt.upstream,
    )


def _clean(text: str) -> str:
    """Bound what others chose, and replace what not every database takes: NUL and lone surrogates."""
    text = text[:LONGEST_NAME]
    return text if text.isprintable() else text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
