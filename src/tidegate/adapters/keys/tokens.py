"""The format of an API key: `tg-<id>-<secret><checksum>`.

* `id`: 10 characters of `a-z0-9`. Public: it names the key in lists, logs and limits.
* `secret`: 43 characters of base 62, which is 256 random bits.
* `checksum`: CRC-32 of everything before it in 6 characters of base 62, so that a typo is told from a revoked key
  and a secret scanner can match `tg-[a-z0-9]{8,12}-[0-9A-Za-z]{49}` without false alarms. It protects nothing else.

A stored digest is one salted HMAC-SHA-256, not a slow password hash: slow hashes make guessing *low-entropy* secrets
expensive, and 256 random bits cannot be guessed at any speed, while the slow hash would be paid on the request path.
The salt makes equal tokens differ between databases, so that two stolen files cannot be compared.
"""

from __future__ import annotations

import hmac
import re
import secrets
import string
import zlib

from tidegate.domain.units import KeyId, Secret

PREFIX = "tg-"
SALT_BYTES = 16

_ID_ALPHABET = string.ascii_lowercase + string.digits
_ID_LENGTH = 10
_BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
_SECRET_LENGTH = 43  # 43 * log2(62) = 256.03 bits
_CHECKSUM_LENGTH = 6  # 62**6 > 2**32
_SHAPE = re.compile(r"tg-([a-z0-9]{8,12})-[0-9A-Za-z]{49}", re.ASCII)


def draw_key_id() -> KeyId:
    """Draw a public id; the store refuses the rare duplicate."""
    return KeyId("".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH)))


def draw_token(key_id: KeyId) -> Secret:
    """Draw a fresh token for a key."""
    body = f"{PREFIX}{key_id}-" + "".join(secrets.choice(_BASE62) for _ in range(_SECRET_LENGTH))
    return Secret(body + _checksum(body))


def key_id_of(token: str) -> KeyId | None:
    """Read the public id of a token; None when the text is no token of ours (wrong shape or checksum)."""
    shape = _SHAPE.fullmatch(token)
    if shape is None or _checksum(token[:-_CHECKSUM_LENGTH]) != token[-_CHECKSUM_LENGTH:]:
        return None
    return KeyId(shape[1])


def draw_salt() -> bytes:
    return secrets.token_bytes(SALT_BYTES)


def digest_of(token: str, salt: bytes) -> bytes:
    """Hash a whole token for storage and comparison."""
    return hmac.digest(salt, token.encode(), "sha256")


def _checksum(text: str) -> str:
    rest = zlib.crc32(text.encode())
    letters = []
    for _ in range(_CHECKSUM_LENGTH):
        rest, digit = divmod(rest, 62)
        letters.append(_BASE62[digit])
    return "".join(reversed(letters))
