"""Decides whether a JWT is good, and who it speaks for.

Invariants: nothing in a token chooses how it is checked beyond naming one of the issuer's own keys; every claim is believed only after
the signature; `exp` is required; a token without tenant or user is refused rather than lumped together with others. Time is an argument.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

import msgspec

from tidegate.adapters.jwt.compact import Algorithm, JsonObject, ParsedToken, Refusal, parse_token
from tidegate.adapters.jwt.key_set import KeySet, VerificationKey, shared_secret_key
from tidegate.adapters.jwt.key_source import Fetch, JwksFile, JwksUrl, KeySource
from tidegate.config.schema import JwtSection
from tidegate.domain.principal import DEFAULT_TIER, Principal
from tidegate.domain.units import KeyId, TenantId, UserId
from tidegate.errors import ConfigurationError

_LOG = logging.getLogger(__name__)

MAX_CLAIM_CHARACTERS: Final = 200
_LATEST_INSTANT: Final = 100_000_000_000  # the year 5138: beyond it the issuer wrote milliseconds
_PLAIN_SUBJECT = re.compile(r"[A-Za-z0-9._@+=/|:-]{1,96}", re.ASCII)
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class TokenVerdict(msgspec.Struct, frozen=True):
    """`principal` of a good token and `expires_at`, the end of its validity (leeway included, seconds since the epoch); or the refusal.

    `lasting`: the verdict cannot turn good just by waiting.
    """

    principal: Principal | None = None
    expires_at: float | None = None
    refusal: Refusal | None = None
    lasting: bool = True

    @property
    def why(self) -> str:
        return self.refusal.words if self.refusal is not None else ""


class JwtStatistics(msgspec.Struct, frozen=True):
    accepted: int
    refused: Mapping[Refusal, int]
    """By reason; reasons that never occurred are left out."""


class _Trust:
    """One configured issuer: what it may sign with, and the keys for it."""

    def __init__(self, section: JwtSection, *, fetch: Fetch | None) -> None:
        self.section = section
        self.algorithms = _algorithms(section)
        self.secret_key: VerificationKey | None = None
        if Algorithm.HS256 in self.algorithms:
            assert section.secret is not None
            self.secret_key = shared_secret_key(section.secret, issuer=section.issuer)
        self.source: KeySource | None = _key_source(section.jwks, issuer=section.issuer, fetch=fetch) if section.jwks is not None else None
        self.key_prefix = f"jwt:{hashlib.sha256(section.issuer.encode()).hexdigest()[:8]}:"

    def find_key(self, parsed: ParsedToken, *, now: float) -> VerificationKey | None:
        if parsed.algorithm is Algorithm.HS256:
            return self.secret_key
        keys = self.source.keys(now=now) if self.source is not None else KeySet()
        return keys.find(parsed.algorithm, parsed.key_name)


class JwtVerifier:
    """Verify tokens of the configured issuers. `fetch` gets key sets by URL; without it only files can be used.

    A key set that `before` read too, from the same place, begins with the keys known there: a reload forgets none.
    `check` and `obtain_key` are called from one event loop's thread.
    """

    def __init__(self, issuers: Sequence[JwtSection], *, fetch: Fetch | None = None, before: JwtVerifier | None = None) -> None:
        trusts = [_Trust(section, fetch=fetch) for section in issuers]
        self._trusts = {trust.section.issuer: [each for each in trusts if each.section.issuer == trust.section.issuer] for trust in trusts}
        self._accepted = 0
        self._refused: dict[Refusal, int] = {}
        if before is not None:
            earlier = before._sources_by_place()  # noqa: SLF001  the same class
            for place, source in self._sources_by_place().items():
                if place in earlier:
                    source.go_on_from(earlier[place])

    def check(self, token: str, *, now: float, wall_now: float) -> TokenVerdict | None:
        """Judge a token by the keys at hand; None when its key may be had by `obtain_key`. `wall_now` is seconds since the epoch."""
        parsed = parse_token(token)
        verdict = self._refuse(parsed) if isinstance(parsed, Refusal) else self._judge(parsed, now=now, wall_now=wall_now)
        if verdict is not None:
            self._count(verdict)
        return verdict

    async def obtain_key(self, token: str, *, now: float) -> None:
        """Fetch the keys of the token's issuer, if that may help; `check` it again afterwards."""
        parsed = parse_token(token)
        trust = self._find_trust(parsed) if isinstance(parsed, ParsedToken) else None
        if isinstance(trust, _Trust) and trust.source is not None:
            await trust.source.refresh(now=now)

    async def warm_up(self, *, now: float) -> None:
        """Fetch every issuer's keys before the first token comes, all at once."""
        outcomes = await asyncio.gather(*(source.refresh(now=now) for source in self._sources()), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def close(self) -> None:
        """Abandon fetches under way."""
        for source in self._sources():
            await source.close()

    def statistics(self) -> JwtStatistics:
        return JwtStatistics(accepted=self._accepted, refused=MappingProxyType(dict(self._refused)))

    def _sources(self) -> list[KeySource]:
        return [trust.source for trusts in self._trusts.values() for trust in trusts if trust.source is not None]

    def _sources_by_place(self) -> dict[tuple[str, str], KeySource]:
        """Give the source of each issuer's URL or file."""
        trusts = (trust for each in self._trusts.values() for trust in each)
        return {(trust.section.issuer, trust.section.jwks): trust.source for trust in trusts if trust.source and trust.section.jwks}

    def _judge(self, parsed: ParsedToken, *, now: float, wall_now: float) -> TokenVerdict | None:
        trust = self._find_trust(parsed)
        if isinstance(trust, Refusal):
            return self._refuse(trust)
        key = trust.find_key(parsed, now=now)
        if key is None:
            if trust.source is not None and trust.source.can_refresh(now=now):
                return None
            return self._refuse(Refusal.UNKNOWN_KEY, lasting=False)
        # `find_key` went by the algorithm, so this holds; it is what keeps a public key from ever serving as a shared secret.
        if key.algorithm is not parsed.algorithm or not key.verify(parsed.signing_input, parsed.signature):
            return self._refuse(Refusal.SIGNATURE)
        return _judge_claims(parsed.claims, trust, wall_now=wall_now)

    def _find_trust(self, parsed: ParsedToken) -> _Trust | Refusal:
        issuer = parsed.claims.get("iss")
        trusts = self._trusts.get(issuer) if isinstance(issuer, str) else None
        if not trusts:
            return Refusal.ISSUER
        audiences = _audiences(parsed.claims)
        fitting = [trust for trust in trusts if trust.section.audience in audiences]
        if not fitting:
            return Refusal.AUDIENCE
        return next((trust for trust in fitting if parsed.algorithm in trust.algorithms), Refusal.ALGORITHM)

    @staticmethod
    def _refuse(refusal: Refusal, *, lasting: bool = True) -> TokenVerdict:
        return TokenVerdict(refusal=refusal, lasting=lasting)

    def _count(self, verdict: TokenVerdict) -> None:
        if verdict.refusal is None:
            self._accepted += 1
        else:
            self._refused[verdict.refusal] = self._refused.get(verdict.refusal, 0) + 1
            _LOG.debug("token.refused: %s", verdict.refusal.value)


def _judge_claims(claims: JsonObject, trust: _Trust, *, wall_now: float) -> TokenVerdict:
    """Judge claims whose signature, issuer and audience are good already."""
    leeway_s = trust.section.leeway_s
    try:
        expires_at, not_before, issued_at = (_instant(claims, name) for name in ("exp", "nbf", "iat"))
        tenant, user, tier = (
            _text(claims, name) for name in (trust.section.tenant_claim, trust.section.user_claim, trust.section.tier_claim)
        )
        subject = _text(claims, "sub") or user
    except _UnusableClaimError:
        return TokenVerdict(refusal=Refusal.CLAIMS)
    if expires_at is None or tenant is None or user is None or subject is None:
        return TokenVerdict(refusal=Refusal.CLAIMS)
    if wall_now >= expires_at + leeway_s:
        return TokenVerdict(refusal=Refusal.EXPIRED)
    if any(begin is not None and wall_now + leeway_s < begin for begin in (not_before, issued_at)):
        return TokenVerdict(refusal=Refusal.NOT_YET_VALID, lasting=False)
    key_id = KeyId(trust.key_prefix + _bounded(subject))
    principal = Principal(key_id=key_id, tenant=TenantId(tenant), user=UserId(user), tier=tier or DEFAULT_TIER)
    return TokenVerdict(principal=principal, expires_at=expires_at + leeway_s)


class _UnusableClaimError(Exception):
    """A claim is there but of the wrong type or size; never leaves this module."""


def _instant(claims: JsonObject, name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LATEST_INSTANT:
        raise _UnusableClaimError
    return float(value)


def _text(claims: JsonObject, name: str) -> str | None:
    value = claims.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if value is None:
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_CLAIM_CHARACTERS or not value.isprintable() or not value.strip():
        raise _UnusableClaimError
    return value


def _audiences(claims: JsonObject) -> list[str]:
    audience = claims.get("aud")
    listed = audience if isinstance(audience, list) else [audience]
    return [each for each in listed if isinstance(each, str)]


def _bounded(subject: str) -> str:
    """Keep a short plain subject readable; stand a hash in for any other (`#` is not plain, so the two cannot meet)."""
    return subject if _PLAIN_SUBJECT.fullmatch(subject) else "#" + hashlib.sha256(subject.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _algorithms(section: JwtSection) -> frozenset[Algorithm]:
    """Read the accepted algorithms; a `ConfigurationError` unless exactly what they need is configured."""
    issuer = section.issuer
    try:
        algorithms = frozenset(Algorithm(name) for name in section.algorithms)
    except ValueError:
        raise ConfigurationError(f"JWT issuer {issuer}: `algorithms` may name HS256, RS256 and ES256, in capitals.") from None
    if not algorithms:
        raise ConfigurationError(f"JWT issuer {issuer}: `algorithms` is empty, so no token could be accepted; name at least one.")
    if (Algorithm.HS256 in algorithms) != (section.secret is not None):
        raise ConfigurationError(f"JWT issuer {issuer}: `secret` and the algorithm HS256 belong together; set both, or neither.")
    if bool(algorithms - {Algorithm.HS256}) != (section.jwks is not None):
        raise ConfigurationError(
            f"JWT issuer {issuer}: `jwks` and the algorithms RS256 and ES256 belong together; set `jwks`, or `algorithms: [HS256]`."
        )
    return algorithms


def _key_source(jwks: str, *, issuer: str, fetch: Fetch | None) -> KeySource:
    address = urlsplit(jwks)
    if address.scheme not in {"http", "https"}:
        return JwksFile(Path(jwks))
    if address.scheme == "http" and address.hostname not in _LOOPBACK:
        raise ConfigurationError(f"JWT issuer {issuer}: `jwks` is fetched over plain http, where anyone between can change it; use https.")
    if fetch is None:
        raise ConfigurationError(f"JWT issuer {issuer}: key sets by URL are not available here; point `jwks` at a file.")
    return JwksUrl(jwks, fetch=fetch)
