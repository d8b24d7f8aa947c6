"""Counts of texts already counted, so that a growing conversation costs only its last message.

Keyed by a 16-byte BLAKE2b of vocabulary and text: no prompt text is kept, and two texts meet by chance once in 2^64 entries.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b

KEY_BYTES = 16


class CountCache:
    """Least recently used out first. About 200 bytes an entry."""

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._counts: OrderedDict[bytes, int] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._counts)

    def __repr__(self) -> str:
        return f"<CountCache {len(self)}/{self._max_entries} hits={self.hits} misses={self.misses}>"

    def get(self, key: bytes) -> int | None:
        count = self._counts.get(key)
        if count is None:
            self.misses += 1
            return None
        self.hits += 1
        self._counts.move_to_end(key)
        return count

    def put(self, key: bytes, count: int) -> None:
        self._counts[key] = count
        self._counts.move_to_end(key)
        if len(self._counts) > self._max_entries:
            self._counts.popitem(last=False)


def cache_key(vocabulary: str, text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES, key=vocabulary.encode()[:64]).digest()
