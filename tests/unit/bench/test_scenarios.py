"""Scenarios of our own making and the user's own requests."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest

from tidegate.bench import scenarios
from tidegate.bench.scenarios import built_in, own
from tidegate.errors import ConfigurationError
from tidegate.wire.masking import Masker, MaskPattern
from tidegate.wire.text_statistics import measure


def _file(folder: Path, *lines: str) -> Path:
    path = folder / "mine.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_there_are_four_kinds_in_two_languages() -> None:
    """Each has passages enough for varied prompts, in English and in Chinese, and knows its name and feature."""
    kinds = built_in()
    assert ["support_chat", "product_copy", "legal_text", "code_comments"] == list(kinds)
    for name, kind in kinds.items():
        assert (name, name) == (kind.name, kind.feature)
        assert len(set(kind.texts)) == len(kind.texts) >= 15
        assert any(text.isascii() for text in kind.texts)
        assert any("的" in text for text in kind.texts)
        assert all(40 < measure(text).tokens < 500 for text in kind.texts)
        assert 2_000 < sum(measure(text).tokens for text in kind.texts)


def test_the_passages_betray_nobody() -> None:
    """No passage holds a telephone number, an address or a key: masking leaves them as they are."""
    masker = Masker()
    assert all(text == masker.mask(text) for kind in built_in().values() for text in kind.texts)


def test_the_passages_are_files_of_the_package() -> None:
    """Every file in the folder is read by one of the scenarios."""
    files = {file.name for file in (resources.files("tidegate.bench") / "texts").iterdir()}
    assert {f"{name}.{language}.txt" for name in built_in() for language in ("en", "zh")} == files


def test_own_requests_are_masked(tmp_path: Path) -> None:
    """All texts are masked, however deep; numbers, names of members and pictures stay."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,13800138000"}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "我的电话13800138000"}, picture]}]
    path = _file(tmp_path, json.dumps({"messages": messages, "seed": 13800138000}), "", '{"prompt": "write to a@b.cn"}')
    scenario = own(path)
    first, second = (json.loads(line) for line in scenario.lines)
    assert [{"type": "text", "text": "我的电话[phone]"}, picture] == first["messages"][0]["content"]
    assert 13800138000 == first["seed"]
    assert {"prompt": "write to [email]"} == second
    assert ("mine", (), None) == (scenario.name, scenario.texts, scenario.completion_tokens)


def test_masking_can_be_widened_or_switched_off(tmp_path: Path) -> None:
    """A masker of one's own adds patterns; None sends what is in the file."""
    path = _file(tmp_path, '{"prompt":"E-123456 a@b.cn"}')
    assert ('{"prompt":"[staff] [email]"}',) == own(path, mask=Masker([MaskPattern("staff", r"E-\d{6}")])).lines
    assert ('{"prompt":"E-123456 a@b.cn"}',) == own(path, mask=None).lines


@pytest.mark.parametrize(
    ("expected", "lines"),
    [
        ("line 2: it is not a JSON object: .*; write one request", ('{"prompt": "a"}', "secret")),
        ("line 1: it is not a JSON object: .*; write one request", ('["prompt"]',)),
        ("line 1: it is not a JSON object: .*; write one request", ('{"prompt":' + "[" * 100_000,)),
        ("line 1: the request has neither .*; add one", ('{"promt": "a"}',)),
        ("line 1: the request has neither .*; add one", ('{"messages": [], "prompt": ""}',)),
        ("has 0 requests; give from 1 to 100,000", ("", "")),
    ],
)
def test_a_broken_file_is_refused_with_its_line(tmp_path: Path, expected: str, lines: tuple[str, ...]) -> None:
    """The message names file and line and what to do, and quotes nothing of what people wrote."""
    with pytest.raises(ConfigurationError, match=expected) as refusal:
        own(_file(tmp_path, *lines))
    assert "secret" not in refusal.value.message


def test_what_cannot_be_requests_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file, too many bytes, or too many requests."""
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        own(tmp_path / "none")
    path = _file(tmp_path, '{"prompt":"a"}', '{"prompt":"a"}')
    monkeypatch.setattr(scenarios, "MAX_OWN_LINES", 1)
    with pytest.raises(ConfigurationError, match="has 2 requests; give from 1 to 1"):
        own(path)
    monkeypatch.setattr(scenarios, "MAX_OWN_BYTES", 3)
    with pytest.raises(ConfigurationError, match="more than 3 bytes"):
        own(path)
