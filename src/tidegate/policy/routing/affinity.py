"""One session, one replica: its KV cache holds the conversation so far.

Rendezvous hashing: each replica draws a number from the session's hash and its own, the lowest wins, heavier replicas draw lower. When a
replica leaves, only its own sessions move; when it comes back, they return. A replica that has more than its part of the load is passed
over for the moment. Hashes are the same in every process, so that workers and nodes agree without talking.
"""

from __future__ import annotations

import hashlib
import math

MOST_LOAD = 1.25
"""Times the mean of the pool, by weight: a replica with more is passed over."""
LEAST_BOUND = 4
"""A replica with fewer calls than this is never passed over: an engine that batches does not feel them, a lost KV cache it does."""
_WORD = 0xFFFF_FFFF_FFFF_FFFF


def seed_of(name: str) -> int:
    """Hash a name to 64 bits, alike in every process."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest())


def draw(session: int, seed: int, weight: float) -> float:
    """Give the number that a replica draws for a session: exponential with the rate `weight`, so that wins are in proportion to it."""
    word = (session ^ seed) & _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD  # the finalizer of SplitMix64 (Steele, Lea, Flood 2014)
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    word ^= word >> 31
    return -math.log(((word >> 11) + 0.5) / 2.0**53) / weight
