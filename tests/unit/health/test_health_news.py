"""What nodes tell each other: what is said, what is understood, and what is news."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.adapters.health.news import VERSION, Hearing, News, NewsSource, decode, encode

NEWS = News(VERSION, "node-a", 3, "http://10.0.0.5:8000/v1", alive=False, source=NewsSource.CHECK, reason="refused")


def test_news_is_plain_json() -> None:
    """Anybody can read it on the channel."""
    expected = {
        "version": 1,
        "node": "node-a",
        "number": 3,
        "address": "http://10.0.0.5:8000/v1",
        "alive": False,
        "source": "check",
        "reason": "refused",
    }
    assert json.loads(encode(NEWS)) == expected
    assert decode(encode(NEWS)) == NEWS


def test_a_long_reason_is_cut() -> None:
    """A server that answers with a book does not fill the channel."""
    assert len(encode(News(VERSION, "n", 1, "http://h:1", alive=False, source=NewsSource.BREAKER, reason="x" * 100_000))) < 600


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"hello",
        b"[]",
        b'{"version":1}',
        encode(NEWS).replace(b'"version":1', b'"version":2'),
        encode(NEWS).replace(b'"check"', b'"guess"'),
        encode(NEWS)[:-1] + b" " * 5000 + b"}",
        b"\xff\xfe",
    ],
)
def test_what_is_not_ours_is_passed_over(message: bytes) -> None:
    """Other programs, later versions and oversized lines are no news and no fault."""
    assert decode(message) is None


@given(st.binary(max_size=300))
def test_law_no_message_is_a_fault(message: bytes) -> None:
    """Law: whatever stands on the channel is understood or passed over."""
    decoded = decode(message)
    assert decoded is None or isinstance(decoded, News)


def numbered(node: str, number: int) -> News:
    return News(VERSION, node, number, "http://h:1", alive=True, source=NewsSource.CHECK)


def test_own_and_stale_words_are_no_news() -> None:
    """A node does not hear itself, and not what it heard before or out of turn."""
    hearing = Hearing("me")
    assert not hearing.is_fresh(numbered("me", 1))
    heard = [hearing.is_fresh(numbered("other", number)) for number in (2, 1, 2, 3, 3, 0, 4)]
    assert heard == [True, False, False, True, False, False, True]


def test_forgotten_nodes_are_bounded() -> None:
    """After a thousand others a silent node is forgotten, one that spoke since is not."""
    hearing = Hearing("me")
    hearing.is_fresh(numbered("silent", 9))
    hearing.is_fresh(numbered("talker", 9))
    for index in range(1022):
        hearing.is_fresh(numbered(f"n{index}", 1))
    assert not hearing.is_fresh(numbered("talker", 9))
    hearing.is_fresh(numbered("one more", 1))
    assert not hearing.is_fresh(numbered("talker", 9))
    assert hearing.is_fresh(numbered("silent", 9))
