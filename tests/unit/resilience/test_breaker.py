"""The breaker: what trips it, what it lets through, how it comes back."""

from __future__ import annotations

from random import Random

from tidegate.domain.upstream import BreakerPhase, BreakerSettings
from tidegate.policy.resilience.breaker import TRANSITIONS, Breaker

CLOSED, OPEN, HALF_OPEN = BreakerPhase.CLOSED, BreakerPhase.OPEN, BreakerPhase.HALF_OPEN
SOFT_OPEN, SOFT_HALF_OPEN = BreakerPhase.SOFT_OPEN, BreakerPhase.SOFT_HALF_OPEN
DEFAULT = BreakerSettings()


class _Longest(Random):
    """Draws the end of a range: no jitter."""

    def uniform(self, a: float, b: float) -> float:
        return max(a, b)


RNG = _Longest()


def _fail(breaker: Breaker, *times: float, connect: bool = False) -> None:
    for now in times:
        breaker.begin(now)
        breaker.fail(now=now, began_at=now, rng=RNG, connect=connect)


def _succeed(breaker: Breaker, *times: float) -> None:
    for now in times:
        breaker.begin(now)
        breaker.succeed(now=now, began_at=now)


def _opened(settings: BreakerSettings = DEFAULT) -> Breaker:
    """Open at 10.0, for a second."""
    breaker = Breaker(settings)
    _fail(breaker, 10.0, 10.0, connect=True)
    assert breaker.phase is OPEN
    return breaker


def _slow(breaker: Breaker, now: float) -> None:
    breaker.begin(now)
    breaker.output_began(now=now, began_at=now, slow=True, rng=RNG)
    breaker.succeed(now=now, began_at=now, early=True)


def test_the_table_leads_back_to_closed_from_everywhere() -> None:
    """Every phase has a way out, and every way ends at closed."""
    for phase in BreakerPhase:
        seen, reach = {phase}, [phase]
        while reach:
            for after in TRANSITIONS[reach.pop()].values():
                if after not in seen:
                    seen.add(after)
                    reach.append(after)
        assert CLOSED in seen


def test_connections_that_cannot_be_had_trip_at_once() -> None:
    """Two in a row; any other answer between them starts the count again."""
    breaker = Breaker(DEFAULT)
    _fail(breaker, 1.0, connect=True)
    _fail(breaker, 1.0)
    _fail(breaker, 1.0, connect=True)
    assert breaker.phase is CLOSED
    _fail(breaker, 1.0, connect=True)
    assert breaker.phase is OPEN
    assert breaker.reason == "2 connections in a row could not be had"


def test_failures_in_a_row_trip() -> None:
    """Five; a success between them starts the count again."""
    breaker = Breaker(DEFAULT)
    _fail(breaker, *[1.0] * 4)
    _succeed(breaker, 1.0)
    _fail(breaker, *[1.0] * 4)
    assert breaker.phase is CLOSED
    _fail(breaker, 1.0)
    assert (OPEN, "5 calls in a row failed", 1) == (breaker.phase, breaker.reason, breaker.trips)


def test_a_row_that_chance_explains_does_not_trip() -> None:
    """Two connections refused or five calls failed in a row are nothing where one call in ten of thousands fails; seven are."""
    breaker = Breaker(DEFAULT)
    for _ in range(2_500):
        _fail(breaker, 1.0)
        _succeed(breaker, *[1.0] * 9)
    _fail(breaker, 1.0, 1.0, connect=True)
    _fail(breaker, *[1.0] * 4)
    assert (CLOSED, 0) == (breaker.phase, breaker.trips)
    _fail(breaker, 1.0)
    assert (OPEN, "7 calls in a row failed") == (breaker.phase, breaker.reason)


def test_a_row_trips_among_many_calls_that_did_not_fail() -> None:
    """A busy server that fails one call in a hundred and then breaks down is left alone after the plain row."""
    breaker = Breaker(DEFAULT)
    for _ in range(20):
        _fail(breaker, 1.0)
        _succeed(breaker, *[1.0] * 99)
    _fail(breaker, *[1.0] * 5)
    assert (OPEN, "5 calls in a row failed") == (breaker.phase, breaker.reason)


