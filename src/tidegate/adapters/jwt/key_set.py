"""Verification keys, each bound for life to the one algorithm of its kind, and sets of them read from a JWKS document (RFC 7517).

An RSA key can only check RS256 and a P-256 key only ES256, whatever a token's header says; shared secrets come from the configuration,
never from a key set. Keys of other kinds, weak keys and encryption keys in a document are left out, not an error: providers mix them.
PyJWT and `cryptography` are imported here on first use, so that a gateway without JWT does not pay for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from tidegate.adapters.jwt.compact import Algorithm, JsonObject, decode_segment, parse_object
from tidegate.domain.units import Secret
from tidegate.errors import ConfigurationError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

MAX_DOCUMENT_BYTES: Final = 262_144  # a key is about 0.5 KB (3 KB with its certificate chain)
MAX_KEYS: Final = 64  # large providers publish two to ten
MIN_RSA_BITS: Final = 2048
MAX_RSA_BITS: Final = 8192  # checking a larger one would hold up the event loop
MIN_SECRET_BYTES: Final = 32  # RFC 7518, section 3.2


class VerificationKey:
    """One key that checks signatures of one algorithm."""

    __slots__ = ("_check", "algorithm", "name")

    def __init__(self, *, algorithm: Algorithm, name: str | None, check: Callable[[bytes, bytes], bool]) -> None:
        self.algorithm = algorithm
        self.name = name
        self._check = check

    def verify(self, signing_input: bytes, signature: bytes) -> bool:
        return self._check(signing_input, signature)

    def __repr__(self) -> str:
        return f"VerificationKey({self.algorithm}, name={self.name!r})"


class KeySet:
    """An immutable set of keys. Of two with the same name and algorithm the first counts."""

    __slots__ = ("_by_name", "_keys")

    def __init__(self, keys: Iterable[VerificationKey] = ()) -> None:
        self._keys = tuple(keys)
        self._by_name = {(key.algorithm, key.name): key for key in reversed(self._keys)}

    def find(self, algorithm: Algorithm, name: str | None) -> VerificationKey | None:
        """Give the key a token names; a token that names none may only mean the set's single key of that algorithm."""
        if name is not None:
            return self._by_name.get((algorithm, name))
        fitting = [key for key in self._keys if key.algorithm is algorithm]
        return fitting[0] if len(fitting) == 1 else None

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"KeySet({list(self._keys)!r})"


def shared_secret_key(secret: Secret, *, issuer: str) -> VerificationKey:
    """Make the HS256 key of an issuer; a secret that is too short, or is really a public key, is a `ConfigurationError`."""
    from jwt import InvalidKeyError
    from jwt.algorithms import HMACAlgorithm

    if len(secret.reveal().encode()) < MIN_SECRET_BYTES:
        raise ConfigurationError(
            f"The JWT secret of issuer {issuer} is shorter than {MIN_SECRET_BYTES} bytes; make one with `openssl rand -base64 48`."
        )
    algorithm = HMACAlgorithm(HMACAlgorithm.SHA256)
    try:
        prepared = algorithm.prepare_key(secret.reveal())
    except InvalidKeyError:
        raise ConfigurationError(
            f"The JWT secret of issuer {issuer} is a public key or certificate, which everyone may know; use `jwks` with RS256 or ES256."
        ) from None
    return VerificationKey(
        algorithm=Algorithm.HS256, name=None, check=lambda message, signature: algorithm.verify(message, prepared, signature)
    )


def parse_key_set(document: bytes, *, source: str) -> KeySet:
    """Read a JWKS document; a `ConfigurationError` when it is none, or holds no key that we can use."""
    if len(document) > MAX_DOCUMENT_BYTES:
        raise ConfigurationError(f"The key set at {source} is larger than {MAX_DOCUMENT_BYTES} bytes; check the address.")
    parsed = parse_object(document)
    listed = parsed.get("keys") if parsed is not None else None
    if not isinstance(listed, list):
        raise ConfigurationError(f'{source} is no JSON Web Key Set (a JSON object with a list "keys"); check the address.')
    if len(listed) > MAX_KEYS:
        raise ConfigurationError(f"The key set at {source} holds more than {MAX_KEYS} keys; check the address.")
    keys = [key for jwk in listed if isinstance(jwk, dict) and (key := _parse_key(jwk)) is not None]
    if not keys:
        raise ConfigurationError(
            f"The key set at {source} has no usable signing key (RSA, {MIN_RSA_BITS} to {MAX_RSA_BITS} bits, or P-256); check the address."
        )
    return KeySet(keys)


def _parse_key(jwk: JsonObject) -> VerificationKey | None:
    """Give the key, or None when it is not one of ours."""
    name, operations = jwk.get("kid"), jwk.get("key_ops", ["verify"])
    if name is not None and not isinstance(name, str):
        return None
    if jwk.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return None
    match jwk.get("kty"), jwk.get("alg"):
        case "RSA", (None | "RS256"):
            check = _rsa_check(jwk)
            return VerificationKey(algorithm=Algorithm.RS256, name=name, check=check) if check is not None else None
        case "EC", (None | "ES256"):
            check = _ec_check(jwk)
            return VerificationKey(algorithm=Algorithm.ES256, name=name, check=check) if check is not None else None
        case _:
            return None


def _rsa_check(jwk: JsonObject) -> Callable[[bytes, bytes], bool] | None:
    from jwt.algorithms import RSAAlgorithm

    key = _rsa_public_key(jwk)
    if key is None or not MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS:
        return None
    algorithm = RSAAlgorithm(RSAAlgorithm.SHA256)
    return lambda message, signature: algorithm.verify(message, key, signature)


def _ec_check(jwk: JsonObject) -> Callable[[bytes, bytes], bool] | None:
    from jwt.algorithms import ECAlgorithm

    key = _p256_public_key(jwk)
    if key is None:
        return None
    algorithm = ECAlgorithm(ECAlgorithm.SHA256)
    return lambda message, signature: algorithm.verify(message, key, signature)


def _rsa_public_key(jwk: JsonObject) -> RSAPublicKey | None:
    """Build the public half alone, whatever else the document gives away."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

    modulus, exponent = _number(jwk, "n"), _number(jwk, "e")
    if modulus is None or exponent is None:
        return None
    try:
        return RSAPublicNumbers(exponent, modulus).public_key()
    except ValueError:  # an even or tiny exponent, or modulus
        return None


def _p256_public_key(jwk: JsonObject) -> EllipticCurvePublicKey | None:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicNumbers

    x, y = _number(jwk, "x"), _number(jwk, "y")
    if jwk.get("crv") != "P-256" or x is None or y is None:
        return None
    try:
        return EllipticCurvePublicNumbers(x, y, SECP256R1()).public_key()
    except ValueError:  # the point is not on the curve
        return None


def _number(jwk: JsonObject, member: str) -> int | None:
    text = jwk.get(member)
    decoded = decode_segment(text) if isinstance(text, str) else None
    return int.from_bytes(decoded, "big") if decoded else None
