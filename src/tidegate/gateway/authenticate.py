"""Says who a request comes from, almost always from memory.

Invariants:
* The cache is keyed by the SHA-256 of the whole credential: no two credentials ever share an entry, and none is kept in the clear here.
  (`http.head_memory` keeps up to 512 heads of 2 KB as they came, credentials included, in memory only; what it remembers is how a head
  reads and not who may come in, so a revoked key is refused all the same.)
* A fresh set of keys replaces every answer that came from the one before, so a revoked key stops at the next request.
* Whatever is wrong, the client gets the same 401, which neither says what it was nor repeats the credential. Its `why`, which does say
  what it was, is for the record and the log; it holds no more of a credential than a key's public id.
* Refusals have a small cache of their own, so that a flood of bad tokens cannot push good ones out.

Two clocks: the caller's `now` is monotonic and decides how long an answer is kept; expiry is wall time and is looked at when an answer is
worked out, by the `wall_clock` given at construction. An expiry becomes a deadline on the monotonic clock, at most `RECHECK_S` ahead,
so a wall clock that was set right takes effect within that time, and a warm look-up reads no clock at all.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from tidegate.domain.principal import Limits, Principal
from tidegate.domain.units import Headers, Secret
from tidegate.errors import TidegateError, Unauthenticated

MAX_CREDENTIAL_CHARACTERS: Final = 16_384  # the longest token that a verifier would look at
RECHECK_S: Final = 300.0
REFUSED_S: Final = 5.0  # long enough to blunt a retry loop, short enough to forget
KEY_CAPACITY: Final = 100_000  # only good keys get in: one entry of about 0.3 KB per key in use
TOKEN_CAPACITY: Final = 50_000  # about 0.6 KB each, so 30 MB at worst; tokens live here for 300 s, beyond it they are verified again
REFUSED_CAPACITY: Final = 4_096  # anyone can fill this one: about 0.2 KB each, so under 1 MB

_NONE_CAME: Final = "no key came: no `Authorization: Bearer …` and no `x-api-key`, or two that differ"
_TOO_LONG: Final = "what came is longer than any key or token"
_NO_ISSUER: Final = "what came is no key of this gateway (they begin with tg-), and no token issuer is configured (`jwt`)"
_NO_KEY_SET: Final = "the key set of the token's issuer could not be had (`key_set.became_unavailable` in the log)"
_API_KEY_PREFIX: Final = "tg-"
_USUAL_BEARER: Final = b"Bearer "
_BEARER: Final = re.compile(rb"bearer[ \t]+([\x21-\x7e]+)[ \t]*", re.IGNORECASE)
_BARE: Final = re.compile(rb"[ \t]*([\x21-\x7e]+)[ \t]*")
_CREDENTIAL_SHAPES: Final = {b"authorization": _BEARER, b"x-api-key": _BARE, b"api-key": _BARE}


class KeyMatch(Protocol):
    """A good API key: whose it is, and until when (seconds since the epoch; None: no end)."""

    @property
    def principal(self) -> Principal: ...
    @property
    def expires_at(self) -> float | None: ...


class KeyBook(Protocol):
    """All API keys at one instant; immutable."""

    def match(self, token: str, *, wall_now: float) -> KeyMatch | None:
        """Give the match of a good key; None for any other text."""

    def why_not(self, token: str, *, wall_now: float) -> str:
        """Say why a text has no match, for operators; nothing of a secret."""


class TokenVerdict(Protocol):
    """`principal` is None for a refusal; `lasting` when waiting cannot turn it good."""

    @property
    def principal(self) -> Principal | None: ...
    @property
    def expires_at(self) -> float | None: ...
    @property
    def lasting(self) -> bool: ...
    @property
    def why(self) -> str:
        """Why it is refused, for operators."""


class TokenVerifier(Protocol):
    """Judges signed tokens (JWT)."""

    def check(self, token: str, *, now: float, wall_now: float) -> TokenVerdict | None:
        """Judge by what is known; None when `obtain_key` may help."""

    async def obtain_key(self, token: str, *, now: float) -> None: ...


class LimitsResolver(msgspec.Struct, frozen=True):
    """Completes a caller's own limits: each ceiling it leaves open is its tier's, and what that leaves open is the default."""

    tiers: Mapping[str, Limits] = {}
    default: Limits = Limits()

    def complete(self, principal: Principal) -> Principal:
        own, tier, default = principal.limits, self.tiers.get(principal.tier, self.default), self.default
        limits = Limits(
            tokens_per_minute=_first(own.tokens_per_minute, tier.tokens_per_minute, default.tokens_per_minute),
            requests_per_minute=_first(own.requests_per_minute, tier.requests_per_minute, default.requests_per_minute),
            concurrency=_first(own.concurrency, tier.concurrency, default.concurrency),
        )
        return Principal(
            principal.key_id, principal.tenant, principal.user, principal.tier, limits, principal.models, admin=principal.admin
        )


class AuthenticatorStatistics(msgspec.Struct, frozen=True):
    cached_keys: int
    cached_tokens: int
    cached_refusals: int
    hits: int
    """Answers given from a cache, good or bad."""
    misses: int
    refused: int


class _Answer(msgspec.Struct, frozen=True):
    """What is remembered of a good credential; `until` is an instant of the monotonic clock."""

    principal: Principal
    until: float


class _Refusal(msgspec.Struct, frozen=True):
    """What is remembered of a bad one."""

    why: str
    until: float


_Kept = TypeVar("_Kept")


class _Recent(Generic[_Kept]):
    """The most recently used answers by digest, up to a capacity."""

    __slots__ = ("_capacity", "_kept")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()

    def get(self, digest: bytes) -> _Kept | None:
        kept = self._kept.get(digest)
        if kept is not None:
            self._kept.move_to_end(digest)
        return kept

    def put(self, digest: bytes, kept: _Kept) -> None:
        self._kept[digest] = kept
        self._kept.move_to_end(digest)
        if len(self._kept) > self._capacity:
            self._kept.popitem(last=False)

    def clear(self) -> None:
        self._kept.clear()

    def __len__(self) -> int:
        return len(self._kept)


class CachedAuthenticator:
    """Implements `ports.Authenticator` over a book of API keys and, where JWT is configured, a token verifier.

    A reload of the configuration makes a fresh one; a change of keys is adopted.
    """

    def __init__(
        self,
        *,
        keys: KeyBook,
        wall_clock: Callable[[], float],
        tokens: TokenVerifier | None = None,
        limits: LimitsResolver | None = None,
        key_capacity: int = KEY_CAPACITY,
        token_capacity: int = TOKEN_CAPACITY,
        refused_capacity: int = REFUSED_CAPACITY,
    ) -> None:
        self._keys = keys
        self._wall_clock = wall_clock
        self._tokens = tokens
        self._limits = limits or LimitsResolver()
        self._good_keys: _Recent[_Answer] = _Recent(key_capacity)
        self._good_tokens: _Recent[_Answer] = _Recent(token_capacity)
        self._bad: _Recent[_Refusal] = _Recent(refused_capacity)
        self._hits = self._misses = self._refused = 0

    def adopt_keys(self, keys: KeyBook) -> None:
        """Answer by this book from now on, and forget what was answered by the one before."""
        self._keys = keys
        self._good_keys.clear()
        self._bad.clear()

    def known(self, credential: Secret, *, now: float) -> Principal | TidegateError | None:
        """Answer from memory; None when the key of a token must be fetched first (`verify`)."""
        token = credential.reveal()
        if not 0 < len(token) <= MAX_CREDENTIAL_CHARACTERS:
            return self._refuse(_TOO_LONG if token else _NONE_CAME)
        digest = credential.digest()
        good = self._good_keys if token.startswith(_API_KEY_PREFIX) else self._good_tokens
        answer = good.get(digest)
        if answer is not None and now < answer.until:
            self._hits += 1
            return answer.principal
        refusal = self._bad.get(digest)
        if refusal is not None and now < refusal.until:
            self._hits += 1
            return self._refuse(refusal.why)
        self._misses += 1
        return self._judge_key(token, digest, now) if good is self._good_keys else self._judge_token(token, digest, now)

    async def verify(self, credential: Secret, *, now: float) -> Principal | TidegateError:
        """Answer after fetching what is needed, within the verifier's own deadline."""
        answer = self.known(credential, now=now)
        if answer is None and self._tokens is not None:
            await self._tokens.obtain_key(credential.reveal(), now=now)
            answer = self.known(credential, now=now)
        return answer if answer is not None else self._refuse(_NO_KEY_SET)

    def statistics(self) -> AuthenticatorStatistics:
        return AuthenticatorStatistics(
            cached_keys=len(self._good_keys),
            cached_tokens=len(self._good_tokens),
            cached_refusals=len(self._bad),
            hits=self._hits,
            misses=self._misses,
            refused=self._refused,
        )

    def __repr__(self) -> str:
        return f"CachedAuthenticator({self.statistics()!r})"

    def _judge_key(self, token: str, digest: bytes, now: float) -> Principal | TidegateError:
        wall_now = self._wall_clock()
        match = self._keys.match(token, wall_now=wall_now)
        if match is None:
            return self._refuse_for_a_while(digest, now, self._keys.why_not(token, wall_now=wall_now))
        return self._accept(self._good_keys, digest, match.principal, now=now, lasts_s=_rest(match.expires_at, wall_now))

    def _judge_token(self, token: str, digest: bytes, now: float) -> Principal | TidegateError | None:
        if self._tokens is None:
            return self._refuse_for_a_while(digest, now, _NO_ISSUER)
        wall_now = self._wall_clock()
        verdict = self._tokens.check(token, now=now, wall_now=wall_now)
        if verdict is None:
            return None
        if verdict.principal is None:
            return self._refuse_for_a_while(digest, now, verdict.why) if verdict.lasting else self._refuse(verdict.why)
        lasts_s = min(_rest(verdict.expires_at, wall_now), RECHECK_S)
        return self._accept(self._good_tokens, digest, verdict.principal, now=now, lasts_s=lasts_s)

    def _accept(self, good: _Recent[_Answer], digest: bytes, principal: Principal, *, now: float, lasts_s: float) -> Principal:
        completed = self._limits.complete(principal)
        good.put(digest, _Answer(principal=completed, until=now + lasts_s))
        return completed

    def _refuse_for_a_while(self, digest: bytes, now: float, why: str) -> TidegateError:
        self._bad.put(digest, _Refusal(why, now + REFUSED_S))
        return self._refuse(why)

    def _refuse(self, why: str) -> TidegateError:
        self._refused += 1
        return Unauthenticated(
            "The API key or token is missing, unknown, revoked or expired; send `Authorization: Bearer <key>` with a key that works"
            " (whoever runs this gateway sees them with `tidegate keys list` and makes one with `tidegate keys create`).",
            why=why,
        )