def test_a_large_share_of_failures_trips_once_there_are_enough_calls() -> None:
    """Half of ten calls; nine prove nothing."""
    breaker = Breaker(DEFAULT)
    for _ in range(4):
        _succeed(breaker, 1.0)
        _fail(breaker, 1.0)
    _succeed(breaker, 1.0)
    assert breaker.phase is CLOSED
    _fail(breaker, 1.0)
    assert (OPEN, "5 of the last 10 calls failed") == (breaker.phase, breaker.reason)


def test_old_failures_do_not_count_for_the_share() -> None:
    """The short window is ten seconds long."""
    breaker = Breaker(DEFAULT)
    _fail(breaker, *[0.0] * 4)
    _succeed(breaker, *[12.0] * 9)
    _fail(breaker, *[12.0] * 4)
    assert breaker.phase is CLOSED


def test_an_open_breaker_refuses_until_its_pause_is_over() -> None:
    """Then it lets two probes through at a time, and no more."""
    breaker = _opened()
    assert not breaker.admits(10.9, soft=True)
    assert not breaker.wants_probe(10.9)
    assert (OPEN, HALF_OPEN) == (breaker.phase_at(10.9), breaker.phase_at(11.0))
    assert breaker.wait_s(10.5) == 0.5
    assert breaker.admits(11.0, soft=False)
    breaker.begin(11.0)
    assert breaker.wants_probe(11.0)
    assert breaker.wait_s(11.0) == 0.0
    breaker.begin(11.0)
    assert (HALF_OPEN, 2) == (breaker.phase, breaker.probes)
    assert not breaker.admits(11.0, soft=True)
    assert not breaker.wants_probe(11.0)
    assert breaker.wait_s(11.0) == 1.0
    assert repr(breaker) == "Breaker(half_open, 2 probes, FailureWindow(0 of 0 failed, 0 of 0 slow))"


def test_as_many_successes_as_probes_close_it() -> None:
    """One is not enough; a probe whose client left says nothing and gives its place back."""
    breaker = _opened()
    breaker.begin(11.0)
    breaker.begin(11.0)
    breaker.release(began_at=11.0)
    assert breaker.probes == 1
    breaker.succeed(now=12.0, began_at=11.0)
    assert (HALF_OPEN, 0) == (breaker.phase, breaker.probes)
    _succeed(breaker, 12.0)
    assert (CLOSED, "") == (breaker.phase, breaker.reason)


def test_a_failed_probe_opens_it_for_twice_as_long() -> None:
    """And so on, up to the longest pause; a trip soon after a recovery is one more in a row, a late one is not."""
    breaker = _opened()
    for at, wait in ((11.0, 2.0), (13.0, 4.0), (17.0, 8.0), (25.0, 16.0), (41.0, 30.0), (71.0, 30.0)):
        _fail(breaker, at)
        assert (OPEN, wait) == (breaker.phase, breaker.wait_s(at))
    assert breaker.trips == 7
    _succeed(breaker, 101.0, 101.0)
    _fail(breaker, 102.0, 102.0, connect=True)
    assert breaker.wait_s(102.0) == 30.0
    _succeed(breaker, 132.0, 132.0)
    _fail(breaker, 200.0, 200.0, connect=True)
    assert breaker.wait_s(200.0) == 1.0


def test_a_pause_is_shortened_by_up_to_a_quarter() -> None:
    """Breakers that tripped together do not come back together."""
    pauses = set()
    for seed in range(20):
        breaker = Breaker(DEFAULT)
        for _ in range(2):
            breaker.fail(now=0.0, began_at=0.0, rng=Random(seed), connect=True)
        pauses.add(breaker.wait_s(0.0))
    assert len(pauses) > 10
    assert all(0.75 <= pause <= 1.0 for pause in pauses)


def test_the_hung_calls_of_an_outage_do_not_open_it_again() -> None:
    """A call counts only in the phase it began in: neither its failure nor its place concerns a later one."""
    breaker = _opened()
    breaker.fail(now=10.5, began_at=10.0, rng=RNG)
    assert breaker.trips == 1
    breaker.begin(11.0)
    breaker.fail(now=11.0, began_at=5.0, rng=RNG)
    breaker.succeed(now=11.0, began_at=5.0)
    breaker.output_began(now=11.0, began_at=5.0, slow=True, rng=RNG)
    breaker.release(began_at=5.0)
    assert (HALF_OPEN, 1) == (breaker.phase, breaker.probes)
    breaker.succeed(now=11.5, began_at=11.0)
    _succeed(breaker, 11.5)
    for _ in range(50):
        breaker.fail(now=12.0, began_at=9.0, rng=RNG)
    assert breaker.phase is CLOSED


