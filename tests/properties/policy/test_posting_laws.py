"""Laws of the books: nothing is lost, nothing is counted twice, whatever the order in which entries come."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from tests.unit.books.random_entries import LAST_S, credited, entries, histories, settlements

from tidegate.domain.books import Entry, Hold
from tidegate.policy.billing.posting import OperationState, Posting, PostingKind, expiry_of, posting_of

History = list[tuple[float, list[Entry]]]


class Ledger:
    """The postings of a history, in memory."""

    def __init__(self) -> None:
        self.postings: list[Posting] = []
        self.states: defaultdict[str, OperationState] = defaultdict(OperationState)

    def play(self, history: History) -> None:
        for now, batch in history:
            for entry in batch:
                self.take(posting_of(entry, self.states[entry.operation_id], now=now))
            self.expire(now)

    def expire(self, now: float) -> None:
        for posting in [posting for posting in self.postings if posting.kind is PostingKind.HOLD]:
            entry = posting.entry
            self.take(expiry_of(entry.operation_id, entry.tenant, self.states[entry.operation_id], now=now))

    def take(self, posting: Posting | None) -> None:
        if posting is not None:
            self.postings.append(posting)


@given(histories)
def test_every_posting_sums_to_zero(history: History) -> None:
    """Law: what leaves one account is in another."""
    ledger = Ledger()
    ledger.play(history)
    assert [] == [each for each in ledger.postings if each.credit_micro + each.balance_micro + each.holds_micro + each.spent_micro]


@given(histories)
def test_spent_is_what_was_settled_first(history: History) -> None:
    """Law: each attempt is settled exactly once, with its hold, after it, or without one."""
    ledger = Ledger()
    ledger.play(history)
    for tenant, expected in settlements(history).items():
        assert expected == sum(each.spent_micro for each in ledger.postings if each.entry.tenant == tenant)
    for tenant, expected in credited(history).items():
        assert expected == -sum(each.credit_micro for each in ledger.postings if each.entry.tenant == tenant)


@given(histories)
def test_holds_are_never_negative_and_end(history: History) -> None:
    """Law: an operation holds nothing below zero at any time, nothing after its end, and nothing once all holds have expired."""
    ledger = Ledger()
    ledger.play(history)
    held: defaultdict[str, int] = defaultdict(int)
    closed: set[str] = set()
    for posting in ledger.postings:
        operation = posting.entry.operation_id
        held[operation] += posting.holds_micro
        if posting.kind in {PostingKind.SETTLE, PostingKind.RELEASE}:
            closed.add(operation)
        assert held[operation] == 0 if operation in closed else held[operation] >= 0
    ledger.expire(LAST_S)
    assert 0 == sum(posting.holds_micro for posting in ledger.postings)


@given(histories)
def test_a_history_told_twice_is_told_once(history: History) -> None:
    """Law: every entry may come again, at once or after everything else."""
    once, twice = Ledger(), Ledger()
    once.play(history)
    twice.play([(now, [*batch, *batch]) for now, batch in history])
    assert once.postings == twice.postings
    twice.play([(LAST_S, batch) for _, batch in history])
    amounts = [(each.credit_micro, each.spent_micro) for each in once.postings if each.credit_micro or each.spent_micro]
    assert amounts == [(each.credit_micro, each.spent_micro) for each in twice.postings if each.credit_micro or each.spent_micro]


@given(entries())
def test_a_state_read_back_is_the_one_that_was(entry: Entry) -> None:
    """Law: what is read from the rows decides like what was kept in memory."""
    live, read = OperationState(), OperationState()
    posting = posting_of(entry, live, now=0.0)
    assert posting is not None
    read.note(posting.kind, entry.attempt, posting.holds_micro, entry.expires_at if isinstance(entry, Hold) else None)
    assert (live.held_micro, live.hold_attempt, live.expires_at, live.closed, live.seen) == (
        read.held_micro,
        read.hold_attempt,
        read.expires_at,
        read.closed,
        read.seen,
    )