def extract_credential(headers: Headers) -> Secret:
    """Take the credential out of a request's head: `Authorization: Bearer …`, `x-api-key` or `api-key`, as different SDKs send it.

    Gives an empty `Secret`, which every authenticator refuses, when there is none, when `Authorization` is no bearer
    credential, or when two fields differ: choosing between two callers is not ours to do.
    """
    found: bytes | None = None
    for name, value in headers:
        if name not in _CREDENTIAL_SHAPES:
            continue
        if name != b"authorization" and not value.strip():
            continue  # some clients send their key field empty when they have nothing to say
        credential = _usual_bearer(value) if name == b"authorization" else None
        if credential is None:
            shape = _CREDENTIAL_SHAPES[name].fullmatch(value)
            if shape is None:
                return Secret("")
            credential = shape[1]
        if found is not None and found != credential:
            return Secret("")
        found = credential
    return Secret(found.decode("ascii") if found is not None else "")


def _usual_bearer(value: bytes) -> bytes | None:
    """Read a bearer credential of letters and digits, `-`, `_` and `.`, as nearly all are: what `_BEARER` reads, for much less."""
    if not value.startswith(_USUAL_BEARER):
        return None
    credential = value[len(_USUAL_BEARER) :]
    return credential if credential.translate(None, b"-_.").isalnum() else None


def _rest(expires_at: float | None, wall_now: float) -> float:
    """Tell how long an answer may be kept by its expiry alone; one that ends far ahead is looked at again in between."""
    return float("inf") if expires_at is None else min(expires_at - wall_now, RECHECK_S)


def _first(*ceilings: int | None) -> int | None:
    return next((ceiling for ceiling in ceilings if ceiling is not None), None)
