"""Names for ids and units, so that the type checker tells them apart."""

from __future__ import annotations

from hashlib import sha256
from typing import NewType

RequestId = NewType("RequestId", str)
TenantId = NewType("TenantId", str)
UserId = NewType("UserId", str)
KeyId = NewType("KeyId", str)
ModelName = NewType("ModelName", str)
UpstreamName = NewType("UpstreamName", str)
ReplicaId = NewType("ReplicaId", str)
"""`<upstream>/<index>`, unique in one configuration."""

Headers = tuple[tuple[bytes, bytes], ...]
"""HTTP header fields in order; names in lower case."""
HeaderLines = bytes
"""Header fields ready to be sent: any number of whole lines, each with its CR LF. Only what cannot hold a line's end is put into them: what
`domain.header_lines` has checked, numbers, and ids of our own."""


class Secret:
    """A string that must not be shown: `repr` and `str` are masked, `reveal()` gives the value."""

    __slots__ = ("_digest", "_value")

    def __init__(self, value: str) -> None:
        self._value = value
        self._digest: bytes | None = None

    def reveal(self) -> str:
        return self._value

    def digest(self) -> bytes:
        """Give the SHA-256 of the value, worked out once: to find again what belongs to it, without keeping it."""
        digest = self._digest
        if digest is None:
            digest = self._digest = sha256(self._value.encode("utf-8", "surrogatepass")).digest()
        return digest

    def __repr__(self) -> str:
        return "Secret(****)"

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)
