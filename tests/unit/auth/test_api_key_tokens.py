"""The format of API keys."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tidegate.adapters.keys.tokens import digest_of, draw_key_id, draw_salt, draw_token, key_id_of

TOKEN = draw_token(draw_key_id()).reveal()


def test_a_token_has_the_shape_that_secret_scanners_are_told() -> None:
    """A drawn token matches the published pattern and leads back to its id."""
    key_id = draw_key_id()
    token = draw_token(key_id).reveal()

    assert re.fullmatch(r"tg-[a-z0-9]{8,12}-[0-9A-Za-z]{49}", token) is not None
    assert key_id_of(token) == key_id


def test_two_tokens_of_one_key_differ() -> None:
    """Each token is drawn afresh, also for the same key."""
    key_id = draw_key_id()

    assert draw_token(key_id) != draw_token(key_id)


@given(position=st.integers(0, len(TOKEN) - 1), character=st.characters(codec="utf-8"))
def test_one_mistyped_character_is_noticed(position: int, character: str) -> None:
    """The checksum (or the shape) tells any single wrong character."""
    mistyped = TOKEN[:position] + character + TOKEN[position + 1 :]

    assert (key_id_of(mistyped) is not None) == (mistyped == TOKEN)


@given(st.text())
def test_any_text_can_be_asked_for_its_id(text: str) -> None:
    """Text that is no token has no id, and nothing raises."""
    assert key_id_of(text) is None


def test_the_same_token_has_different_digests_under_different_salts() -> None:
    """Two databases with one token in both cannot be matched against each other."""
    assert digest_of(TOKEN, draw_salt()) != digest_of(TOKEN, draw_salt())
