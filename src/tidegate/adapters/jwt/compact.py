"""Takes a signed token apart (RFC 7515 compact form), strictly, without believing anything in it.

What passes here is exactly three base64url segments in canonical form, two JSON objects without repeated names, one of three algorithms by
its exact name, and no header field that asks for keys from elsewhere or for processing we do not do (RFC 8725, sections 3.1 to 3.11).
Nothing raises for a bad token: the reason is the value.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from enum import StrEnum
from typing import Final, NoReturn

import msgspec

MAX_TOKEN_CHARACTERS: Final = 16_384  # a quarter of the head's bound; real tokens with many groups reach 8 KiB
MAX_KEY_NAME_CHARACTERS: Final = 256
_SEGMENT = re.compile(r"[A-Za-z0-9_-]*", re.ASCII)
_REFUSED_FIELDS: Final = frozenset({"crit", "b64", "jwk", "jku", "x5u", "enc", "zip"})
_ACCEPTED_TYPES: Final = frozenset({"jwt", "application/jwt", "at+jwt", "application/at+jwt"})

JsonObject = dict[str, object]


class Algorithm(StrEnum):
    """The three we verify. Each belongs to one kind of key: a shared secret, an RSA key, a P-256 key."""

    HS256 = "HS256"
    RS256 = "RS256"
    ES256 = "ES256"


_ALGORITHMS: Final = {algorithm.value: algorithm for algorithm in Algorithm}


class Refusal(StrEnum):
    """Why a token was refused: for counters, records and the log, never for the client."""

    TOO_LONG = "too_long"
    MALFORMED = "malformed"
    ALGORITHM = "algorithm"
    HEADER_FIELD = "header_field"
    ISSUER = "issuer"
    AUDIENCE = "audience"
    UNKNOWN_KEY = "unknown_key"
    SIGNATURE = "signature"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    CLAIMS = "claims"

    @property
    def words(self) -> str:
        """The same for operators."""
        return _WORDS[self]


_WORDS: Final = {
    Refusal.TOO_LONG: "the token is too long",
    Refusal.MALFORMED: "what came is neither a key of this gateway nor a token (JWT)",
    Refusal.ALGORITHM: "the token is signed by an algorithm that is not among its issuer's `algorithms`",
    Refusal.HEADER_FIELD: "the token's header has a field that is not understood",
    Refusal.ISSUER: "the token's `iss` is no issuer of the configuration",
    Refusal.AUDIENCE: "the token's `aud` is not the configured `audience`",
    Refusal.UNKNOWN_KEY: "its issuer's key set has no key for the token, or was never had (`key_set.became_unavailable` in the log)",
    Refusal.SIGNATURE: "the token's signature is wrong: another key or secret made it",
    Refusal.EXPIRED: "the token has expired",
    Refusal.NOT_YET_VALID: "the token is not valid yet: its `nbf` or `iat` lies ahead of this machine's clock",
    Refusal.CLAIMS: "the token lacks its `exp`, its tenant or its user, or one of them cannot be used",
}


class ParsedToken(msgspec.Struct, frozen=True):
    """A token taken apart; its claims are unproven until the signature is checked."""

    algorithm: Algorithm
    key_name: str | None
    claims: JsonObject
    signing_input: bytes
    signature: bytes

    def __repr__(self) -> str:
        return f"ParsedToken(algorithm={self.algorithm}, ****)"


def parse_token(token: str) -> ParsedToken | Refusal:
    """Take a compact token apart, or say why it cannot be one of ours."""
    if len(token) > MAX_TOKEN_CHARACTERS:
        return Refusal.TOO_LONG
    segments = [decode_segment(segment) for segment in token.split(".", maxsplit=3)]
    if len(segments) != 3 or None in segments:  # noqa: PLR2004  header, claims, signature
        return Refusal.MALFORMED
    header, claims, signature = parse_object(segments[0]), parse_object(segments[1]), segments[2]
    if header is None or claims is None or signature is None:
        return Refusal.MALFORMED
    judged = _judge_header(header)
    if isinstance(judged, Refusal):
        return judged
    algorithm, key_name = judged
    signing_input = token.rpartition(".")[0].encode("ascii")
    return ParsedToken(algorithm=algorithm, key_name=key_name, claims=claims, signing_input=signing_input, signature=signature)


def parse_object(text: bytes | None) -> JsonObject | None:
    """Parse a JSON object; None for anything else, for repeated names, for NaN, and for nesting too deep to read."""
    if text is None:
        return None
    try:
        parsed: object = json.loads(text.decode("utf-8"), object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _judge_header(header: JsonObject) -> tuple[Algorithm, str | None] | Refusal:
    if not _REFUSED_FIELDS.isdisjoint(header):
        return Refusal.HEADER_FIELD
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower() not in _ACCEPTED_TYPES:
        return Refusal.HEADER_FIELD
    key_name = header.get("kid")
    if key_name is not None and not (isinstance(key_name, str) and 0 < len(key_name) <= MAX_KEY_NAME_CHARACTERS):
        return Refusal.HEADER_FIELD
    named = header.get("alg")
    algorithm = _ALGORITHMS.get(named) if isinstance(named, str) else None  # `none` in any spelling, PS256 and the rest are not there
    return (algorithm, key_name) if algorithm is not None else Refusal.ALGORITHM


def decode_segment(segment: str) -> bytes | None:
    """Decode base64url without padding; None unless it is the one canonical spelling."""
    if _SEGMENT.fullmatch(segment) is None:
        return None
    try:
        decoded = urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    except binascii.Error:
        return None
    return decoded if urlsafe_b64encode(decoded).rstrip(b"=") == segment.encode("ascii") else None


def _without_repeats(pairs: list[tuple[str, object]]) -> JsonObject:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a name occurs twice")
    return fields


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(constant)
