"""The rule book: known questions, unknown ones, and an engine that fails at night."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from tidegate.adapters.rules.language import language_of
from tidegate.adapters.rules.zen import LONGEST_QUESTION, RuleBookStatistics, ZenRuleBook, open_rule_book, reason_of
from tidegate.errors import ConfigurationError

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "rules" / "faq.json"


class PanicException(BaseException):
    """As a panic in a Rust extension reaches Python."""


class Scripted:
    """An engine that gives, or raises, one thing after the other; the last one for ever."""

    def __init__(self, *outcomes: object) -> None:
        self._outcomes = list(outcomes)
        self.contexts: list[dict[str, str]] = []

    def evaluate(self, context: dict[str, str], /) -> Any:
        self.contexts.append(context)
        outcome = self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]
        if isinstance(outcome, BaseException):
            raise outcome
        return {"performance": "1µs", "result": outcome}


@pytest.mark.parametrize(
    ("question", "part"),
    [
        ("密码忘了怎么办", "忘记密码"),
        ("I forgot my PASSWORD!", "Forgot password"),
        ("怎么退款？", "退款"),
        ("Can I get a refund?", "refund"),
        ("\ud800 refund \0", "refund"),
        ("营业时间", "9:00"),
    ],
)
def test_the_shipped_example_knows_the_usual_questions(question: str, part: str) -> None:
    """In the language they were asked in, whatever their case."""
    answer = open_rule_book(str(EXAMPLE)).decide(question, "")
    assert answer is not None
    assert part in answer


@pytest.mark.parametrize("question", ["Write a poem about the sea.", "", "写一首诗", "x" * 50_000, "x" * LONGEST_QUESTION + "refund"])
def test_other_questions_are_not_known(question: str) -> None:
    """They are handed over to people; only the beginning of a long one is looked at."""
    book = open_rule_book(str(EXAMPLE))
    assert book.decide(question, "search") is None
    assert RuleBookStatistics(answered=0, unknown=1, failed=0, trouble=None) == book.statistics()


def test_the_model_is_given_question_feature_and_language() -> None:
    """So that one file can serve several features and languages."""
    engine = Scripted({"answer": "yes"})
    assert "yes" == ZenRuleBook(engine, source="f").decide("密码" + "x" * 3_000, "search")
    [context] = engine.contexts
    assert {"question": "密码" + "x" * (LONGEST_QUESTION - 2), "feature": "search", "language": "latin"} == context


@pytest.mark.parametrize("result", [{}, {"answer": None}, {"answer": ""}])
def test_no_answer_is_an_unknown_question(result: dict[str, object]) -> None:
    """However the model says so."""
    book = ZenRuleBook(Scripted(result), source="f")
    assert book.decide("q", "") is None
    assert book.statistics().trouble is None


@pytest.mark.parametrize(
    ("outcome", "trouble"),
    [
        (RuntimeError("NodeError\n\nCaused by:\n    no such field\n\nStack backtrace:\n   0: <unknown>"), "NodeError : no such field"),
        (ValueError("bad text"), "bad text"),
        (PanicException("index out of bounds"), "index out of bounds"),
        ([{"answer": "a"}], "it gives a list, not one result: set the hit policy of its table to first"),
        ({"answer": 5}, "answer is not a text but int"),
    ],
)
def test_an_engine_that_fails_knows_nothing_and_says_so_once(outcome: object, trouble: str, caplog: pytest.LogCaptureFixture) -> None:
    """A question is handed over, one line is logged per change, and a recovery is one too."""
    book = ZenRuleBook(Scripted(outcome, outcome, {"answer": "well"}), source="faq.json")
    with caplog.at_level(logging.WARNING):
        assert [None, None, "well"] == [book.decide("secret question", "") for _ in range(3)]
    failed, recovered = [record.getMessage() for record in caplog.records]
    assert failed.startswith(f"rules.failed: faq.json: {trouble}.")
    assert "rules.recovered: faq.json decides again" == recovered
    assert "secret question" not in caplog.text
    assert RuleBookStatistics(answered=1, unknown=2, failed=2, trouble=None) == book.statistics()
    assert "ZenRuleBook('faq.json', answered=1, unknown=2)" == repr(book)


def test_an_interruption_of_the_process_is_no_fault_of_the_engine() -> None:
    """Ctrl-C passes through."""
    with pytest.raises(KeyboardInterrupt):
        ZenRuleBook(Scripted(KeyboardInterrupt()), source="f").decide("q", "")


def test_a_fault_without_words_is_named() -> None:
    """So that the log line says something."""
    assert "RuntimeError" == reason_of(RuntimeError())


def test_a_model_that_takes_long_is_refused(tmp_path: Path) -> None:
    """During an outage every request goes through it, on the event loop."""
    model = json.loads(EXAMPLE.read_text())
    table = model["nodes"][1]
    table["type"] = "expressionNode"
    slow = "sum(map([1..400000], # + len(question))) > 0 ? 'a' : 'b'"
    table["content"] = {"expressions": [{"id": "1", "key": "answer", "value": slow}]}
    file = tmp_path / "slow.json"
    file.write_text(json.dumps(model))
    with pytest.raises(ConfigurationError, match=r"slow\.json cannot be used: a question of .* takes .* ms, in which every stream waits"):
        open_rule_book(str(file))


def test_a_missing_engine_is_said_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is an optional extra."""
    monkeypatch.setitem(sys.modules, "zen", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'tidegate\[rules\]'"):
        open_rule_book(str(EXAMPLE))


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("密码忘了怎么办", "zh"),
        ("重置 password 密码的方法", "zh"),
        ("パスワードを忘れました", "ja"),
        ("비밀번호", "ko"),
        ("Мой пароль", "cyrillic"),
        ("كلمة المرور", "arabic"),
        ("my password, 密码", "latin"),
        ("営業時間は？", "ja"),
        ("123 ?!", "other"),
        ("", "other"),
    ],
)
def test_a_question_has_the_language_of_most_of_its_characters(question: str, expected: str) -> None:
    """By script; kana decide for Japanese."""
    assert expected == language_of(question)
