"""Limits of keys in one process: admission, reservation, and what is given back."""

from __future__ import annotations

import pytest

from tidegate.domain.principal import Limits
from tidegate.domain.units import KeyId
from tidegate.policy.metering.limit_store import MemoryLimitStore, MemoryPermit
from tidegate.ports import Denied, LimitName, LimitState, WindowState

KEY = KeyId("k1")
LIMITS = Limits(tokens_per_minute=1000, requests_per_minute=5, concurrency=2)


def _admit(store: MemoryLimitStore, limits: Limits = LIMITS, *, now: float = 0.0) -> MemoryPermit:
    permit = store.admit(KEY, limits, now=now)
    assert isinstance(permit, MemoryPermit)
    return permit


def test_of_two_hundred_calls_at_a_limit_worth_ten_ten_are_admitted() -> None:
    """The check and the reservation are one step, so calls that have not answered yet count."""
    store = MemoryLimitStore()
    limits = Limits(tokens_per_minute=1000)
    admitted = [permit.reserve(100, now=0.0) is None for permit in (_admit(store, limits) for _ in range(200))]
    assert sum(admitted) == 10


def test_concurrency_is_refused_beyond_the_ceiling_and_returns() -> None:
    """The third call waits for one of the two to end."""
    store = MemoryLimitStore()
    first, _second = _admit(store), _admit(store)
    assert store.admit(KEY, LIMITS, now=0.0) == Denied(LimitName.CONCURRENCY, 2, 0, 1, 1.0)
    first.settle(0, now=0.0)
    _admit(store)


def test_requests_are_refused_with_the_true_wait() -> None:
    """The sixth request of a minute may come when the first one leaves the window."""
    store = MemoryLimitStore()
    for second in range(5):
        _admit(store, now=float(second)).settle(0, now=float(second))
    assert store.admit(KEY, LIMITS, now=10.0) == Denied(LimitName.REQUESTS, 5, 0, 1, 51.0)


def test_a_refusal_consumes_nothing_anywhere() -> None:
    """A call refused by its tokens gives its request and its place back."""
    store = MemoryLimitStore()
    before = store.state(KEY, LIMITS, now=0.0)
    for _ in range(20):
        permit = _admit(store)
        denied = permit.reserve(1001, now=0.0)
        assert denied == Denied(LimitName.TOKENS, 1000, 1000, 1001, None)
        permit.cancel(now=0.0)
    assert store.state(KEY, LIMITS, now=0.0) == before
    assert (store.outstanding, store.held_tokens) == (0, 0)


def test_tokens_are_refused_with_what_is_left_and_when() -> None:
    """The refusal names estimate, limit, remaining and the time until it fits."""
    store = MemoryLimitStore()
    _admit(store).reserve(700, now=0.0)
    assert _admit(store, now=20.0).reserve(400, now=20.0) == Denied(LimitName.TOKENS, 1000, 300, 400, 41.0)


def test_settling_returns_what_was_not_used_and_charges_what_was_used_beyond() -> None:
    """The window ends with the true use, whichever way the estimate was wrong."""
    store = MemoryLimitStore()
    low, high = _admit(store), _admit(store)
    low.reserve(500, now=0.0)
    high.reserve(100, now=0.0)
    assert store.held_tokens == 600
    low.settle(120, now=1.0)
    high.settle(250, now=1.0)
    tokens = store.state(KEY, LIMITS, now=1.0).tokens
    assert tokens == WindowState(1000, 630, 61.0)
    assert store.held_tokens == 0


def test_a_permit_ends_once() -> None:
    """Ending twice is a broken contract, and so is a reservation after the end or a second one."""
    store = MemoryLimitStore()
    permit = _admit(store)
    permit.reserve(1, now=0.0)
    with pytest.raises(AssertionError):
        permit.reserve(1, now=0.0)
    permit.settle(1, now=0.0)
    with pytest.raises(AssertionError):
        permit.settle(1, now=0.0)
    with pytest.raises(AssertionError):
        permit.reserve(1, now=0.0)


def test_without_ceilings_nothing_is_refused_and_nothing_reported() -> None:
    """A key without limits has no windows to report."""
    store = MemoryLimitStore()
    permit = _admit(store, Limits())
    assert permit.remaining_tokens(now=0.0) is None
    assert permit.ceiling_tokens() is None
    assert permit.reserve(10**9, now=0.0) is None
    assert store.state(KEY, Limits(), now=0.0) == LimitState(requests=None, tokens=None)
    permit.cancel(now=0.0)


def test_a_key_that_never_called_has_its_whole_limit() -> None:
    """State of an unknown key is a full window."""
    state = MemoryLimitStore().state(KEY, LIMITS, now=0.0)
    assert state == LimitState(requests=WindowState(5, 5, 0.0), tokens=WindowState(1000, 1000, 0.0))


def test_workers_share_every_ceiling() -> None:
    """Four workers together give the limit once, and clients see the whole limit."""
    store = MemoryLimitStore(workers=4)
    permit = _admit(store, Limits(tokens_per_minute=1000, concurrency=2))
    assert permit.ceiling_tokens() == 250
    assert permit.reserve(200, now=0.0) is None
    assert permit.remaining_tokens(now=0.0) == 50
    assert store.state(KEY, LIMITS, now=0.0).tokens == WindowState(1000, 200, 61.0)
    assert isinstance(store.admit(KEY, Limits(concurrency=2), now=0.0), Denied)


def test_idle_keys_are_forgotten_and_busy_ones_are_not() -> None:
    """Memory follows the keys in use."""
    store = MemoryLimitStore()
    _admit(store, now=0.0).settle(10, now=0.0)
    busy = store.admit(KeyId("busy"), LIMITS, now=0.0)
    assert isinstance(busy, MemoryPermit)
    assert store.statistics(now=30.0).keys == 2
    assert store.statistics(now=130.0).keys == 1
    assert store.statistics(now=131.0).outstanding == 1
    busy.cancel(now=131.0)
    assert repr(store) == "MemoryLimitStore(keys=1, outstanding=0, held_tokens=0)"


def test_looking_at_the_store_moves_no_debt() -> None:
    """A sweep between two calls must not change when a debt is paid."""
    limits = Limits(tokens_per_minute=6000)
    quiet, watched = MemoryLimitStore(), MemoryLimitStore()
    for store in (quiet, watched):
        permit = _admit(store, limits)
        permit.reserve(1000, now=0.0)
        permit.settle(9000, now=0.0)
    for second in range(0, 120, 5):
        watched.statistics(now=float(second))
    assert quiet.state(KEY, limits, now=125.0) == watched.state(KEY, limits, now=125.0)
