"""What is masked, what is left alone, and that no text can make it slow."""

from __future__ import annotations

from time import process_time

import pytest

from tidegate.errors import ConfigurationError
from tidegate.wire.masking import MAX_FURTHER, MAX_PATTERN_CHARS, Masker, MaskPattern, mask_credentials

KEY = "abcdefghijklmnop0123456789"


@pytest.mark.parametrize(
    ("masked", "text"),
    [
        ("手机[phone]，谢谢", "手机13800138000，谢谢"),
        ("[phone] [phone] [phone]", "138-0013-8000 +86 138 0013 8000 008613800138000"),
        ("call [phone] or [phone].", "call +44 20 7946 0958 or +1 (212) 555-0100."),
        ("邮箱是[email]。", "邮箱是zhang.san+a@mail.example.com。"),
        ("[email], [email].", "a@b.cn, O'Neil@x.example."),
        ("[id_card] [id_card][phone]", "11010519491231002X 110105 19491231 002x13800138000"),
        ("[bank_card]/[bank_card]/[bank_card]", "4111111111111111/4111 1111 1111 1111/3782-822463-10005"),
        ("2024 [bank_card] 12 27", "2024 4111 1111 1111 1111 12 27"),
        ("Authorization: [key]", f"Authorization: Bearer {KEY}"),
        ("[key] [key] [key]", f"sk-{KEY} tg-{KEY} ghp_{KEY}"),
        ("[key] [key] [key]", "AKIAIOSFODNN7EXAMPLE LTAI5tExample12345 AIzaSyA-1234567890_abcdefghijklmnop"),
        ("[phone][key] 1[phone]", f"13800138000sk-{KEY} 1+12345678901"),
        ("t=[key]", "t=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"),
        ("[key]\nrest", "-----BEGIN PRIVATE KEY-----\nMIIB+/==\n-----END PRIVATE KEY-----\nrest"),
        ('"api_key": "[key]", password=[key];', '"api_key": "hunter2hunter2", password=correcthorse;'),
    ],
)
def test_what_betrays_somebody_is_masked(masked: str, text: str) -> None:
    """Each kind gets its own placeholder, and what stands beside it stays."""
    assert masked == Masker().mask(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The order 1700000000000 of 2024-11-30 costs 1,299.00; call 10086.",
        "12345678901",
        "4111111111111112",
        "110105194912310021",
        "110105194913310021",
        "110105194902300020",
        "41111111111111111111",
        "a@b and @handle and x@y@z",
        "risk-free and bearer bonds",
        "the password is secret",
        "eyJ0.eyJ0",
    ],
)
def test_what_only_looks_like_it_is_left(text: str) -> None:
    """A wrong check digit, a day that does not exist, or another length is no number of a person."""
    assert text == Masker().mask(text)


@pytest.mark.parametrize("text", ["so " * 700 + ", {}", "so, " + "so " * 700 + "{}"])
def test_a_long_text_is_cut_where_it_can_be(text: str) -> None:
    """A place to cut may be further away than a piece is long, or nowhere: all of the text is searched."""
    assert text.format("[key]") == Masker().mask(text.format(f"sk-{KEY}"))


def test_further_patterns_mask_under_their_names() -> None:
    """Patterns of the user's own come after the built-in ones; several may have one name."""
    masker = Masker([MaskPattern("staff", r"E-\d{6}"), MaskPattern("room", r"\bRoom [A-Z]?\d+"), MaskPattern("room", r"#[\d.]{2,}")])
    assert "[staff] in [room] or [room], xRoom 3" == masker.mask("E-123456 in Room B12 or #1.5, xRoom 3")
    assert "Masker([key], [email], [id_card], [bank_card], [phone], [staff], [room], [room])" == repr(masker)


def test_a_repetition_gives_nothing_back_and_ends_at_64() -> None:
    """Repetitions are possessive and bounded, whatever was written."""
    assert "a1b" == Masker([MaskPattern("x", r"\w*1")]).mask("a1b")
    assert "[x][x]" == Masker([MaskPattern("x", "a+")]).mask("a" * 128)
    assert "[x]b" == Masker([MaskPattern("x", "ca{0,1}")]).mask("cab")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("(a+)+b", "from character 1 on"),
        ("a|b", "from character 2 on"),
        ("a++", "from character 3 on"),
        ("(?=a)", "from character 1 on"),
        (r"\1", "from character 1 on"),
        ("a{65}", "repeat at most 64 times"),
        ("a{3,2}", "repeat at most 64 times"),
        ("a{0}", "repeat at most 64 times"),
        ("a?b*", "matches an empty text"),
        (r"\b", "matches an empty text"),
        ("", "matches an empty text"),
        ("[z-a]", "is not a regular expression"),
        ("a" * (MAX_PATTERN_CHARS + 1), "has more than 200 characters"),
    ],
)
def test_a_pattern_that_could_take_long_is_refused(pattern: str, expected: str) -> None:
    """Whatever could backtrack, match nothing or is no pattern is refused, with what is wrong and what to do."""
    with pytest.raises(ConfigurationError, match=expected):
        Masker([MaskPattern("mine", pattern)])


def test_names_and_number_of_patterns_are_bounded() -> None:
    """A placeholder is a plain word, and each pattern costs a pass."""
    with pytest.raises(ConfigurationError, match="is no name"):
        Masker([MaskPattern("My Name", "a")])
    with pytest.raises(ConfigurationError, match="at most 100"):
        Masker([MaskPattern("a", "a")] * (MAX_FURTHER + 1))


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "a",
            "a@",
            "a.",
            "9",
            "9 ",
            "99 ",
            "86",
            "+1 ",
            "eyJ",
            "eyJaaaaaaaaa.",
            "eyJaaaaaaaaa-",
            "password=",
            "password ",
            "bearer  ",
            "sk-",
            "[",
        ),
        *("-----BEGIN PRIVATE KEY-----", "-----BEGIN A ", "4111 1111 1111 1112 "),
    ],
)
def test_time_grows_with_the_text_and_no_faster(piece: str) -> None:
    """Law: no repetition makes masking quadratic; eight times the text takes about eight times as long, not sixty-four."""
    masker = Masker([MaskPattern("mine", r"\w+\d+x")])

    def seconds(length: int) -> float:
        text = (piece * length)[:length]
        begun = process_time()
        masker.mask(text)
        return process_time() - begun

    short = min(seconds(1_500) for _ in range(3))
    assert seconds(12_000) < 24 * short + 0.02


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("authorization: Basic YW5uOnNlY3JldA== is refused", "authorization: Basic [key] is refused"),
        ("basic understanding and Basic YWJjZGVmZw", "basic understanding and Basic YWJjZGVmZw"),
        ("basic YWJjZGVmZ", "basic YWJjZGVmZ"),
        ("see https://ann:secret@h.example/x", "see https://ann:[key]@h.example/x"),
        (r"one line\nsk-abcdefghijklmnop1234", r"one line\n[key]"),
        ("设置password=abc123，然后重启", "设置password=[key]，然后重启"),
        ("a@b.cn", "a@b.cn"),
    ],
)
def test_credentials_can_be_masked_alone(text: str, masked: str) -> None:
    """Names with passwords, in headers and addresses, are credentials like keys; personal things stay."""
    assert masked == mask_credentials(text)
