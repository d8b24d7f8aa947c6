"""What an entry does to the four accounts of its tenant, given what the books know of its operation.

Invariants, whatever the order and however often entries come: the amounts of a posting sum to zero; an attempt is settled once; what an
operation holds is never below zero, and is nothing once it was settled or released; a settlement that comes after its hold has expired
is posted all the same, and what the balance lacks for it is debt.
"""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

import msgspec

from tidegate.domain.books import Credit, Entry, Hold, OperationId, Release, Settle
from tidegate.domain.units import TenantId


class PostingKind(StrEnum):
    """What is written beside an amount; `expiry` is a release that nobody asked for."""

    CREDIT = "credit"
    HOLD = "hold"
    SETTLE = "settle"
    RELEASE = "release"
    EXPIRY = "expiry"


_KINDS: dict[type[Entry], PostingKind] = {
    Credit: PostingKind.CREDIT,
    Hold: PostingKind.HOLD,
    Settle: PostingKind.SETTLE,
    Release: PostingKind.RELEASE,
}


class Posting(msgspec.Struct, frozen=True, gc=False):
    """One line in each account; the four sum to zero."""

    kind: PostingKind
    entry: Entry
    credit_micro: int = 0
    balance_micro: int = 0
    holds_micro: int = 0
    spent_micro: int = 0


class OperationState:
    """What the books know of one operation of one tenant: it is fed with its postings in any order."""

    __slots__ = ("closed", "expires_at", "held_micro", "hold_attempt", "seen")

    def __init__(self) -> None:
        self.held_micro = 0
        self.hold_attempt = -1
        """Of the latest hold; below every attempt when there was none."""
        self.expires_at = 0.0
        """Of the latest hold."""
        self.closed = False
        """Settled or released. An expiry closes nothing: the operation may live longer than was thought."""
        self.seen: set[tuple[PostingKind, int]] = set()

    def __repr__(self) -> str:
        return f"OperationState(held_micro={self.held_micro}, hold_attempt={self.hold_attempt}, closed={self.closed})"

    def note(self, kind: PostingKind, attempt: int, holds_micro: int, expires_at: float | None) -> None:
        """Take up one posting."""
        self.seen.add((kind, attempt))
        self.held_micro += holds_micro
        if kind is PostingKind.HOLD:
            if attempt > self.hold_attempt:
                self.hold_attempt, self.expires_at = attempt, expires_at or 0.0
        elif kind is PostingKind.SETTLE or kind is PostingKind.RELEASE:
            self.closed = True


def posting_of(entry: Entry, state: OperationState, *, now: float) -> Posting | None:
    """Say what is to be posted, and take it up in `state`; None when the entry changes nothing.

    `now` is seconds since the epoch. A hold that comes after the end of its operation, or after its own, opens nothing.
    """
    kind = _KINDS[type(entry)]
    if (kind, entry.attempt) in state.seen:
        return None
    held = state.held_micro
    match entry:
        case Credit(amount_micro=amount):
            posting = Posting(kind, entry, credit_micro=-amount, balance_micro=amount)
        case Hold(amount_micro=amount):
            if state.closed or entry.attempt < state.hold_attempt or entry.expires_at <= now:
                return None
            posting = Posting(kind, entry, balance_micro=held - amount, holds_micro=amount - held)
        case Settle(amount_micro=amount):
            posting = Posting(kind, entry, balance_micro=held - amount, holds_micro=-held, spent_micro=amount)
        case Release():
            if state.closed:
                return None
            posting = Posting(kind, entry, balance_micro=held, holds_micro=-held)
        case _:
            assert_never(entry)
    state.note(kind, entry.attempt, posting.holds_micro, entry.expires_at if isinstance(entry, Hold) else None)
    return posting


def expiry_of(operation: OperationId, tenant: TenantId, state: OperationState, *, now: float) -> Posting | None:
    """Release what an operation holds past its time; None when it holds nothing, or not past it."""
    if state.held_micro == 0 or state.expires_at > now:
        return None
    held, attempt = state.held_micro, state.hold_attempt
    posting = Posting(PostingKind.EXPIRY, Release(operation, attempt, tenant, now), balance_micro=held, holds_micro=-held)
    state.note(PostingKind.EXPIRY, attempt, -held, None)
    return posting
