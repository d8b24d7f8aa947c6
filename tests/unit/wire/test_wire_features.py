"""What is read of a prompt: its traits, its scripts, its length, and how much work that is."""

from __future__ import annotations

import json
import time

import pytest

from tidegate.domain.features import PromptFeatures, Script, Trait
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import ModelName
from tidegate.wire.features import READ_BYTES, read_features
from tidegate.wire.openai_request import parse_request

PROSE = "Please summarise the attached meeting notes for the finance team, and mention who owns each follow-up."


def chat(content: object, **members: object) -> ParsedRequest:
    parsed = parse_request(
        Operation.CHAT,
        json.dumps({"model": "m", "messages": [{"role": "user", "content": content}], **members}, ensure_ascii=False).encode(),
    )
    assert isinstance(parsed, ParsedRequest), parsed
    return parsed


def traits(content: object, **members: object) -> set[str]:
    return set(read_features(chat(content, **members)).traits)


def scripts(text: str) -> dict[str, float]:
    return dict(read_features(chat(text)).scripts)


# ── traits ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PROSE, set()),
        ("请根据以下客户投诉内容，判断问题属于物流、质量还是售后，并给出一句简短的回复建议。", set()),
        ("Look:\n```python\nprint(1)\n```\nWhy?", {Trait.CODE}),
        ("Look:\n```\nls -la\n```", {Trait.CODE}),
        ("As told:\n```text\nDear all, see you soon.\n```", set()),
        ("First:\n```text\nDear all.\n```\nthen\n```go\nx\n```", {Trait.CODE}),
        ("请将以下Python代码注释翻译成中文 def calculate_tax(income: float) -> float: # Calculate tax", {Trait.CODE}),
        ("What does #include <stdio.h> do?", {Trait.CODE}),
        ("function add(a, b) { return a + b }", {Trait.CODE}),
        ("why is this slow: SELECT a, b FROM orders WHERE (x = y)", {Trait.CODE}),
        ("class Box(Base):\n    pass\n", {Trait.CODE}),
        ("let x = f();\nif (a && b) {\n  g();\n}\n", {Trait.CODE}),
        ("The class of 2020 (a fine function of def and class): we SELECT the best.\nFrom all of us.", set()),
        ("def is short for definition (as in a dictionary), and fn is a key", set()),
        ("<order><id>seven</id><to>Anna</to></order>", {Trait.XML}),
        ('<?xml version="1.0"?><a/>', {Trait.XML}),
        ("<context>Some passage to read.</context> What is it about?", set()),
        ("Use </b> and </i> with care, it said, and nothing was open.", set()),
        ("<soapenv:Envelope><soapenv:Body><Get/></soapenv:Body></soapenv:Envelope>", {Trait.XML, Trait.SOAP}),
        ("<div><p>Hello</p></div>", {Trait.HTML}),
        ("<!doctype html>hello", {Trait.HTML}),
        ("one<br>two", {Trait.HTML}),
        ("<table><tr><td>a</td></tr></table>", {Trait.HTML, Trait.TABLE}),
        ('Take {"name": "Anna", "town": "Berlin"} and greet her.', {Trait.JSON}),
        ('{\n  "name": "Anna"\n}', {Trait.JSON}),
        ("a set {x, y} and a {placeholder}", set()),
        ("| a | b |\n|---|:-:|\n| x | y |", {Trait.TABLE}),
        ("a | b\n--|--\nx | y\n", {Trait.TABLE}),
        ("either this | that, or - | - nothing", set()),
        ("Revenue was 18,320.50 in May and 14,411.00 in June.", {Trait.FIGURES}),
        ("We met 3 people in 2019, twice.", set()),
        ("Solve \\frac{a}{b} for a.", {Trait.FORMULAS}),
        ("Let $x^2 = y$ be given.", {Trait.FORMULAS}),
        ("It costs $5 here and $6 there.", set()),
        ("What is ∫ f dx?", {Trait.FORMULAS}),
        ("What is twelve, or 12 + 7?", {Trait.FORMULAS}),
        ("计算 8×9", {Trait.FORMULAS}),
        ("A sheet of A×B size, made in 2019", set()),
        ("It began at 10:00:00+08:00, or thereabouts.", {Trait.FIGURES}),
        ("Call us: we are there, in the office, day and night, since the founding in 1999; a+b and c*d are welcome", set()),
        ("see https://example.com/image/cat.png", {Trait.IMAGES}),
        ("data:image/png;base64,AAAA", {Trait.IMAGES}),
        ("![a cat](cat.png)", {Trait.IMAGES}),
        ("data:audio/wav;base64,AAAA", {Trait.AUDIO}),
    ],
)
def test_what_a_person_sees_at_a_glance_is_recognised(text: str, expected: set[str]) -> None:
    """Each trait is found where it is, and not where a few of its signs stand in prose."""
    found = traits(text) - ({Trait.FIGURES} if Trait.FIGURES not in expected and Trait.FORMULAS in expected else set())
    assert expected == found


