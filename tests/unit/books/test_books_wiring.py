"""What requests enter in the books, and where a worker's entries wait."""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec

from tidegate.adapters.books.spill import EntrySpillFile
from tidegate.config.bookkeeping import books_are_kept
from tidegate.config.schema import Configuration
from tidegate.config.schema_books import BooksSection
from tidegate.config.schema_prices import ModelPriceSection, PricesSection
from tidegate.domain.books import Dimensions, Entry, Hold, OperationId, Release, Settle
from tidegate.domain.outcome import Outcome
from tidegate.domain.record import AttemptRecord, RequestRecord
from tidegate.domain.request import Operation
from tidegate.domain.units import Secret, TenantId
from tidegate.domain.usage import Evidence, Usage
from tidegate.wiring.books import BookKeeper, books_database, journal_of, worker_books

ACME = TenantId("acme")
STARTED = 1_000.25
OPERATION = OperationId(f"w1.{int(STARTED * 1_000_000):x}.req-1")


class Posted:
    """Keeps what is posted."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def post(self, entry: Entry) -> None:
        self.entries.append(entry)


def record(*attempts: AttemptRecord, usage: Usage = Usage(), request_id: str = "req-1", feature: str = "chat") -> RequestRecord:  # noqa: B008  frozen
    return RequestRecord(
        request_id=request_id,
        started_at=STARTED,
        operation=Operation.CHAT,
        outcome=Outcome.OK,
        status=200,
        duration_s=2.0,
        key_id="key_1",
        tenant=ACME,
        user="ann",
        model="smart",
        route="smart*",
        feature=feature,
        usage=usage,
        evidence=Evidence.COUNTED,
        cost_micro=sum(attempt.cost_micro for attempt in attempts),
        price_version="2026-01",
        attempts=attempts,
    )


def test_what_nobody_is_billed_for_is_not_entered() -> None:
    """Neither the call nor what it cost; a hold from a time when it was billed would be released."""
    books, posted = keeper()
    answered = AttemptRecord(1, "openrouter/0", "ok", model="qwen3-32b", cost_micro=300)
    unbilled = msgspec.structs.replace(record(answered, usage=Usage(10, 20)), color="bench", unbilled=True)
    books.end(unbilled)
    assert [] == posted.entries
    books.hold("req-1", STARTED, ACME, 500, at=1_000.5)
    books.end(unbilled)
    assert [Hold(OPERATION, 1, ACME, 500, 1_000.5, 1_060.5), Release(OPERATION, 1, ACME, STARTED + 2.0)] == posted.entries


def keeper() -> tuple[BookKeeper, Posted]:
    posted = Posted()
    return BookKeeper(posted, incarnation="w1", hold_expiry_s=60.0), posted


def test_a_request_is_held_moved_and_settled() -> None:
    """Each move takes the place of the hold before; the settlement has everything that a bill shows."""
    books, posted = keeper()
    books.hold("req-1", STARTED, ACME, 500, at=1_000.5)
    books.hold("req-1", STARTED, ACME, 800, at=1_001.0)
    answered = AttemptRecord(1, "openrouter/0", "ok", model="qwen3-32b", upstream_request_id="gen-1", cost_micro=300)
    books.end(record(answered, usage=Usage(10, 20)))
    assert [
        Hold(OPERATION, 1, ACME, 500, 1_000.5, 1_060.5),
        Hold(OPERATION, 2, ACME, 800, 1_001.0, 1_061.0),
        Settle(
            *(OPERATION, 1, ACME, 300, STARTED + 2.0, Evidence.COUNTED, "2026-01", Usage(10, 20)),
            *(Dimensions("key_1", "ann", "chat", "qwen3-32b", "smart*", "openrouter"), "gen-1"),
        ),
    ] == posted.entries
    assert "BookKeeper(w1, holding=0)" == repr(books)


def test_every_attempt_that_cost_something_is_settled() -> None:
    """A failed one by what its upstream reported, the last by the request's own usage."""
    books, posted = keeper()
    attempts = (
        AttemptRecord(1, "first/0", "failed", usage=Usage(5, 1), cost_micro=7),
        AttemptRecord(2, "first/1", "status_503"),
        AttemptRecord(3, "second/0", "ok", cost_micro=30),
    )
    books.end(record(*attempts, usage=Usage(10, 20)))
    settled = [entry for entry in posted.entries if isinstance(entry, Settle)]
    assert [(1, 7, Usage(5, 1), Evidence.REPORTED, "first"), (3, 30, Usage(10, 20), Evidence.COUNTED, "second")] == [
        (each.attempt, each.amount_micro, each.usage, each.evidence, each.dimensions.upstream) for each in settled
    ]
    assert len(settled) == len(posted.entries)


