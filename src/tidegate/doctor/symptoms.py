"""What a symptom is, how free text finds it, and how records are asked whether they show one of its causes.

A term is one word, or several that must all be there, in any order. A word of Latin letters stands for all that begin with it; one of
Chinese may stand anywhere, since nothing there separates words. A word that is said of anything (`cold`, `slow`) counts where the text
speaks of models or servers as well, or says nothing else. What a row of evidence holds is told in the evidence's own sentence.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from enum import StrEnum
from math import isfinite
from typing import Final

import msgspec

from tidegate.analytics.asking import QueryAnswer, QueryRequest, Value
from tidegate.analytics.rows import timestamp
from tidegate.analytics.scope import Scope

MOST_FOUND: Final = 3
"""Symptoms that one text is taken to mean: a longer list helps nobody."""
_FEW: Final = 0.1
_WIDE: Final = re.compile(r"[\u3400-\u9fff]")
_OF_ANYTHING: Final = frozenset(
    {"after idle", "all slow", "blank", "cold", "done", "duplicate", "empty", "first slow", "forget", "rush", "slow", "sometimes slow"}
    | {"storm", "stupid", "twice", "warm", "wrong part"}
)
"""Terms that alone may be of coffee, weather or people."""
_OF_OURS: Final = re.compile(
    r"(?<![a-z0-9])(answer|api|batch|call|chat|chunk|client|completion|engine|everything|gateway|gpt|gpu|inference|json|latency|llama|llm|"
    r"load|model|output|p9\d|prompt|qwen|replica|request|respon|server|service|start|stream|token|traffic|ttft|upstream|vllm)|[\u3400-\u9fff]|429"
)


class Evidence(msgspec.Struct, frozen=True):
    """How records show a cause.

    `sql` gives one row: `seen`, how many there are to judge by; `holds`, whether they show it; and figures that `told` names in braces.
    `wants` says what there must be to judge by; it may name figures, too. Where `seen_before` is given, there must be such before as well.
    `$span` in it stands for the condition of the time, `$sampled` for the same of samples. `compared`: the time begins as long before,
    and `{middle:…}` parts both halves.
    """

    sql: str
    told: str
    wants: str
    compared: bool = False


class Cause(msgspec.Struct, frozen=True):
    """Why it can be so, what to change, and the command that shows it; `evidence` None where records cannot tell."""

    sentence: str
    fix: str
    command: str
    evidence: Evidence | None = None


class Symptom(msgspec.Struct, frozen=True):
    name: str
    """What people see."""
    terms: str
    """Separated by commas."""
    causes: tuple[Cause, ...]


class Shown(StrEnum):
    """What the records say of a cause."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Statement(msgspec.Struct, frozen=True):
    """What the records say of one cause, in a sentence."""

    shown: Shown
    sentence: str


def matching(text: str, table: Sequence[Symptom]) -> list[Symptom]:
    """Give the symptoms that a text speaks of, the likeliest first; those far behind are left out."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    is_ours = _OF_OURS.search(plain) is not None or len(plain.split()) == 1
    scores = [
        (sum(_weight(term, plain) for term in symptom.terms.split(",") if is_ours or term.strip() not in _OF_ANYTHING), symptom)
        for symptom in table
    ]
    best = max((score for score, _ in scores), default=0)
    found = [(score, symptom) for score, symptom in scores if score and 2 * score > best]
    return [symptom for _, symptom in sorted(found, key=lambda pair: -pair[0])][:MOST_FOUND]


def _weight(term: str, text: str) -> int:
    """Give how much a term counts that is in a text: a pair of words says more than two words apart."""
    words = term.split()
    return len(words) ** 2 if all(_contains(text, word) for word in words) else 0


def _contains(text: str, word: str) -> bool:
    return word in text if _WIDE.search(word) else re.search(rf"(?<![a-z0-9]){re.escape(word)}", text) is not None


def question(evidence: Evidence, scope: Scope) -> QueryRequest:
    """Give what the store is asked."""
    since = 2 * scope.since - scope.until if evidence.compared else scope.since
    where, parameters = msgspec.structs.replace(scope, since=since).where(filters=False)
    if evidence.compared:
        parameters["middle"] = timestamp(scope.since)
    return scope.request(
        evidence.sql.replace("$span", where).replace("$sampled", where.replace("started_at", "at")), parameters, max_rows=1
    )


def judged(evidence: Evidence, answer: QueryAnswer, *, span: str) -> Statement:
    """Say in words what came back. `span` names the time, like `the last 1h`."""
    row = dict(zip(answer.columns, answer.rows[0], strict=True)) if answer.rows else {}
    figures = {name: figure(name, value) for name, value in row.items()}
    if not row.get("seen") or row.get("seen_before") == 0:
        wanted = evidence.wants.format_map(figures) if row else evidence.wants.partition(",")[0]
        return Statement(Shown.UNKNOWN, f"Your records of {span} have nothing to judge it by: that takes {wanted}.")
    told = evidence.told.format_map(figures)
    if row.get("holds"):
        return Statement(Shown.YES, f"Yes, this is what your records of {span} show: {told}")
    return Statement(Shown.NO, f"Your records of {span} do not show it: {told}")


def figure(name: str, value: Value) -> str:
    """Write a figure as its name says: a share, a factor, seconds, or a count."""
    if value is None or (isinstance(value, float) and not isfinite(value)):
        return "unknown"
    if not isinstance(value, int | float):
        return str(value)
    if name.endswith("share"):
        return f"{value * 100:.1f} %" if value < _FEW else f"{value * 100:.0f} %"
    if name.endswith("_s"):
        return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
    if name.endswith("factor"):
        return f"{value:.2f}"
    return f"{value:,.0f}"
