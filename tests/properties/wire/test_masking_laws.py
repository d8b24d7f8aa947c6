"""Laws of masking: nothing recognised survives, nothing else is touched, and once is enough."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.wire.masking import Masker

MASKER = Masker()
TELLING = (
    "13800138000",
    "+86",
    "4111111111111111",
    "11010519491231002X",
    "a@b.cn",
    "sk-abcdefghijklmnop1234",
    "api_key=",
    "Bearer",
    "[phone]",
)
APART = (" ", "\n", "，", "手机", "; ", ": ")
PIECES = st.sampled_from((*TELLING, *APART, "1", "9", "66", "4111", "x", "X", "@", "-", "+"))


@given(st.lists(PIECES, max_size=12), st.sampled_from(APART))
@example(["9", "13800138000", "4111111111111111"], " ")
def test_masking_twice_is_masking_once(pieces: list[str], apart: str) -> None:
    """Law: of words that stand apart, what has been masked stays as it is, and nothing more is found."""
    once = MASKER.mask(apart.join(pieces))
    assert once == MASKER.mask(once)


@given(st.text(), st.sampled_from(TELLING[:1] + TELLING[2:6]))
def test_what_tells_something_is_gone_behind_any_text(text: str, telling: str) -> None:
    """Law: whatever stands before it, a number, address or key that stands apart is masked."""
    assert not MASKER.mask(f"{text} {telling}").endswith(telling)


@given(
    st.text(alphabet=st.characters(exclude_characters="@", exclude_categories=("Nd", "Cs"))).filter(
        lambda text: "=" not in text and ":" not in text
    )
)
def test_text_without_digits_signs_and_long_words_stays(text: str) -> None:
    """Law: where there is no digit, no @, no assignment and no run that could be a key, nothing changes."""
    words = text.replace("-", " ").replace("_", " ")
    shortened = " ".join(word[:10] for word in words.split(" "))
    assert shortened == MASKER.mask(shortened)


@given(
    st.text(alphabet="年月 ,;甲乙", max_size=8), st.text(alphabet="年月 ,;甲乙", max_size=8), st.integers(0, 10**9 - 1), st.integers(3, 9)
)
def test_every_mobile_number_is_masked_wherever_it_stands(before: str, after: str, rest: int, second: int) -> None:
    """Law: each number of a Chinese mobile telephone is masked, and its neighbours stay."""
    assert f"{before}[phone]{after}" == MASKER.mask(f"{before}1{second}{rest:09}{after}")


@given(st.integers(2, 9), st.lists(st.integers(0, 9), min_size=11, max_size=17), st.sampled_from(["", " ", "-"]))
def test_every_number_with_a_right_last_digit_is_a_card(first: int, middle: list[int], separator: str) -> None:
    """Law: whatever its length and grouping, a card number whose Luhn digit is right is masked whole, unless it is an id card's."""
    digits = [first, *middle]
    doubled = sum(digit * 2 - 9 if digit > 4 else digit * 2 for digit in digits[::-2]) + sum(digits[-2::-2])
    text = "".join(map(str, [*digits, -doubled % 10]))
    grouped = separator.join(text[at : at + 4] for at in range(0, len(text), 4))
    assert MASKER.mask(grouped) in {"[bank_card]", "[id_card]"}
