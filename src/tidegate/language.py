"""The languages that Tidegate speaks to people in, and how one is chosen.

Texts for programs, logs and the API are in English; only what a person reads on a page or in a terminal has a choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Language(StrEnum):
    ENGLISH = "en"
    CHINESE = "zh"


def of_environment(environment: Mapping[str, str]) -> Language:
    """Give the language of a terminal: the first of LC_ALL, LC_MESSAGES and LANG that is set decides (POSIX, 8.2)."""
    locale = next((value for name in ("LC_ALL", "LC_MESSAGES", "LANG") if (value := environment.get(name))), "")
    return Language.CHINESE if locale.lower().replace("_", "-").partition("-")[0] == Language.CHINESE else Language.ENGLISH
