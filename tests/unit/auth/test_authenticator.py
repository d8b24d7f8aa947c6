"""The cached authenticator: who gets in, what is remembered, and what a refusal gives away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.adapters.keys.store import CreatedKey, KeyStore
from tidegate.domain.principal import Limits, Principal
from tidegate.domain.units import Headers, KeyId, Secret, TenantId, UserId
from tidegate.errors import TidegateError, Unauthenticated
from tidegate.gateway.authenticate import (
    MAX_CREDENTIAL_CHARACTERS,
    RECHECK_S,
    REFUSED_S,
    CachedAuthenticator,
    LimitsResolver,
    extract_credential,
)
from tidegate.testing.manual_clock import ManualClock

CANARY = "canary5ecret"


class ScriptedVerdict:
    """What a scripted verifier says of one token."""

    def __init__(self, user: str | None, *, expires_at: float | None = None, lasting: bool = True) -> None:
        self.principal = Principal(key_id=KeyId(f"jwt:x:{user}"), tenant=TenantId("t"), user=UserId(user)) if user is not None else None
        self.expires_at = expires_at
        self.lasting = lasting
        self.why = "the token has expired"


class ScriptedVerifier:
    """Answer from a table that a test may change; tokens in `needs_key` become known by `obtain_key`."""

    def __init__(self, verdicts: dict[str, ScriptedVerdict], *, needs_key: frozenset[str] = frozenset()) -> None:
        self.verdicts = verdicts
        self.needs_key = needs_key
        self.checks: list[str] = []
        self.fetches = 0

    def check(self, token: str, *, now: float, wall_now: float) -> ScriptedVerdict | None:
        assert wall_now > now
        self.checks.append(token)
        return None if token in self.needs_key else self.verdicts.get(token, ScriptedVerdict(None))

    async def obtain_key(self, token: str, *, now: float) -> None:
        assert now >= 0
        self.fetches += 1
        await asyncio.sleep(0)
        if token in self.verdicts:
            self.needs_key -= {token}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100.0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[KeyStore]:
    with KeyStore(tmp_path / "keys.db") as store:
        yield store


def make_key(store: KeyStore, clock: ManualClock, *, user: str = "ann", lasts_s: float | None = None) -> CreatedKey:
    return store.create(name="n", tenant="acme", user=user, now=clock.wall, expires_at=None if lasts_s is None else clock.wall + lasts_s)


def make_authenticator(
    store: KeyStore,
    clock: ManualClock,
    *,
    tokens: ScriptedVerifier | None = None,
    limits: LimitsResolver | None = None,
    capacity: int = 100,
) -> CachedAuthenticator:
    return CachedAuthenticator(
        keys=store.snapshot(),
        wall_clock=lambda: clock.wall,
        tokens=tokens,
        limits=limits,
        key_capacity=capacity,
        token_capacity=capacity,
        refused_capacity=capacity,
    )


def user_of(answer: Principal | TidegateError | None) -> str | None:
    """Name the accepted user; None for a refusal."""
    assert answer is not None
    return answer.user if isinstance(answer, Principal) else None


def test_a_key_is_answered_from_the_cache_the_second_time(store: KeyStore, clock: ManualClock) -> None:
    """The first use works the answer out, the next ones find it."""
    created = make_key(store, clock)
    authenticator = make_authenticator(store, clock)

    assert [user_of(authenticator.known(created.token, now=clock.now)) for _ in range(3)] == ["ann", "ann", "ann"]
    statistics = authenticator.statistics()
    assert (statistics.misses, statistics.hits, statistics.cached_keys) == (1, 2, 1)


def test_operators_are_told_why_and_clients_are_not(store: KeyStore, clock: ManualClock) -> None:
    """From memory too; the message is the same for all, and no reason holds a secret."""
    ended, revoked, rotated, good = (make_key(store, clock, user=name, lasts_s=1.0 if name == "a" else None) for name in "abcd")
    store.revoke(revoked.key_id, clock.wall)
    store.rotate(rotated.key_id, clock.wall, grace_s=0.0)
    clock.advance(1.0)
    token = good.token.reveal()
    expected = {
        ended.token.reveal(): f"key {ended.key_id} has expired",
        revoked.token.reveal(): f"key {revoked.key_id} is revoked",
        rotated.token.reveal(): f"key {rotated.key_id} is not the one that came: it was rotated, or the rest of it is wrong",
        token[:-1]: "what came begins like a key and is none: cut off, or mistyped",
        "a.b.c": "the token has expired",
        "": "no key came: no `Authorization: Bearer …` and no `x-api-key`, or two that differ",
        "x" * (MAX_CREDENTIAL_CHARACTERS + 1): "what came is longer than any key or token",
    }
    authenticator = make_authenticator(store, clock, tokens=ScriptedVerifier({}))
    for _ in range(2):
        answers = [authenticator.known(Secret(each), now=clock.now) for each in expected]
        assert list(expected.values()) == [answer.why for answer in answers if isinstance(answer, Unauthenticated)]
    assert len({str(answer) for answer in answers}) == 1
    assert all(secret.rpartition("-")[2] not in why for secret, why in expected.items() if len(secret) > 20)


def test_a_key_of_another_gateway_and_of_another_kind_are_told_apart(store: KeyStore, clock: ManualClock) -> None:
    """The one is in another state directory, the other at another provider."""
    authenticator = make_authenticator(store, clock)
    foreign = make_key(store, clock)
    for text, why in (
        (foreign.token.reveal(), f"no key here has the id {foreign.key_id}"),
        ("sk-1234", "what came is no key of this gateway"),
    ):
        answer = authenticator.known(Secret(text), now=clock.now)
        assert isinstance(answer, Unauthenticated)
        assert (answer.why or "").startswith(why)


def test_a_revoked_key_stops_at_the_next_request(store: KeyStore, clock: ManualClock) -> None:
    """Adopting the keys without it ends a key that was in the cache."""
    created = make_key(store, clock)
    authenticator = make_authenticator(store, clock)
    assert user_of(authenticator.known(created.token, now=clock.now)) == "ann"

    store.revoke(created.key_id, clock.wall)
    authenticator.adopt_keys(store.snapshot())

    assert user_of(authenticator.known(created.token, now=clock.now)) is None


def test_a_key_that_was_refused_works_as_soon_as_it_exists(store: KeyStore, clock: ManualClock) -> None:
    """A remembered refusal does not outlive the keys that it was made by."""
    authenticator = make_authenticator(store, clock)
    created = make_key(store, clock)
    assert user_of(authenticator.known(created.token, now=clock.now)) is None

    authenticator.adopt_keys(store.snapshot())

    assert user_of(authenticator.known(created.token, now=clock.now)) == "ann"


def test_a_cached_key_stops_when_it_expires(store: KeyStore, clock: ManualClock) -> None:
    """Expiry counts for a cached key too, to the second."""
    created = make_key(store, clock, lasts_s=10.0)
    authenticator = make_authenticator(store, clock)
    assert user_of(authenticator.known(created.token, now=clock.now)) == "ann"

    assert user_of(authenticator.known(created.token, now=clock.advance(9.0))) == "ann"
    assert user_of(authenticator.known(created.token, now=clock.advance(1.0))) is None


def test_a_wall_clock_set_forward_is_noticed_within_the_recheck_time(store: KeyStore) -> None:
    """An answer with an expiry is looked at again after 300 s, so a corrected wall clock takes effect."""
    wall_now = [1000.0]
    created = store.create(name="n", tenant="t", user="ann", now=1000.0, expires_at=1_000_000.0)
    authenticator = CachedAuthenticator(keys=store.snapshot(), wall_clock=lambda: wall_now[0])
    assert user_of(authenticator.known(created.token, now=0.0)) == "ann"
    wall_now[0] = 2_000_000.0

    assert user_of(authenticator.known(created.token, now=RECHECK_S - 1)) == "ann"
    assert user_of(authenticator.known(created.token, now=RECHECK_S)) is None


def test_tokens_that_begin_alike_are_not_mixed_up(store: KeyStore, clock: ManualClock) -> None:
    """Two tokens that share their first 20 characters are two callers, or one caller and one stranger."""
    shared = "eyJhbGciOiJIUzI1NiJ9" + "x" * 500
    verifier = ScriptedVerifier({shared + ".a": ScriptedVerdict("ann"), shared + ".b": ScriptedVerdict("bob")})
    authenticator = make_authenticator(store, clock, tokens=verifier)

    answers = [user_of(authenticator.known(Secret(shared + end), now=clock.now)) for end in (".a", ".b", ".c", ".a", ".b", ".c")]

    assert answers == ["ann", "bob", None, "ann", "bob", None]


def test_keys_that_begin_alike_are_not_mixed_up(store: KeyStore, clock: ManualClock) -> None:
    """A cached key with its last character changed is refused."""
    created = make_key(store, clock)
    token = created.token.reveal()
    authenticator = make_authenticator(store, clock)
    assert user_of(authenticator.known(created.token, now=clock.now)) == "ann"

    forged = token[:-1] + ("0" if token[-1] != "0" else "1")

    assert user_of(authenticator.known(Secret(forged), now=clock.now)) is None


def test_a_token_is_verified_again_at_its_expiry_and_every_five_minutes(store: KeyStore, clock: ManualClock) -> None:
    """A token is kept for the shorter of its own life and 300 s."""
    verifier = ScriptedVerifier(
        {"short.a.b": ScriptedVerdict("ann", expires_at=clock.wall + 10), "long.a.b": ScriptedVerdict("bob", expires_at=clock.wall + 1e6)}
    )
    authenticator = make_authenticator(store, clock, tokens=verifier)
    checked = []
    for wait_s in (0, 9, 1, 289, 1):  # at 0, 9, 10, 299 and 300 s
        clock.advance(wait_s)
        verifier.checks.clear()
        for token in ("short.a.b", "long.a.b"):
            authenticator.known(Secret(token), now=clock.now)
        checked.append([token.partition(".")[0] for token in verifier.checks])

    assert checked == [["short", "long"], [], ["short"], ["short"], ["short", "long"]]


def test_a_flood_of_bad_credentials_pushes_no_good_one_out(store: KeyStore, clock: ManualClock) -> None:
    """A thousand strangers with room for a hundred entries leave key and token cached, and the memory bounded."""
    created = make_key(store, clock)
    verifier = ScriptedVerifier({"good.a.b": ScriptedVerdict("bob")})
    authenticator = make_authenticator(store, clock, tokens=verifier)
    for credential in (created.token, Secret("good.a.b")):
        authenticator.known(credential, now=clock.now)

    for number in range(500):
        authenticator.known(Secret(f"bad.{number}.b"), now=clock.now)
        authenticator.known(Secret(f"tg-bad{number}"), now=clock.now)
    verifier.checks.clear()

    assert user_of(authenticator.known(Secret("good.a.b"), now=clock.now)) == "bob"
    assert verifier.checks == []
    statistics = authenticator.statistics()
    assert (statistics.cached_keys, statistics.cached_tokens, statistics.cached_refusals) == (1, 1, 100)


def test_the_least_recently_used_token_makes_room(store: KeyStore, clock: ManualClock) -> None:
    """At capacity, the token that was not asked for longest is the one verified again."""
    verifier = ScriptedVerifier({name: ScriptedVerdict(name) for name in ("a", "b", "c")})
    authenticator = make_authenticator(store, clock, tokens=verifier, capacity=2)
    for token in ("a", "b", "a", "c"):
        authenticator.known(Secret(token), now=clock.now)
    verifier.checks.clear()

    for token in ("a", "c", "b"):
        authenticator.known(Secret(token), now=clock.now)

    assert verifier.checks == ["b"]


def test_a_lasting_refusal_is_remembered_briefly_and_a_passing_one_not_at_all(store: KeyStore, clock: ManualClock) -> None:
    """A bad signature is not checked again for a few seconds; a token that is only too early is."""
    verifier = ScriptedVerifier({"bad": ScriptedVerdict(None), "early": ScriptedVerdict(None, lasting=False)})
    authenticator = make_authenticator(store, clock, tokens=verifier)

    for wait_s in (0.0, REFUSED_S - 1, 1.0):
        clock.advance(wait_s)
        for token in ("bad", "early"):
            assert user_of(authenticator.known(Secret(token), now=clock.now)) is None

    assert verifier.checks == ["bad", "early", "early", "bad", "early"]


def test_a_token_whose_key_must_be_fetched_is_left_to_verify(store: KeyStore, clock: ManualClock) -> None:
    """`known` gives None without waiting; `verify` fetches once, answers, and the answer is remembered."""
    verifier = ScriptedVerifier({"a.b.c": ScriptedVerdict("ann")}, needs_key=frozenset({"a.b.c"}))
    authenticator = make_authenticator(store, clock, tokens=verifier)

    assert authenticator.known(Secret("a.b.c"), now=clock.now) is None
    assert user_of(asyncio.run(authenticator.verify(Secret("a.b.c"), now=clock.now))) == "ann"
    assert user_of(authenticator.known(Secret("a.b.c"), now=clock.now)) == "ann"
    assert verifier.fetches == 1


def test_verify_gives_up_after_one_fetch(store: KeyStore, clock: ManualClock) -> None:
    """A token whose key is still unknown after the fetch is refused, not fetched for again."""
    verifier = ScriptedVerifier({}, needs_key=frozenset({"a.b.c"}))
    authenticator = make_authenticator(store, clock, tokens=verifier)

    assert user_of(asyncio.run(authenticator.verify(Secret("a.b.c"), now=clock.now))) is None
    assert verifier.fetches == 1


def test_verify_answers_for_api_keys_too(store: KeyStore, clock: ManualClock) -> None:
    """A driver may always call `verify`; for keys and without JWT it is `known`."""
    created = make_key(store, clock)
    authenticator = make_authenticator(store, clock)

    answers = [asyncio.run(authenticator.verify(credential, now=clock.now)) for credential in (created.token, Secret("a.b.c"))]

    assert [user_of(answer) for answer in answers] == ["ann", None]


def test_every_refusal_is_the_same_and_gives_nothing_away(store: KeyStore, clock: ManualClock) -> None:
    """Missing, malformed, unknown, revoked, expired, rotated out, too long, not text: one 401, without the credential."""
    revoked, expired, rotated = make_key(store, clock), make_key(store, clock, lasts_s=1.0), make_key(store, clock)
    store.revoke(revoked.key_id, clock.wall)
    store.rotate(rotated.key_id, clock.wall, 0.0)
    clock.advance(2.0)
    unknown = make_key(store, clock).token.reveal().replace("tg-", "tg-zz")
    credentials = ["", CANARY, f"tg-{CANARY}", unknown, "a.b." + CANARY, CANARY * 2000, CANARY + "\udc80é"]
    credentials += [key.token.reveal() for key in (revoked, expired, rotated)]
    lines: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(repr(record.__dict__))

    collector = Collector(level=logging.DEBUG)
    root = logging.getLogger()
    level_before = root.level
    root.addHandler(collector)
    root.setLevel(logging.DEBUG)
    try:
        authenticator = make_authenticator(store, clock, tokens=ScriptedVerifier({}))
        answers = [authenticator.known(Secret(credential), now=clock.now) for credential in credentials]
        shown = " ".join([*map(repr, answers), *map(str, answers), repr(authenticator), repr(Secret(CANARY)), *lines])
    finally:
        root.removeHandler(collector)
        root.setLevel(level_before)

    assert len({(type(answer), str(answer)) for answer in answers}) == 1
    assert isinstance(answers[0], Unauthenticated)
    assert (answers[0].status, answers[0].code) == (401, "invalid_api_key")
    assert "Authorization: Bearer" in answers[0].message
    assert CANARY not in shown
    assert not any(credential[14:] in shown for credential in credentials if len(credential) > 20)


def test_refusals_are_not_one_shared_exception(store: KeyStore, clock: ManualClock) -> None:
    """Each refusal is an instance of its own, so that raising one does not pile tracebacks on the others."""
    authenticator = make_authenticator(store, clock)

    one, other = (authenticator.known(Secret(""), now=clock.now) for _ in range(2))

    assert one == other
    assert one is not other


def test_limits_come_from_key_then_tier_then_default(store: KeyStore, clock: ManualClock) -> None:
    """Each ceiling is taken from the first of the three that sets it; an unknown tier has the default's."""
    resolver = LimitsResolver(
        tiers={"vip": Limits(tokens_per_minute=200, requests_per_minute=20)},
        default=Limits(tokens_per_minute=100, requests_per_minute=10, concurrency=1),
    )
    own = Limits(tokens_per_minute=300)
    keys = [
        store.create(name="n", tenant="t", user="u", now=1.0, tier="vip", limits=own),
        store.create(name="n", tenant="t", user="u", now=1.0, tier="vip"),
        store.create(name="n", tenant="t", user="u", now=1.0, tier="unknown"),
    ]
    authenticator = make_authenticator(store, clock, limits=resolver)

    answers = [authenticator.known(key.token, now=clock.now) for key in keys]

    assert [
        Limits(tokens_per_minute=300, requests_per_minute=20, concurrency=1),
        Limits(tokens_per_minute=200, requests_per_minute=20, concurrency=1),
        Limits(tokens_per_minute=100, requests_per_minute=10, concurrency=1),
    ] == [answer.limits for answer in answers if isinstance(answer, Principal)]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (((b"authorization", b"Bearer abc"),), "abc"),
        (((b"authorization", b"bEARER \t abc "),), "abc"),
        (((b"x-api-key", b"abc"),), "abc"),
        (((b"api-key", b" abc "),), "abc"),
        (((b"authorization", b"Bearer abc"), (b"x-api-key", b"abc"), (b"api-key", b"")), "abc"),
        (((b"authorization", b"Bearer abc"), (b"authorization", b"Bearer abc")), "abc"),
        (((b"x-api-key", b""), (b"authorization", b"Bearer abc")), "abc"),
        ((), ""),
        (((b"authorization", b"Bearer"),), ""),
        (((b"authorization", b"Bearer "),), ""),
        (((b"authorization", b""),), ""),
        (((b"authorization", b"abc"),), ""),
        (((b"authorization", b"Basic abc"),), ""),
        (((b"authorization", b"Bearerabc"),), ""),
        (((b"authorization", b"Bearer abc def"),), ""),
        (((b"authorization", b"Bearer abc\x00"),), ""),
        (((b"authorization", "Bearer schlüssel".encode()),), ""),
        (((b"authorization", b"Bearer abc"), (b"authorization", b"Bearer def")), ""),
        (((b"authorization", b"Bearer abc"), (b"x-api-key", b"def")), ""),
        (((b"x-api-key", b"def"), (b"authorization", b"Bearer abc")), ""),
        (((b"authorization", b"Basic abc"), (b"x-api-key", b"def")), ""),
        (((b"x-api-key", b"abc"), (b"api-key", b"def"), (b"api-key", b"def")), ""),
        (((b"x-authorization", b"Bearer abc"), (b"cookie", b"api-key=abc")), ""),
    ],
)
def test_a_credential_is_taken_from_the_head_or_not_at_all(headers: Headers, expected: str) -> None:
    """One bearer token or key field gives the credential; none, a malformed one or two that differ give the empty one."""
    assert extract_credential(headers).reveal() == expected