def test_calls_that_do_not_say_when_they_began_count_as_of_now() -> None:
    """Places never fall below zero for it."""
    breaker = _opened()
    breaker.release(began_at=None)
    breaker.begin(11.0)
    breaker.release(began_at=None)
    breaker.release(began_at=None)
    assert (HALF_OPEN, 0) == (breaker.phase, breaker.probes)


def test_a_probe_has_passed_when_its_output_begins() -> None:
    """A stream may go on for minutes: its place is free at once, and its end counts no second time."""
    breaker = _opened()
    breaker.begin(11.0)
    breaker.output_began(now=11.5, began_at=11.0, slow=True, rng=RNG)
    assert (HALF_OPEN, 0) == (breaker.phase, breaker.probes)
    breaker.begin(11.5)
    breaker.succeed(now=12.0, began_at=11.0, early=True)
    assert (HALF_OPEN, 1) == (breaker.phase, breaker.probes)
    breaker.release(began_at=11.5)
    breaker.begin(12.0)
    breaker.output_began(now=12.5, began_at=12.0, slow=False, rng=RNG)
    assert breaker.phase is CLOSED
    breaker.succeed(now=13.0, began_at=12.0, early=True)
    breaker.output_began(now=13.0, began_at=12.6, slow=False, rng=RNG)
    assert breaker.phase is CLOSED


def test_a_small_share_of_failures_for_three_long_windows_lets_others_go_first() -> None:
    """Never harder than that; it pauses longest at once, and one more bad window after it is enough."""
    breaker = Breaker(DEFAULT)
    for window in range(3):
        _succeed(breaker, *[60.0 * window + 1.0] * 59)
        _fail(breaker, 60.0 * window + 1.0)
    assert breaker.phase is CLOSED
    _fail(breaker, 181.0)
    assert (SOFT_OPEN, "more than 1.5 % of the calls failed in each of 3 times 60 s") == (breaker.phase, breaker.reason)
    assert not breaker.admits(182.0, soft=False)
    assert breaker.admits(182.0, soft=True)
    assert breaker.wait_s(182.0) == 0.0
    assert SOFT_OPEN is breaker.phase_at(210.0)
    _succeed(breaker, 190.0)
    _fail(breaker, 190.0)
    assert breaker.phase is SOFT_OPEN
    assert SOFT_HALF_OPEN is breaker.phase_at(211.0)
    _fail(breaker, 211.0)
    assert (SOFT_OPEN, 241.0) == (breaker.phase, breaker._until)
    _succeed(breaker, 241.0, 241.0)
    assert breaker.phase is CLOSED
    _succeed(breaker, *[242.0] * 59)
    _fail(breaker, 242.0, 302.0)
    assert breaker.phase is SOFT_OPEN


def test_three_good_windows_do_not_trip() -> None:
    """A share of failures at or below the bound is what the world is like."""
    breaker = Breaker(DEFAULT)
    for window in range(10):
        _succeed(breaker, *[60.0 * window] * 99)
        _fail(breaker, 60.0 * window)
    assert breaker.phase is CLOSED


def test_slow_first_tokens_let_others_go_first() -> None:
    """Most of at least ten; half is not most."""
    breaker = Breaker(DEFAULT)
    for _ in range(5):
        breaker.output_began(now=1.0, began_at=1.0, slow=False, rng=RNG)
    for _ in range(5):
        _slow(breaker, 1.0)
    assert breaker.phase is CLOSED
    breaker.output_began(now=1.0, began_at=1.0, slow=True, rng=RNG)
    assert (SOFT_OPEN, "6 of the last 11 first tokens took longer than 3 s") == (breaker.phase, breaker.reason)
    assert breaker.wants_probe(2.0)
    assert breaker.admits(2.0, soft=False)
    breaker.begin(2.0)
    breaker.begin(2.0)
    assert not breaker.wants_probe(2.0)
    assert not breaker.admits(2.0, soft=False)
    assert breaker.admits(2.0, soft=True)
    breaker.output_began(now=5.0, began_at=2.0, slow=True, rng=RNG)
    assert (SOFT_OPEN, "a first token took longer than 3 s again") == (breaker.phase, breaker.reason)
    breaker.begin(7.0)
    breaker.output_began(now=7.5, began_at=7.0, slow=True, rng=RNG)
    assert (SOFT_OPEN, 3) == (breaker.phase, breaker.trips)
    breaker.begin(11.5)
    breaker.begin(11.5)
    breaker.output_began(now=12.0, began_at=11.5, slow=False, rng=RNG)
    breaker.output_began(now=12.0, began_at=11.5, slow=False, rng=RNG)
    assert breaker.phase is CLOSED


