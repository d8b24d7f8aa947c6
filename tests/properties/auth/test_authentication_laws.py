"""Laws of authentication: the cache changes nothing but the speed, and access is exactly what was granted."""

from __future__ import annotations

import hmac
import json
import tempfile
from base64 import urlsafe_b64encode
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidegate.adapters.jwt.verifier import JwtVerifier
from tidegate.adapters.keys.store import KeyStore
from tidegate.config.schema import JwtSection
from tidegate.domain.principal import Limits, Principal
from tidegate.domain.units import KeyId, Secret
from tidegate.gateway.authenticate import CachedAuthenticator, LimitsResolver
from tidegate.testing.manual_clock import ManualClock

SHARED = "a shared secret of more than 32 bytes"
LEEWAY_S = 30
LIMITS = LimitsResolver(tiers={"vip": Limits(tokens_per_minute=9)}, default=Limits(concurrency=3))


class Create(msgspec.Struct, frozen=True):
    lasts_s: int | None
    tier: str


class Revoke(msgspec.Struct, frozen=True):
    which: int


class Rotate(msgspec.Struct, frozen=True):
    which: int
    grace_s: int


class Sign(msgspec.Struct, frozen=True):
    begins_in_s: int
    lasts_s: int


class Wait(msgspec.Struct, frozen=True):
    seconds: int


Step = Create | Revoke | Rotate | Sign | Wait
WHICH = st.integers(0, 3)
STEPS = st.lists(
    st.one_of(
        st.builds(Create, lasts_s=st.none() | st.integers(1, 700), tier=st.sampled_from(["default", "vip"])),
        st.builds(Revoke, which=WHICH),
        st.builds(Rotate, which=WHICH, grace_s=st.sampled_from([0, 1, 40, 400])),
        st.builds(Sign, begins_in_s=st.integers(-50, 100), lasts_s=st.integers(0, 700)),
        st.builds(Wait, seconds=st.sampled_from([1, 4, 5, 29, 30, 31, 100, 299, 300, 301])),
    ),
    max_size=14,
)


class World:
    """The store, a long-lived authenticator with its caches, and a plain model of who may enter until when."""

    def __init__(self, store: KeyStore) -> None:
        self.clock = ManualClock(1000.0)
        self.store = store
        section = JwtSection(issuer="i", audience="a", algorithms=("HS256",), secret=Secret(SHARED), leeway_s=LEEWAY_S)
        self.verifier = JwtVerifier([section])
        self.cached = self.fresh()
        self.credentials: list[Secret] = [Secret(""), Secret("junk"), Secret("tg-junk"), Secret("a.b.c")]
        self.key_ids: list[KeyId] = []
        self.granted: dict[Secret, tuple[float, float]] = {}
        self.owner: dict[Secret, KeyId] = {}

    def fresh(self) -> CachedAuthenticator:
        return CachedAuthenticator(keys=self.store.snapshot(), wall_clock=lambda: self.clock.wall, tokens=self.verifier, limits=LIMITS)

    def take(self, step: Step) -> None:
        now = self.clock.wall
        match step:
            case Create(lasts_s=lasts_s, tier=tier):
                ends_at = None if lasts_s is None else now + lasts_s
                created = self.store.create(name="n", tenant="t", user="u", tier=tier, now=now, expires_at=ends_at)
                self.key_ids.append(created.key_id)
                self._grant(created.token, created.key_id, float("inf") if ends_at is None else ends_at)
            case Revoke(which=which) if self.key_ids:
                key_id = self.key_ids[which % len(self.key_ids)]
                self.store.revoke(key_id, now)
                self._shorten(key_id, now)
            case Rotate(which=which, grace_s=grace_s) if self.key_ids:
                key_id = self.key_ids[which % len(self.key_ids)]
                key_ends_at = max(end for token, (_, end) in self.granted.items() if self.owner[token] == key_id)
                rotated = self.store.rotate(key_id, now, grace_s)
                if rotated is not None:
                    self._shorten(key_id, now + grace_s)
                    self._grant(rotated.token, key_id, key_ends_at)
            case Sign(begins_in_s=begins_in_s, lasts_s=lasts_s):
                token = sign({"nbf": now + begins_in_s, "exp": now + lasts_s, "sub": str(len(self.credentials))})
                self.credentials.append(token)
                self.granted[token] = (now + begins_in_s - LEEWAY_S, now + lasts_s + LEEWAY_S)
                self.owner[token] = KeyId("jwt")
            case Wait(seconds=seconds):
                self.clock.advance(seconds)
            case Revoke() | Rotate():
                pass
        if isinstance(step, Create | Revoke | Rotate):
            self.cached.adopt_keys(self.store.snapshot())

    def _grant(self, token: Secret, key_id: KeyId, ends_at: float) -> None:
        self.credentials.append(token)
        self.granted[token] = (0.0, ends_at)
        self.owner[token] = key_id

    def _shorten(self, key_id: KeyId, ends_at: float) -> None:
        for token, (begins_at, end) in self.granted.items():
            if self.owner[token] == key_id:
                self.granted[token] = (begins_at, min(end, ends_at))


def sign(claims: dict[str, object]) -> Secret:
    header = urlsafe_b64encode(b'{"alg":"HS256"}').rstrip(b"=")
    body = urlsafe_b64encode(json.dumps({"iss": "i", "aud": "a", "tenant": "t", **claims}).encode()).rstrip(b"=")
    signature = urlsafe_b64encode(hmac.digest(SHARED.encode(), header + b"." + body, "sha256")).rstrip(b"=")
    return Secret(b".".join((header, body, signature)).decode())


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_law_the_cache_changes_no_answer(steps: list[Step]) -> None:
    """After any sequence of create, revoke, rotate, sign and time steps, the cached and a fresh authenticator agree on every credential."""
    with tempfile.TemporaryDirectory() as directory, KeyStore(Path(directory) / "keys.db") as store:
        world = World(store)
        for step in steps:
            world.take(step)
            fresh = world.fresh()
            for credential in world.credentials:
                assert world.cached.known(credential, now=world.clock.now) == fresh.known(credential, now=world.clock.now)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_law_access_is_exactly_what_was_granted(steps: list[Step]) -> None:
    """A credential gets in from its begin until it expires, is revoked, or its grace ends: never before, never after, and no other does."""
    with tempfile.TemporaryDirectory() as directory, KeyStore(Path(directory) / "keys.db") as store:
        world = World(store)
        for step in steps:
            world.take(step)
            for credential in world.credentials:
                begins_at, ends_at = world.granted.get(credential, (0.0, 0.0))
                answer = world.cached.known(credential, now=world.clock.now)
                assert isinstance(answer, Principal) == (begins_at <= world.clock.wall < ends_at)