def test_fifty_numbers_are_figures_however_long_the_text() -> None:
    """A report with a table of numbers in it is no text to be copied carelessly."""
    assert Trait.FIGURES not in traits(PROSE * 100)
    assert Trait.FIGURES in traits(PROSE * 100 + " 1 and" * 50)


def test_carriage_returns_hide_nothing() -> None:
    """Text from Windows has the same traits."""
    text = "| a | b |\n|---|---|\n| x | y |\n" + "let x = f();\nif (a && b) {\n  g();\n}\n"
    assert traits(text) == traits(text.replace("\n", "\r\n"))


def test_parts_tell_of_pictures_and_sound() -> None:
    """Each dialect's way to send one is known, and costs tokens."""
    plain = read_features(chat("Look.")).prompt_tokens
    for part, trait in (
        ({"type": "image_url", "image_url": {"url": "https://h/x.png"}}, Trait.IMAGES),
        ({"type": "input_image", "file_id": "f"}, Trait.IMAGES),
        ({"type": "image", "image": "https://h/x.png"}, Trait.IMAGES),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, Trait.AUDIO),
        ({"type": "audio_url", "audio_url": {"url": "https://h/x.wav"}}, Trait.AUDIO),
    ):
        features = read_features(chat([{"type": "text", "text": "Look."}, part]))
        assert {trait} == features.traits
        assert features.prompt_tokens > plain


def test_tools_and_the_form_of_the_answer_are_traits_of_the_request() -> None:
    """They are asked for outside the messages; an empty list asks for nothing."""
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    assert {Trait.TOOLS} == traits("Hi", tools=[tool])
    assert {Trait.TOOLS} == traits("Hi", functions=[tool])
    assert set() == traits("Hi", tools=[], functions=None)
    assert {Trait.JSON_ANSWER} == traits("Hi", response_format={"type": "json_object"})
    assert {Trait.JSON_ANSWER} == traits("Hi", response_format={"type": "json_schema", "json_schema": {}})
    assert {Trait.JSON_ANSWER} == traits("Hi", guided_json={"type": "object"})
    assert set() == traits("Hi", response_format={"type": "text"}, guided_json=None)
    assert read_features(chat("Hi", tools=[tool])).prompt_tokens > read_features(chat("Hi")).prompt_tokens + 100


def test_earlier_calls_of_tools_count_as_prompt() -> None:
    """A conversation may be mostly calls and their arguments."""
    calls = [{"id": "1", "type": "function", "function": {"name": "look", "arguments": "x" * 3_600}}]
    body = json.dumps({"model": "m", "messages": [{"role": "assistant", "content": None, "tool_calls": calls}]}).encode()
    parsed = parse_request(Operation.CHAT, body)
    assert isinstance(parsed, ParsedRequest)
    assert read_features(parsed).prompt_tokens > 900


