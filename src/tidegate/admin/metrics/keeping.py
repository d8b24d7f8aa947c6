"""Metrics of what is kept: records, bodies, tables, and books."""

from __future__ import annotations

from typing import Final

from tidegate.admin.metrics.spec import Kind, MetricSpec, counter, level, of_part, several
from tidegate.admin.view import BooksSnapshot, NodeSnapshot, RecorderSnapshot


def _recorder(node: NodeSnapshot) -> RecorderSnapshot | None:
    return node.recorder


def _books(node: NodeSnapshot) -> BooksSnapshot | None:
    return None if node.ledger is None else node.ledger.books


KEEPING: Final[tuple[MetricSpec, ...]] = (
    level("tidegate_records_queued", "records.queued", "Records waiting to be written."),
    level(
        "tidegate_records_spilling", "records.spilling", "Workers whose record directory cannot be written: records are in the spill file."
    ),
    level("tidegate_records_spill_bytes", "records.spill_bytes", "Bytes of records waiting in spill files."),
    counter("tidegate_records_written_total", "records.written", "Records written."),
    counter(
        "tidegate_records_dropped_total", "records.dropped", "Records lost because neither file could be written and the queue was full."
    ),
    counter(
        "tidegate_log_lines_dropped_total",
        "records.log_lines_dropped",
        "Request log lines that the reader of standard error did not take.",
    ),
    several(
        "tidegate_audit_bodies_total",
        Kind.COUNTER,
        "result",
        {"written": "audit.written", "dropped": "audit.dropped"},
        "Bodies that the audit policy keeps, and whether there was room for them.",
    ),
    level("tidegate_audit_queued_bytes", "audit.queued_bytes", "Bodies waiting to be written."),
    level("tidegate_audit_stuck", "audit.stuck", "Workers that cannot write bodies: they wait in memory, as far as there is room."),
    of_part("tidegate_recorder_up", Kind.GAUGE, _recorder, lambda recorder: recorder.responsive, "1 while the recorder process answers."),
    of_part(
        "tidegate_recorder_restarts_total",
        Kind.COUNTER,
        _recorder,
        lambda recorder: recorder.restarts,
        "Times the recorder process was started again.",
    ),
    of_part(
        "tidegate_recorder_store_up",
        Kind.GAUGE,
        _recorder,
        lambda recorder: recorder.store_available,
        "1 while records get into the tables; else they wait in their files.",
    ),
    of_part(
        "tidegate_recorder_backlog_bytes",
        Kind.GAUGE,
        _recorder,
        lambda recorder: recorder.backlog_bytes,
        "Record files that are not in the tables yet.",
    ),
    of_part(
        "tidegate_recorder_lag_seconds",
        Kind.GAUGE,
        _recorder,
        lambda recorder: recorder.lag_s,
        "Age of the oldest record that waits for the tables, by the recorder process's last answer.",
    ),
    of_part("tidegate_recorder_rows_total", Kind.COUNTER, _recorder, lambda recorder: recorder.rows, "Rows put into the tables."),
    of_part(
        "tidegate_recorder_unreadable_lines_total",
        Kind.COUNTER,
        _recorder,
        lambda recorder: recorder.unreadable,
        "Lines of record files that are no records.",
    ),
    of_part(
        "tidegate_recorder_expired_rows_total",
        Kind.COUNTER,
        _recorder,
        lambda recorder: recorder.expired,
        "Rows that were too old to be kept.",
    ),
    of_part(
        "tidegate_recorder_lost_bytes_total",
        Kind.COUNTER,
        _recorder,
        lambda recorder: recorder.lost_bytes,
        "Record files that were deleted before they were read to their end.",
    ),
    of_part(
        "tidegate_recorder_samples_dropped_total",
        Kind.COUNTER,
        _recorder,
        lambda recorder: recorder.samples_dropped,
        "Samples of machines and model servers that found no room while the store was away.",
    ),
    level("tidegate_books_alone", "books.alone", "Workers that cannot reach the ledger process: their entries wait in files."),
    level(
        "tidegate_books_unacknowledged_bytes", "books.unacknowledged_bytes", "Entries sent or in files that the books have not committed."
    ),
    counter("tidegate_books_entries_total", "books.posted", "Holds, settlements and releases that workers entered."),
    counter("tidegate_books_refused_total", "books.refused", "Entries that the books do not take: faults, told in the log."),
    counter("tidegate_books_lost_total", "books.lost", "Entries for which nothing had room: money that nobody charges."),
    of_part("tidegate_books_up", Kind.GAUGE, _books, lambda books: not books.trouble, "1 while entries get into the books."),
    of_part(
        "tidegate_books_queued_entries",
        Kind.GAUGE,
        _books,
        lambda books: books.queued,
        "Entries that wait for their commit in the ledger process.",
    ),
    of_part("tidegate_books_commits_total", Kind.COUNTER, _books, lambda books: books.commits, "Commits of the books."),
    of_part(
        "tidegate_books_committed_entries_total", Kind.COUNTER, _books, lambda books: books.committed, "Entries in commits of the books."
    ),
    of_part(
        "tidegate_books_repeated_entries_total",
        Kind.COUNTER,
        _books,
        lambda books: books.repeated,
        "Entries that were in the books already: they were sent twice, and count once.",
    ),
    of_part(
        "tidegate_books_expired_holds_total",
        Kind.COUNTER,
        _books,
        lambda books: books.expired_holds,
        "Holds that nobody ended, released past their time.",
    ),
)