def test_what_costs_nothing_is_released_or_not_entered() -> None:
    """A hold of a request that produced nothing is given back; one that held nothing leaves no entry."""
    books, posted = keeper()
    books.hold("req-1", STARTED, ACME, 0, at=1_000.0)
    books.end(record())
    assert [] == posted.entries
    books.hold("req-1", STARTED, ACME, 500, at=1_000.0)
    books.end(record(AttemptRecord(1, "first/0", "status_503")))
    assert Release(OPERATION, 1, ACME, STARTED + 2.0) == posted.entries[-1]


def test_requests_of_the_same_name_are_different_operations() -> None:
    """The id is the client's to choose; it does not get the second request for nothing."""
    books, posted = keeper()
    used = AttemptRecord(1, "first/0", "ok", cost_micro=30)
    books.end(record(used))
    books.end(msgspec.structs.replace(record(used), started_at=STARTED + 0.000_1))
    BookKeeper(posted, incarnation="w2", hold_expiry_s=60.0).end(record(used))
    assert 3 == len({entry.operation_id for entry in posted.entries})


def test_words_of_clients_are_bounded_and_clean() -> None:
    """No database has to refuse a settlement for a NUL, half a surrogate pair or a very long name."""
    books, posted = keeper()
    books.end(record(AttemptRecord(1, "first/0", "ok", cost_micro=30), feature="a\0b\ud800" + "x" * 1_000))
    [settled] = posted.entries
    assert isinstance(settled, Settle)
    assert settled.dimensions.feature.startswith("a\N{REPLACEMENT CHARACTER}b?xxx")
    assert 200 == len(settled.dimensions.feature)
    assert msgspec.msgpack.encode(settled)


def test_books_are_kept_where_there_is_money() -> None:
    """Or where the configuration says so."""
    priced = Configuration(prices=PricesSection(models=(ModelPriceSection(model="*", input=1.0, output=2.0),)))
    assert [False, True, False, True] == [
        books_are_kept(each)
        for each in (
            Configuration(),
            priced,
            msgspec.structs.replace(priced, books=BooksSection(enabled=False)),
            Configuration(books=BooksSection(enabled=True)),
        )
    ]


def test_books_are_in_the_state_directory_unless_named(tmp_path: Path) -> None:
    """A file of its own, or what the configuration says."""
    assert str(tmp_path / "books.sqlite") == books_database(Configuration(), tmp_path)
    named = Configuration(books=BooksSection(database=Secret("postgresql://u:p@h/b")))
    assert "postgresql://u:p@h/b" == books_database(named, tmp_path)


def test_files_of_workers_that_are_no_more_have_one_heir(tmp_path: Path) -> None:
    """With two workers left of five, each takes over those of its own kind, and nobody another's."""
    for number in range(5):
        spill = EntrySpillFile(tmp_path / f"journal-{number}.spill")
        spill.append([b"x"])
        spill.close()
    (tmp_path / "journal-x.spill").touch()
    heirs = [journal_of("s", tmp_path, worker=worker, workers=2, rng=Random(1))._orphans for worker in range(2)]
    assert [["journal-2.spill", "journal-4.spill"], ["journal-3.spill"]] == [[path.name for path in each] for each in heirs]


def test_a_worker_has_books_where_they_are_kept(tmp_path: Path) -> None:
    """With a ledger process to reach; its figures tell how its entries fare."""
    kept = Configuration(books=BooksSection(enabled=True))
    assert worker_books(kept, None, tmp_path, incarnation="w1", worker=0, workers=1) is None
    assert worker_books(Configuration(), tmp_path / "l.sock", tmp_path, incarnation="w1", worker=0, workers=1) is None
    books = worker_books(kept, tmp_path / "l.sock", tmp_path, incarnation="w1", worker=0, workers=1)
    assert books is not None
    assert {"books.alone": 1.0, "books.unacknowledged_bytes": 0.0} == books.levels()
    assert {"books.posted": 0.0, "books.refused": 0.0, "books.lost": 0.0} == books.counters()
