"""What a symptom is, which ones a text speaks of, and how records are asked whether they show one of its causes.

What a row of evidence holds is told in the evidence's own sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from math import isfinite
from typing import Final

import msgspec

from tidegate.analytics.asking import QueryAnswer, QueryRequest, Value
from tidegate.analytics.rows import timestamp
from tidegate.analytics.scope import Scope
from tidegate.doctor.phrases import said, say
from tidegate.doctor.words import Words, plain, score
from tidegate.language import Language

MOST_FOUND: Final = 3
"""Symptoms that one text is taken to mean: a longer list helps nobody."""
_FEW: Final = 0.1


class RecordEvidence(msgspec.Struct, frozen=True):
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
    evidence: RecordEvidence | None = None


class Symptom(msgspec.Struct, frozen=True):
    name: str
    """What people see."""
    words: Words
    """How people say it."""
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
    """Give the symptoms that a text speaks of, the likeliest first; those far behind are left out, and nothing is taken for the nearest."""
    said = plain(text)
    scores = [(score(symptom.words, said), symptom) for symptom in table]
    best = max((points for points, _ in scores), default=0)
    found = [(points, symptom) for points, symptom in scores if points and 2 * points > best]
    return [symptom for _, symptom in sorted(found, key=lambda pair: -pair[0])][:MOST_FOUND]


def nothing_like(text: str, table: Sequence[Symptom], language: Language) -> str:
    """Say that no symptom is known by these words, and which are, each with what somebody might type."""
    column = 1 if language is Language.CHINESE else 0
    known = "\n".join(f'  {said(symptom.name, language)}  "{symptom.words.example[column]}"' for symptom in table)
    return said(say("Nothing known sounds like {text!r}. Say it in other words, or as one of:\n{known}", text=text, known=known), language)


def question(evidence: RecordEvidence, scope: Scope) -> QueryRequest:
    """Give what the store is asked."""
    since = 2 * scope.since - scope.until if evidence.compared else scope.since
    where, parameters = msgspec.structs.replace(scope, since=since).where(filters=False)
    if evidence.compared:
        parameters["middle"] = timestamp(scope.since)
    return scope.request(
        evidence.sql.replace("$span", where).replace("$sampled", where.replace("started_at", "at")), parameters, max_rows=1
    )


def judged(evidence: RecordEvidence, answer: QueryAnswer, *, span: str) -> Statement:
    """Say in words what came back. `span` names the time, like `the last 1h`."""
    row = dict(zip(answer.columns, answer.rows[0], strict=True)) if answer.rows else {}
    figures = {name: figure(name, value) for name, value in row.items()}
    if not row.get("seen") or row.get("seen_before") == 0:
        wanted = say(evidence.wants if row else evidence.wants.partition(",")[0], **figures)
        return Statement(
            Shown.UNKNOWN, say("Your records of {span} have nothing to judge it by: that takes {wanted}.", span=span, wanted=wanted)
        )
    told = say(evidence.told, **figures)
    if row.get("holds"):
        return Statement(Shown.YES, say("Yes, this is what your records of {span} show: {told}", span=span, told=told))
    return Statement(Shown.NO, say("Your records of {span} do not show it: {told}", span=span, told=told))


def figure(name: str, value: Value) -> str:
    """Write a figure as its name says: a share, a factor, seconds, or a count."""
    if value is None or (isinstance(value, float) and not isfinite(value)):
        return say("unknown")
    if not isinstance(value, int | float):
        return str(value)
    if name.endswith("share"):
        return f"{value * 100:.1f} %" if value < _FEW else f"{value * 100:.0f} %"
    if name.endswith("_s"):
        return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
    if name.endswith("factor"):
        return f"{value:.2f}"
    return f"{value:,.0f}"