def test_a_long_whole_answer_does_not_prove_that_first_tokens_are_quick_again() -> None:
    """It gives its place back for a better probe; a quick whole answer, and any stream in time, do prove it."""
    breaker = Breaker(BreakerSettings(min_calls=1))
    _slow(breaker, 1.0)
    assert breaker.phase is SOFT_OPEN
    for _ in range(2):
        breaker.begin(2.0)
    breaker.succeed(now=10.0, began_at=2.0)
    assert (SOFT_HALF_OPEN, 1) == (breaker.phase, breaker.probes)
    breaker.succeed(now=10.0, began_at=2.0)
    assert (SOFT_HALF_OPEN, 0) == (breaker.phase, breaker.probes)
    _succeed(breaker, 10.0)
    assert breaker.phase is SOFT_HALF_OPEN
    breaker.begin(10.0)
    breaker.output_began(now=14.0, began_at=10.0, slow=False, rng=RNG)
    assert breaker.phase is CLOSED


def test_without_streams_whole_answers_close_it_after_the_longest_pause() -> None:
    """Nothing better may ever come."""
    breaker = Breaker(BreakerSettings(min_calls=1))
    _slow(breaker, 1.0)
    breaker.begin(2.0)
    breaker.succeed(now=32.0, began_at=2.0)
    for _ in range(2):
        breaker.begin(28.0)
        breaker.succeed(now=32.5, began_at=28.0)
    assert breaker.phase is CLOSED


def test_a_slow_success_is_a_success_for_a_hard_probe() -> None:
    """After an outage the first answers are slow: that is what a slow start is for."""
    breaker = _opened()
    for _ in range(2):
        _slow(breaker, 11.0)
    assert breaker.phase is CLOSED


def test_a_soft_breaker_that_fails_hard_opens_hard() -> None:
    """With no other it is used, so it may fail for good: the first hard pause is the short one again."""
    breaker = Breaker(BreakerSettings(min_calls=1))
    _slow(breaker, 1.0)
    _slow(breaker, 2.0)
    assert (SOFT_OPEN, 2) == (breaker.phase, breaker.trips)
    _fail(breaker, 2.0, 2.0, connect=True)
    assert (OPEN, 1.0) == (breaker.phase, breaker.wait_s(2.0))
    soft = Breaker(BreakerSettings(min_calls=1, connect_failures=1))
    _slow(soft, 1.0)
    _fail(soft, 2.0, connect=True)
    assert (OPEN, 1.0) == (soft.phase, soft.wait_s(2.0))


def test_a_recovered_replica_gets_its_share_slowly() -> None:
    """From a tenth to the whole within the slow start."""
    breaker = _opened()
    assert Breaker(DEFAULT).share(5.0) == 1.0
    _succeed(breaker, 11.0, 11.0)
    assert (True, False) == (breaker.admits(11.0, soft=False), breaker.wants_probe(11.0))
    assert [0.1, 0.5, 1.0, 1.0] == [breaker.share(at) for at in (11.0, 16.0, 21.0, 99.0)]


def test_news_that_a_server_is_back_end_the_pause() -> None:
    """Probes may begin; they still decide."""
    breaker = _opened()
    breaker.end_pause()
    assert breaker.admits(10.1, soft=False)
    assert breaker.wait_s(10.1) == 0.0
    _succeed(breaker, 10.1)
    assert breaker.phase is HALF_OPEN


