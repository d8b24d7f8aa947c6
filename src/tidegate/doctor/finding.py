"""One line of what the doctor found: what was looked at, how it is, what to do, and the command that shows it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """It works, but not as well as it could, or not for long."""
    BAD = "bad"
    """It does not work, or soon will not: a person has to change something."""


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was found of one thing. `fix` and `command` are empty where there is nothing to do and nothing more to see."""

    name: str
    verdict: Verdict
    sentence: str
    fix: str = ""
    command: str = ""


_ORDER = (Verdict.OK, Verdict.WARNING, Verdict.BAD)


def worst(checks: Iterable[Check]) -> Verdict:
    """Give the worst verdict of all; `ok` where nothing was checked."""
    return max((check.verdict for check in checks), key=_ORDER.index, default=Verdict.OK)


def ok(name: str, sentence: str, fix: str = "", command: str = "") -> Check:
    return Check(name, Verdict.OK, sentence, fix, command)


def warning(name: str, sentence: str, fix: str, command: str = "") -> Check:
    return Check(name, Verdict.WARNING, sentence, fix, command)


def bad(name: str, sentence: str, fix: str, command: str = "") -> Check:
    return Check(name, Verdict.BAD, sentence, fix, command)
