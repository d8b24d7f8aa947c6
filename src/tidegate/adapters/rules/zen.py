"""Answers known questions by a decision model, run by zen-engine (the optional extra `rules`): implements `ports.RuleBook`.

The model is given `question` (its first 2,000 characters), `feature` and `language`, and sets `answer`; without an answer the question is
not known. Nothing is waited for: a model is checked when it is loaded, contains only nodes that compute, and must answer the longest
question within `SLOWEST_S`. Invariants: `decide` never raises; the log has one line per change of what is wrong.
"""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from tidegate.adapters.rules.language import language_of
from tidegate.adapters.rules.model_file import read_model
from tidegate.errors import ConfigurationError

LONGEST_QUESTION = 2_000
SLOWEST_S = 0.02
"""A model that takes longer is refused: during an outage every request comes this way, and streams of other routes wait meanwhile."""
_TRIALS = 3  # the fastest of them counts: a busy machine is not the model's fault
_LOG = logging.getLogger(__name__)


class Decision(Protocol):
    """What is used of zen-engine's class of that name."""

    def evaluate(self, context: dict[str, str], /) -> Any: ...


class RuleBookStatistics(msgspec.Struct, frozen=True):
    answered: int
    unknown: int
    failed: int
    """Evaluations that ended in an error; their questions count as unknown too."""
    trouble: str | None
    """What the last evaluation failed of; None when it did not."""


class ZenRuleBook:
    """One loaded model. `open_rule_book` makes it."""

    def __init__(self, decision: Decision, *, source: str) -> None:
        self._decision = decision
        self._source = source
        self._answered = self._unknown = self._failed = 0
        self._trouble: str | None = None

    def __repr__(self) -> str:
        return f"ZenRuleBook({self._source!r}, answered={self._answered}, unknown={self._unknown})"

    def decide(self, question: str, feature: str) -> str | None:
        answer, trouble = self._evaluate(question, feature)
        if trouble != self._trouble:
            self._report(trouble)
        if trouble is not None:
            self._failed += 1
        if answer is None:
            self._unknown += 1
        else:
            self._answered += 1
        return answer

    def statistics(self) -> RuleBookStatistics:
        return RuleBookStatistics(self._answered, self._unknown, self._failed, self._trouble)

    def check(self) -> None:
        """Try the model on a short and on the longest question; `ConfigurationError` when it fails or takes too long."""
        refusal = f"degradation.rules_file {self._source} cannot be used"
        for question in ("?", "x " * (LONGEST_QUESTION // 2)):
            fastest_s = float("inf")
            for _ in range(_TRIALS):
                began = time.perf_counter()
                trouble = self._evaluate(question, "")[1]
                fastest_s = min(fastest_s, time.perf_counter() - began)
                if trouble is not None:
                    raise ConfigurationError(f"{refusal}: {trouble}")
            if fastest_s > SLOWEST_S:
                raise ConfigurationError(
                    f"{refusal}: a question of {len(question):,} characters takes {fastest_s * 1000:.0f} ms, in which every stream waits; "
                    f"at most {SLOWEST_S * 1000:.0f} ms are taken. Use fewer rows, and write lower(question) once, in an expression before."
                )

    def _evaluate(self, question: str, feature: str) -> tuple[str | None, str | None]:
        """Give the answer, if there is one, and what went wrong, if anything did."""
        asked = question[:LONGEST_QUESTION].encode("utf-8", "replace").decode("utf-8")  # the engine takes no lone surrogates
        try:
            response = self._decision.evaluate({"question": asked, "feature": feature, "language": language_of(asked)})
        except (RuntimeError, ValueError, TypeError) as error:
            return None, reason_of(error)
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # what a panic in the engine becomes; it has no other name to catch it by
                raise
            return None, reason_of(error)
        result = response.get("result") if isinstance(response, dict) else None
        if not isinstance(result, dict):
            return None, "it gives a list, not one result: set the hit policy of its table to first"
        answer = result.get("answer")
        if answer is None or answer == "":
            return None, None
        if not isinstance(answer, str):
            return None, f"answer is not a text but {type(answer).__name__}"
        return answer, None

    def _report(self, trouble: str | None) -> None:
        self._trouble = trouble
        if trouble is None:
            _LOG.warning("rules.recovered: %s decides again", self._source)
        else:
            _LOG.warning("rules.failed: %s: %s. Such questions are handed over; correct the file and reload.", self._source, trouble)


def open_rule_book(path: str) -> ZenRuleBook:
    """Load and check a file; `ConfigurationError` says what is wrong with it, or that the engine is not installed."""
    zen = _engine()
    text = read_model(path, cell=_judge(zen.validate_unary_expression), value=_judge(zen.validate_expression))
    try:
        decision = zen.ZenEngine().create_decision(text)
        decision.validate()
    except (RuntimeError, ValueError) as error:
        raise ConfigurationError(f"degradation.rules_file {path} cannot be used: {reason_of(error)}") from None
    book = ZenRuleBook(decision, source=path)
    book.check()
    return book


def reason_of(error: BaseException) -> str:
    """Give the engine's own words in one line, without the stack that it appends."""
    said = str(error).partition("Stack backtrace")[0].replace("Caused by:", ": ")
    return " ".join(said.split())[:300] or type(error).__name__


def _engine() -> Any:
    try:
        return importlib.import_module("zen")
    except ImportError:
        raise ConfigurationError(
            "degradation.rules_file needs the rule engine, which is not installed: run pip install 'tidegate[rules]', or remove the setting"
        ) from None


def _judge(validate: Callable[[str], Any]) -> Callable[[str], str | None]:
    def judge(expression: str) -> str | None:
        found = validate(expression)
        return None if found is None else str(found.get("source", found))

    return judge