# ── scripts ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Good morning", Script.LATIN),
        ("Çok teşekkür ederim", Script.LATIN),
        ("Xin chào, tôi đã đặt một đôi giày chạy bộ cách đây hai tuần", Script.LATIN),
        ("早上好，今天的会议改到下午三点", Script.ZH),
        ("お問い合わせありがとうございます。商品の発送が遅れております。", Script.JA),
        ("안녕하세요. 지난주에 주문한 상품이 아직 도착하지 않았습니다.", Script.KO),
        ("Здравствуйте! Где мой заказ?", Script.CYRILLIC),
        ("مرحبا، أين طلبي؟", Script.ARABIC),
        ("สวัสดีครับ ผมสั่งรองเท้า", Script.OTHER),
        ("नमस्ते, मेरा सामान कहाँ है", Script.OTHER),
        ("Καλημέρα, πού είναι η παραγγελία μου;", Script.OTHER),
        ("שלום, איפה ההזמנה שלי?", Script.OTHER),
    ],
)
def test_the_script_is_the_one_that_most_letters_have(text: str, expected: Script) -> None:
    """Shares add up to the whole, the largest stands first."""
    features = read_features(chat(text))
    assert expected == features.scripts[0][0]
    assert features.share(expected) > 0.9
    assert sum(share for _, share in features.scripts) == pytest.approx(1.0)


def test_a_mixture_has_its_shares() -> None:
    """Half the letters Chinese, half Latin; what is not there has no share."""
    shares = scripts("中文文字 abcd")
    assert {Script.ZH: 0.5, Script.LATIN: 0.5} == shares
    assert read_features(chat("abcd")).share(Script.KO) == 0.0


def test_text_without_letters_has_no_script() -> None:
    """Digits, dots and emoji tell no language; they cost tokens all the same."""
    features = read_features(chat("123 … 🎉🎉"))
    assert () == features.scripts
    assert features.prompt_tokens > 10


# ── other operations and shapes ─────────────────────────────────────────────


def test_plain_prompts_are_read_in_each_of_their_shapes() -> None:
    """A string, a list of strings, ids, lists of ids: text where there is text, a count where there are ids."""

    def read(operation: Operation, name: str, value: object) -> PromptFeatures:
        parsed = parse_request(operation, json.dumps({"model": "m", name: value}).encode())
        assert isinstance(parsed, ParsedRequest)
        return read_features(parsed)

    one = read(Operation.COMPLETION, "prompt", PROSE)
    assert 15 < one.prompt_tokens < 30
    assert ((Script.LATIN, 1.0),) == one.scripts
    assert 2 * one.prompt_tokens - 2 <= read(Operation.EMBEDDING, "input", [PROSE, PROSE]).prompt_tokens <= 2 * one.prompt_tokens + 2
    assert read(Operation.COMPLETION, "prompt", [1, 2, 3]).prompt_tokens == 3
    assert read(Operation.EMBEDDING, "input", [[1, 2], [3, 4, 5]]).prompt_tokens == 5


@pytest.mark.parametrize(
    "content", [None, 5, {"text": "x"}, [], [5, None, []], [{"type": "text", "text": None}], [{"text": 5}], ["a", "b"]]
)
def test_no_shape_of_content_is_an_error(content: object) -> None:
    """What the upstream will judge is passed over here."""
    assert read_features(chat(content)).prompt_tokens >= 1


def test_a_message_without_content_is_no_error() -> None:
    """Some clients leave it out where there are calls of tools."""
    body = b'{"model":"m","messages":[{"role":"assistant"}]}'
    assert read_features(ParsedRequest(Operation.CHAT, ModelName("m"), body)).prompt_tokens == 10


def test_strings_among_parts_are_text() -> None:
    """Some clients send them so."""
    assert read_features(chat([PROSE])) == read_features(chat(PROSE))


def test_bytes_that_are_no_text_do_no_harm() -> None:
    """In a large body not every text is checked for being UTF-8; the rest of it is looked at all the same."""
    body = b'{"model":"m","messages":[{"role":"user","content":"\xff what is ```python``` for?"}]}'
    assert Trait.CODE in read_features(ParsedRequest(Operation.CHAT, ModelName("m"), body)).traits


def test_the_length_is_never_above_the_proven_bound() -> None:
    """A guess does not know better than a proof."""
    request = chat("1" * 400)
    assert read_features(request).prompt_tokens <= request.prompt_tokens_bound


# ── long prompts ──────────────────────────────────────────────────────────────


