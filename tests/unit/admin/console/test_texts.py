"""Every text is there in both languages, every text that is asked for exists, and none is left over."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.admin.console.conftest import Bench

from tidegate.admin.console import records, texts
from tidegate.admin.console.pages import PAGES
from tidegate.domain.limits import Resource

HERE = Path(texts.__file__).parent
_BY_NAME = re.compile(r"""\bt\("([a-z0-9_]+)\"|\bt\.([a-z0-9_]+)\b(?!\()|\bt\["([a-z0-9_]+)"\]|line\("([a-z0-9_]+)\"|"(login_[a-z]+)\"""")
_PLACES = re.compile(r"\{[a-z]+\}")


def _asked_for() -> set[str]:
    """Collect the keys that templates, scripts and pages name, and those that are put together there."""
    found: set[str] = set()
    for path in (*HERE.glob("templates/*.html"), *HERE.glob("static/*.js"), HERE / "pages.py"):
        for match in _BY_NAME.finditer(path.read_text()):
            found |= {name for name in match.groups() if name}
    found |= {f"page_{page}" for page in (*PAGES, "request")}
    found |= {f"by_{name}" for name in records.GROUPS}
    found |= {f"span_{span}" for span in ("5m", "15m", "1h", "6h", "1d", "7d", "30d")}
    found |= {f"resource_{resource}" for resource in Resource}
    found |= {f"state_{state}" for state in ("active", "expired", "revoked")}
    found |= {"ttft", "per_token", "e2e", "tokens_per_minute", "requests_per_minute", "concurrency", "queue", "prefill", "decode"}
    return found | {"drain", "enable", "holds", "does_not_hold", "available", "not_available"}


def test_both_languages_have_every_text() -> None:
    """Neither is empty, and both have the same places for values."""
    for key, (english, chinese) in texts.TEXTS.items():
        assert english.strip(), key
        assert chinese.strip(), key
        assert _PLACES.findall(english) == _PLACES.findall(chinese), key


def test_every_text_that_is_asked_for_is_there_and_no_other() -> None:
    """A key with a slip of the pen would be an error on a page."""
    assert set() == _asked_for() - set(texts.TEXTS)
    assert set() == set(texts.TEXTS) - _asked_for()


@pytest.mark.parametrize(
    ("chosen", "accept", "language"),
    [
        (None, "", "en"),
        (None, "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        (None, "fr, en;q=0.5, zh;q=0.9", "zh"),
        (None, "zh;q=x, en", "en"),
        ("en", "zh", "en"),
        ("xx", "zh", "zh"),
    ],
)
def test_the_language_is_the_one_chosen_else_the_one_wanted_most(chosen: str | None, accept: str, language: str) -> None:
    """What a browser says in error counts for nothing."""
    assert language == texts.language_of(chosen, accept)


def test_choosing_a_language_is_remembered(bench: Bench) -> None:
    """By a cookie, for the pages that follow."""
    bench.sign_in()
    assert '<html lang="zh"' in bench.client.get("/console/limits?lang=zh").text
    assert '<html lang="zh"' in bench.client.get("/console/limits").text
    assert '<html lang="en"' in bench.client.get("/console/limits?lang=en").text