def test_a_call_that_begins_in_spite_of_an_open_breaker_changes_nothing() -> None:
    """Nobody asked whether it may: it is no probe, and its end is no verdict."""
    breaker = _opened()
    _fail(breaker, 10.2)
    breaker.begin(10.3)
    breaker.release(began_at=10.3)
    _succeed(breaker, 10.4)
    assert (OPEN, 0, 1) == (breaker.phase, breaker.probes, breaker.trips)


def test_a_pool_trips_only_by_shares_and_only_when_it_is_widespread() -> None:
    """Failures in a row may all be one replica's."""
    pool = Breaker(DEFAULT, whole_pool=True)
    for _ in range(20):
        pool.fail(now=1.0, began_at=1.0, rng=RNG, connect=True, widespread=False)
        pool.output_began(now=1.0, began_at=1.0, slow=True, rng=RNG, widespread=False)
        pool.succeed(now=1.0, began_at=1.0, early=True)
    assert pool.phase is CLOSED
    pool.fail(now=1.0, began_at=1.0, rng=RNG, widespread=True)
    assert (OPEN, "21 of the last 41 calls failed") == (pool.phase, pool.reason)


def test_failing_is_what_a_bad_window_looks_like_before_it_trips() -> None:
    """By failures, by slow first tokens, or by being open; a window that knows nothing is not bad."""
    breaker = Breaker(DEFAULT)
    assert not breaker.failing(0.0)
    _fail(breaker, 1.0)
    assert breaker.failing(1.0)
    _succeed(breaker, 1.0, 1.0)
    assert not breaker.failing(1.0)
    _slow(breaker, 1.0)
    assert breaker.failing(1.0)
    assert not breaker.failing(100.0)
    assert _opened().failing(99.0)


def test_other_settings_continue_from_where_it_stands() -> None:
    """A reload that changes a threshold does not close what is open."""
    breaker = _opened()
    heir = breaker.continued(BreakerSettings(probes=1))
    assert (OPEN, breaker.reason, 1, 1.0) == (heir.phase, heir.reason, heir.trips, heir.wait_s(10.0))
    _succeed(heir, 11.0)
    assert (CLOSED, OPEN) == (heir.phase, breaker.phase)


def test_a_first_token_that_is_late_counts_before_it_comes() -> None:
    """It trips at the moment it is overdue, is not counted again when it comes, and fails a probe of the soft kind."""
    settings = BreakerSettings(min_calls=2, probes=1)
    breaker = Breaker(settings)
    for _ in range(3):
        breaker.begin(0.0)
    breaker.output_overdue(now=3.0, began_at=0.0, rng=RNG)
    breaker.output_began(now=3.5, began_at=0.0, slow=True, rng=RNG, was_overdue=True)
    assert breaker.phase is CLOSED
    breaker.output_overdue(now=3.6, began_at=0.0, rng=RNG)
    assert (SOFT_OPEN, 4.6) == (breaker.phase, 3.6 + breaker.wait_s(3.6) + settings.cooldown_s)
    breaker.output_overdue(now=3.7, began_at=0.0, rng=RNG)
    assert breaker.trips == 1
    breaker.begin(4.7)
    breaker.output_overdue(now=7.7, began_at=4.7, rng=RNG)
    assert (SOFT_OPEN, 2, 0) == (breaker.phase, breaker.trips, breaker.probes)


def test_one_failed_probe_of_a_pool_may_be_one_replicas() -> None:
    """The next probe goes to another; only as many failures in a row as there are probes show that the pool is still down."""
    pool = Breaker(BreakerSettings(probes=2), whole_pool=True)
    for _ in range(20):
        pool.fail(now=1.0, began_at=1.0, rng=RNG)
    assert pool.phase is OPEN
    pool.begin(3.0)
    pool.fail(now=3.0, began_at=3.0, rng=RNG)
    assert (HALF_OPEN, 0, 1) == (pool.phase, pool.probes, pool.trips)
    pool.begin(3.1)
    pool.output_began(now=3.2, began_at=3.1, slow=False, rng=RNG)
    pool.fail(now=3.3, began_at=3.1, rng=RNG, early=True)
    assert (HALF_OPEN, 0) == (pool.phase, pool.probes)
    pool.begin(3.4)
    pool.fail(now=3.4, began_at=3.4, rng=RNG)
    assert (OPEN, 2) == (pool.phase, pool.trips)
