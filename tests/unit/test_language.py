"""The language of a terminal is the one that its locale names."""

from __future__ import annotations

import pytest

from tidegate.language import Language, of_environment


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh"}, "zh"),
        ({"LANG": "zh-TW"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_CN"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": ""}, "zh"),
        ({"LANG": "zhuang"}, "en"),
    ],
)
def test_the_first_that_is_set_decides(environment: dict[str, str], language: str) -> None:
    """LC_ALL before LC_MESSAGES before LANG; English where they name another."""
    assert Language(language) is of_environment(environment)
