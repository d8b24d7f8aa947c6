"""What each entry does to the accounts."""

from __future__ import annotations

from tidegate.domain.books import Balance, Credit, Entry, Hold, OperationId, Release, Settle
from tidegate.domain.units import TenantId
from tidegate.policy.billing.posting import OperationState, Posting, expiry_of, posting_of

OPERATION, TENANT = OperationId("op"), TenantId("acme")
HOLD = Hold(OPERATION, 1, TENANT, 50, 10.0, expires_at=100.0)
SETTLE = Settle(OPERATION, 1, TENANT, 30, 20.0)
RELEASE = Release(OPERATION, 1, TENANT, 20.0)


def post(state: OperationState, entry: Entry, *, now: float = 11.0) -> tuple[int, int, int, int] | None:
    """Give the four amounts, or None."""
    return lines(posting_of(entry, state, now=now))


def lines(posting: Posting | None) -> tuple[int, int, int, int] | None:
    if posting is None:
        return None
    return posting.credit_micro, posting.balance_micro, posting.holds_micro, posting.spent_micro


def test_a_credit_is_a_balance() -> None:
    """What is given can be used."""
    assert (-100, 100, 0, 0) == post(OperationState(), Credit(OPERATION, TENANT, 100, 1.0))


def test_a_hold_is_kept_apart_and_a_settlement_gives_the_rest_back() -> None:
    """Of 50 held and 30 spent, 20 return to the balance."""
    state = OperationState()
    assert (0, -50, 50, 0) == post(state, HOLD)
    assert (0, 20, -50, 30) == post(state, SETTLE)


def test_a_later_attempt_moves_the_hold() -> None:
    """Only the difference is posted, so that never both are held; an earlier attempt that comes late changes nothing."""
    state = OperationState()
    post(state, Hold(OPERATION, 2, TENANT, 80, 12.0, expires_at=100.0))
    assert (0, 20, -20, 0) == post(state, Hold(OPERATION, 3, TENANT, 60, 13.0, expires_at=120.0))
    assert post(state, HOLD) is None
    assert "OperationState(held_micro=60, hold_attempt=3, closed=False)" == repr(state)


def test_a_release_gives_all_back() -> None:
    """An operation that cost nothing leaves no trace in the balance; told again it does nothing."""
    state = OperationState()
    post(state, HOLD)
    assert (0, 50, -50, 0) == post(state, RELEASE)
    assert post(state, RELEASE) is None
    assert post(state, Release(OPERATION, 2, TENANT, 21.0)) is None


def test_a_hold_that_comes_after_the_end_opens_nothing() -> None:
    """After the release, and after its own time."""
    state = OperationState()
    assert (0, 0, 0, 0) == post(state, RELEASE)
    assert post(state, HOLD) is None
    assert post(OperationState(), HOLD, now=100.0) is None


def test_a_settlement_after_the_expiry_is_debt() -> None:
    """The hold is back in the balance, which then pays; once."""
    state = OperationState()
    post(state, HOLD)
    assert expiry_of(OPERATION, TENANT, state, now=99.0) is None
    assert (0, 50, -50, 0) == lines(expiry_of(OPERATION, TENANT, state, now=100.0))
    assert expiry_of(OPERATION, TENANT, state, now=101.0) is None
    assert (0, -30, 0, 30) == post(state, SETTLE, now=200.0)
    assert post(state, SETTLE, now=201.0) is None


def test_an_expiry_closes_nothing() -> None:
    """An operation that lives longer than was thought may hold again."""
    state = OperationState()
    post(state, HOLD)
    expiry_of(OPERATION, TENANT, state, now=100.0)
    assert (0, -70, 70, 0) == post(state, Hold(OPERATION, 2, TENANT, 70, 101.0, expires_at=200.0), now=101.0)


def test_two_attempts_may_both_cost() -> None:
    """The first settlement ends the hold, the second is paid from the balance."""
    state = OperationState()
    post(state, HOLD)
    assert (0, 20, -50, 30) == post(state, SETTLE)
    assert (0, -5, 0, 5) == post(state, Settle(OPERATION, 2, TENANT, 5, 21.0))


def test_postings_may_be_read_in_any_order() -> None:
    """The latest hold is the one of the highest attempt, wherever it stands."""
    state = OperationState()
    for attempt, change in ((2, -20), (1, 50)):
        posting = posting_of(Hold(OPERATION, attempt, TENANT, 50, 10.0, expires_at=100.0 + attempt), OperationState(), now=0.0)
        assert posting is not None
        state.note(posting.kind, attempt, change, 100.0 + attempt)
    assert (30, 2, 102.0) == (state.held_micro, state.hold_attempt, state.expires_at)


def test_a_balance_is_sound_when_all_that_was_given_is_somewhere() -> None:
    """The equation that always holds."""
    assert Balance(TENANT, 100, 50, 20, 30).is_sound
    assert not Balance(TENANT, 100, 50, 20, 31).is_sound
