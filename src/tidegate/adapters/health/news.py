"""What nodes tell each other, as JSON, and which of it is worth hearing.

A replica is named by its address, since two nodes may call it differently; no key is ever in it. Whatever another program, or a later
Tidegate, puts on the channel is passed over.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

VERSION = 1
MAX_BYTES = 4096
"""A line of ours has a few hundred; what is longer is not decoded."""
_LONGEST_REASON = 300
_KNOWN_NODES = 1024
"""Nodes whose last number is remembered; of more than these the longest silent is forgotten, and then heard once too often."""


class NewsSource(StrEnum):
    """How it was found out."""

    CHECK = "check"
    """By asking the replica."""
    BREAKER = "breaker"
    """By calls that failed."""


class News(msgspec.Struct, frozen=True):
    """One change, or one standing fact repeated for those who missed it. `number` grows with each that a node sends."""

    version: Annotated[int, msgspec.Meta(ge=1)]
    node: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    number: Annotated[int, msgspec.Meta(ge=0)]
    address: Annotated[str, msgspec.Meta(min_length=1, max_length=2048)]
    alive: bool
    source: NewsSource
    reason: str = ""


_DECODER = msgspec.json.Decoder(News)


def encode(news: News) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(news, reason=news.reason[:_LONGEST_REASON]))


def decode(message: bytes) -> News | None:
    """Read a message; None when it is not one of this version."""
    if len(message) > MAX_BYTES:
        return None
    try:
        news = _DECODER.decode(message)
    except msgspec.MsgspecError:
        return None
    return news if news.version == VERSION else None


class Hearing:
    """Tells what is news: from another node, and later than the last from there."""

    def __init__(self, own_node: str) -> None:
        self._own_node = own_node
        self._last: dict[str, int] = {}
        """By node, in the order of their last words."""

    def is_fresh(self, news: News) -> bool:
        if news.node == self._own_node:
            return False
        last = self._last.pop(news.node, -1)
        self._last[news.node] = max(last, news.number)
        if len(self._last) > _KNOWN_NODES:
            del self._last[next(iter(self._last))]
        return news.number > last
