"""Check the token issuers. The aim is that no configuration that passes can be tricked into taking a forged token.

A set that accepts HS256 and RS256/ES256 from one issuer lets an attacker sign with the public key as the shared secret, so it is refused,
be it in one entry or in two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidegate.config.problem import Path, Problem, did_you_mean
from tidegate.config.schema import Configuration, JwtSection
from tidegate.config.source import Source
from tidegate.config.words import split_url

SHORTEST_SECRET = 32
"""Bytes: as long as the hash of HS256 (RFC 7518, section 3.2)."""

_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})
_SYMMETRIC = frozenset({"HS256"})
_ASYMMETRIC = frozenset({"RS256", "ES256"})
_ALGORITHMS = ("HS256", "RS256", "ES256")


def check_jwt(configuration: Configuration, source: Source, *, file_exists: Callable[[str], bool]) -> Iterator[Problem]:
    """Check each issuer, and that entries of one issuer agree."""
    earlier: list[JwtSection] = []
    for index, issuer in enumerate(configuration.jwt):
        path: Path = ("jwt", index)
        for field, value in (("issuer", issuer.issuer), ("audience", issuer.audience)):
            if not value.strip():
                yield source.problem(
                    (*path, field), f"the {field} is empty, so tokens made for others would be taken", f"write the exact {field}"
                )
        yield from _check_algorithms(issuer, path, source)
        yield from _check_secret(issuer, path, source)
        yield from _check_key_set(issuer, path, source, file_exists)
        for other in earlier:
            if other.issuer != issuer.issuer:
                continue
            if other.audience == issuer.audience:
                message = f'"{issuer.issuer}" with this audience is written twice'
                yield source.problem((*path, "issuer"), message, "keep one of them")
            elif _families(other) != _families(issuer):
                message = f'"{issuer.issuer}" signs with HS256 in one entry and with RS256 or ES256 in another'
                yield source.problem((*path, "algorithms"), message, "one issuer has one kind of key: choose")
            else:
                continue
            break
        earlier.append(issuer)


def _families(issuer: JwtSection) -> tuple[bool, bool]:
    accepted = frozenset(issuer.algorithms)
    return bool(accepted & _SYMMETRIC), bool(accepted & _ASYMMETRIC)


def _check_algorithms(issuer: JwtSection, path: Path, source: Source) -> Iterator[Problem]:
    if not issuer.algorithms:
        yield source.problem((*path, "algorithms"), "no algorithm is accepted", f"list one of {', '.join(_ALGORITHMS)}")
    for index, algorithm in enumerate(issuer.algorithms):
        where = (*path, "algorithms", index)
        if algorithm.lower() == "none":
            yield source.problem(where, 'the algorithm "none" takes tokens that nobody signed', "delete it")
        elif algorithm not in _ALGORITHMS:
            spelled = next((known for known in _ALGORITHMS if known.lower() == algorithm.lower()), None)
            hint = f'did you mean "{spelled}"?' if spelled else did_you_mean(algorithm, _ALGORITHMS)
            message = f'the algorithm "{algorithm}" is not supported'
            yield source.problem(where, message, hint or f"use {', '.join(_ALGORITHMS)}")
    if all(_families(issuer)):
        yield source.problem(
            (*path, "algorithms"),
            "HS256 together with RS256 or ES256: a public key could be used as the shared secret to forge tokens",
            "accept either HS256 or RS256/ES256 from one issuer",
        )


def _check_secret(issuer: JwtSection, path: Path, source: Source) -> Iterator[Problem]:
    symmetric, asymmetric = _families(issuer)
    where = (*path, "secret")
    if symmetric and issuer.secret is None:
        yield source.problem(where, "HS256 needs a secret", "add secret: ${NAME} with a variable of at least 32 random bytes")
    elif symmetric and issuer.secret is not None:
        if issuer.secret.reveal().lstrip().startswith(("-----BEGIN", "ssh-")):
            message = "the secret is a public key or certificate, which everyone may know"
            yield source.problem(where, message, "use jwks with RS256 or ES256")
        elif len(issuer.secret.reveal().encode()) < SHORTEST_SECRET:
            message = f"the secret is shorter than {SHORTEST_SECRET} bytes and could be guessed"
            yield source.problem(where, message, "make one with: openssl rand -hex 32")
    elif asymmetric and issuer.secret is not None:
        yield source.problem(where, "RS256 and ES256 use no secret", "delete it, and use jwks")


def _check_key_set(issuer: JwtSection, path: Path, source: Source, file_exists: Callable[[str], bool]) -> Iterator[Problem]:
    symmetric, asymmetric = _families(issuer)
    where = (*path, "jwks")
    if issuer.jwks is None:
        if asymmetric:
            yield source.problem(where, "RS256 and ES256 need jwks, the issuer's public keys", "add jwks: with their https URL or a file")
        return
    if symmetric and not asymmetric:
        yield source.problem(where, "HS256 uses no jwks", "delete it, or accept RS256 or ES256 instead")
    if "://" not in issuer.jwks:
        if not file_exists(issuer.jwks):
            message = f'the key set "{issuer.jwks}" is not a file that can be read'
            yield source.problem(where, message, "relative paths start at the working directory; a URL begins with https://")
        return
    parts = split_url(issuer.jwks)
    if isinstance(parts, str):
        yield source.problem(where, f"the jwks URL {parts}", "write it like https://issuer/.well-known/jwks.json")
    elif parts.scheme == "http" and parts.hostname not in _THIS_MACHINE:
        yield source.problem(where, "keys fetched over http:// can be replaced on the way, and tokens forged", "use https://")
