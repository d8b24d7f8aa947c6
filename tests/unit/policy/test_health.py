"""What a worker believes of a replica that it asks from time to time."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.policy.resilience.health import HealthSettings, HealthVerdict, ReplicaHealth

SETTINGS = HealthSettings(every_s=2.0, timeout_s=1.5, failures=2)


def doubt(reason: str) -> HealthVerdict:
    return HealthVerdict(alive=True, reason=reason, doubted=True)


def fresh(settings: HealthSettings = SETTINGS) -> ReplicaHealth:
    return ReplicaHealth(settings, now=100.0, rng=Random(7))


def settled() -> ReplicaHealth:
    """One that is believed alive."""
    health = fresh()
    health.ask(now=100.0)
    assert health.answered(200) == HealthVerdict(alive=True)
    return health


def test_the_first_answer_is_always_told() -> None:
    """Others may hold something older for true, so even "alive" is news once, and only once."""
    health = fresh()
    assert health.alive is None
    assert health.answered(404) == HealthVerdict(alive=True)
    assert health.answered(200) is None


@pytest.mark.parametrize("status", [200, 204, 301, 401, 404, 429, 499])
def test_any_status_below_500_is_a_sign_of_life(status: int) -> None:
    """A refused key or a missing path says that a server is there."""
    assert fresh().answered(status) == HealthVerdict(alive=True)


def test_a_server_that_loads_its_model_is_not_ready() -> None:
    """A 503 counts as a failure, and two in a row take the replica out with the status as the reason."""
    health = settled()
    assert health.answered(503) == doubt("it answers health checks with status 503")
    assert health.answered(503) == HealthVerdict(alive=False, reason="it answers health checks with status 503")
    assert health.answered(503) is None
    assert health.answered(200) == HealthVerdict(alive=True)


def test_failures_must_be_in_a_row() -> None:
    """One answer between two failures forgives the first."""
    health = settled()
    assert health.unreachable("refused") == doubt("refused")
    assert health.answered(200) == HealthVerdict(alive=True)
    assert health.unreachable("refused") == doubt("refused")
    assert health.unreachable("refused") == HealthVerdict(alive=False, reason="refused")


def test_a_deadline_missed_by_ourselves_says_nothing() -> None:
    """A process that was stopped for a while finds all its timers run out, and no server is to blame."""
    health = settled()
    health.ask(now=200.0)
    assert health.unanswered(now=203.0) is None
    health.ask(now=204.0)
    assert health.unanswered(now=205.5) == doubt("it did not answer a health check within 1.5 s")
    assert health.next_at == 205.5, "asked again at once"
    health.ask(now=206.0)
    assert health.unanswered(now=207.6) == HealthVerdict(alive=False, reason="it did not answer a health check within 1.5 s")


def test_after_anothers_word_one_failure_is_enough() -> None:
    """Two witnesses: the peer who said so, and the next question, which comes at once."""
    health = settled()
    health.ask(now=110.0)
    health.suspect(alive=False, now=110.5)
    assert health.next_at == 110.5
    assert health.unreachable("refused") == HealthVerdict(alive=False, reason="refused")


def test_an_answer_clears_a_suspicion() -> None:
    """The peer could not reach it, we can: it stays, and the usual number of failures counts again."""
    health = settled()
    health.suspect(alive=False, now=110.0)
    assert health.answered(200) is None
    assert health.unreachable("refused") == doubt("refused")


def test_a_doubt_is_told_once() -> None:
    """Where three failures are needed, the second is no news."""
    health = fresh(HealthSettings(failures=3))
    health.answered(200)
    assert health.unreachable("refused") == doubt("refused")
    assert health.unreachable("refused") is None
    assert health.unreachable("refused") == HealthVerdict(alive=False, reason="refused")


def test_what_is_believed_already_is_not_asked_again() -> None:
    """A peer that says what we know does not make us ask sooner."""
    health = settled()
    health.ask(now=110.0)
    due = health.next_at
    health.suspect(alive=True, now=110.5)
    assert health.next_at == due


def test_others_words_do_not_make_us_ask_without_pause() -> None:
    """A flood of suspicions costs five questions a second at most."""
    health = settled()
    health.ask(now=110.0)
    health.suspect(alive=False, now=110.01)
    assert health.next_at == pytest.approx(110.2)


def test_a_peer_that_saw_it_alive_makes_us_look() -> None:
    """A dead replica is asked at once, and one answer brings it back."""
    health = settled()
    health.unreachable("refused")
    health.unreachable("refused")
    health.ask(now=120.0)
    health.suspect(alive=True, now=121.0)
    assert health.next_at == 121.0
    assert health.answered(200) == HealthVerdict(alive=True)


def test_questions_do_not_come_in_step() -> None:
    """Workers begin at different times, and drift apart."""
    starts = {ReplicaHealth(SETTINGS, now=0.0, rng=Random(seed)).next_at for seed in range(20)}
    assert len(starts) == 20
    assert all(0.0 <= start <= 2.0 for start in starts)
    assert "alive=None" in repr(fresh())


@given(answers=st.lists(st.sampled_from(["ok", "error", "refused", "silent"]), max_size=60), failures=st.integers(1, 4))
def test_law_belief_follows_the_last_answers(answers: list[str], failures: int) -> None:
    """Law: alive after any good answer, doubted after a bad one, dead after `failures` in a row; told exactly when the belief changes."""
    health = ReplicaHealth(HealthSettings(every_s=2.0, timeout_s=1.5, failures=failures), now=0.0, rng=Random(3))
    now, bad, believed = 0.0, 0, ""
    for answer in answers:
        now = max(now, health.next_at)
        health.ask(now=now)
        assert now + 1.8 <= health.next_at <= now + 2.0
        match answer:
            case "ok":
                verdict, bad = health.answered(200), 0
            case "error":
                verdict, bad = health.answered(500), bad + 1
            case "refused":
                verdict, bad = health.unreachable("refused"), bad + 1
            case _:
                verdict, bad = health.unanswered(now=now + 1.5), bad + 1
        if bad == 0:
            expected = "alive"
        elif bad >= failures:
            expected = "dead"
        else:
            expected = "doubted" if believed == "alive" else believed
        assert _word(verdict) == ("" if expected == believed else expected)
        believed = expected
        assert health.alive is {"": None, "alive": True, "doubted": True, "dead": False}[believed]


def _word(verdict: HealthVerdict | None) -> str:
    if verdict is None:
        return ""
    return "doubted" if verdict.doubted else "alive" if verdict.alive else "dead"