def test_of_a_long_prompt_both_ends_are_read() -> None:
    """Code at the beginning and a table at the end are seen; the length is told from what was read."""
    filler = PROSE * (5_000_000 // len(PROSE))
    request = chat(f"```python\nx\n```\n{filler}\n| a | b |\n|---|---|\n| x | y |\n")
    features = read_features(request)
    assert {Trait.CODE, Trait.TABLE} == features.traits
    short = read_features(chat(PROSE * 100)).prompt_tokens
    assert features.prompt_tokens == pytest.approx(short * len(filler) / (100 * len(PROSE)), rel=0.05)


@pytest.mark.parametrize("shift", range(14))
@pytest.mark.parametrize("piece", ["中", "🎉", "é", "\n"])
@pytest.mark.parametrize("escaped", [True, False])
def test_a_cut_falls_between_characters(shift: int, piece: str, escaped: bool) -> None:
    """Wherever a long text is cut, in raw or escaped form, both its ends are read."""
    text = "x" * shift + piece * READ_BYTES
    body = json.dumps({"model": "m", "prompt": text}, ensure_ascii=escaped).encode()
    request = ParsedRequest(Operation.COMPLETION, ModelName("m"), body)
    features = read_features(request)
    per_piece = (
        read_features(ParsedRequest(Operation.COMPLETION, ModelName("m"), json.dumps({"prompt": piece * 1000}).encode())).prompt_tokens
        / 1000
    )
    assert features.prompt_tokens == pytest.approx(per_piece * READ_BYTES, rel=0.1, abs=10)


def test_a_long_text_that_is_not_unicode_is_passed_over() -> None:
    """Bodies of this size are not checked for being UTF-8: reading them must not fail either."""
    body = b'{"model":"m","prompt":"' + b"\xff" * (READ_BYTES + 100) + b'"}'
    assert read_features(ParsedRequest(Operation.COMPLETION, ModelName("m"), body)).traits == frozenset()


def test_a_stray_byte_at_each_end_does_not_make_a_long_prompt_look_short() -> None:
    """Rules by length, budgets and kinds of prompts must not be evaded so."""
    text = (PROSE * (3 * READ_BYTES // len(PROSE))).encode()
    clean = ParsedRequest(Operation.COMPLETION, ModelName("m"), b'{"model":"m","prompt":"' + text + b'"}')
    spoilt = ParsedRequest(Operation.COMPLETION, ModelName("m"), b'{"model":"m","prompt":"\xff' + text + b'\xff"}')
    assert read_features(spoilt).prompt_tokens == pytest.approx(read_features(clean).prompt_tokens, rel=0.05)


def test_a_conversation_of_very_many_messages_is_read_at_both_ends() -> None:
    """Five thousand messages are estimated from a thousand."""
    messages = [{"role": "user", "content": PROSE}] * 5_000
    body = json.dumps({"model": "m", "messages": messages}).encode()
    features = read_features(ParsedRequest(Operation.CHAT, ModelName("m"), body))
    one = read_features(chat(PROSE)).prompt_tokens - 5  # without the beginning of the answer
    assert features.prompt_tokens == pytest.approx(5_000 * one, rel=0.1)
    parts = [{"type": "text", "text": PROSE}] * 5_000
    assert read_features(chat(parts)).prompt_tokens == pytest.approx(5_000 * (one - 5), rel=0.1)


def test_a_large_body_is_read_in_a_few_milliseconds() -> None:
    """The bound holds whatever the text is made of; the best of some tries is held against ten times what it takes when alone."""
    for text in (
        PROSE,
        "中文文本，混合 English 与数字 123。",
        "1+2, 3: 5\n",
        "<a><b>x</b></a>",
        '{"a": [1',
        "$x",
        "```",
        "</aaaaaaaaaa",
        "def f",
    ):
        request = ParsedRequest(
            Operation.COMPLETION, ModelName("m"), json.dumps({"prompt": text * (5_000_000 // len(text))}, ensure_ascii=False).encode()
        )
        best = min(_seconds(request) for _ in range(3))
        assert best < 0.05, text


def _seconds(request: ParsedRequest) -> float:
    began = time.perf_counter()
    read_features(request)
    return time.perf_counter() - began
