"""A script file is read whole, or every mistake in it is named with its line; docs/mock.md is such a file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tidegate.mock import MockSettings, describe, read_settings
from tidegate.mock.control import PATHS
from tidegate.mock.engine import EngineSettings
from tidegate.mock.presets import PRESETS
from tidegate.mock.script_file import settings_of
from tidegate.mock.scripting import play_of
from tidegate.testing import (
    ColdStart,
    Distribution,
    Fault,
    FaultKind,
    RetryAfter,
    RetryDialect,
    Script,
    Split,
    ToolCall,
    UsagePlace,
    Window,
    lognormal,
)

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "mock.md").read_text(encoding="utf-8")
FILES = re.findall(r"^```yml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
STRUCTS = (MockSettings, Script, EngineSettings, Window, ColdStart, Fault, RetryAfter, Split, ToolCall, Distribution)
FULL = """\
seed: 7
models: [a, b]
api_key: sesame
default: {first_token_s: {lognormal: [0.3, 0.8], max: 10}, prompt_tokens: null, newline: crlf}
scripts:
  tiny: {output_tokens: 1_000, per_token_s: .5, honour_max_tokens: no}
  "vip-*": {}
  other: tiny
  seq: [reset_before_headers, 503, {}]
  /health:
    status: 503
failures:
  - {from_s: 10, to_s: 20, fault: stall@3, ratio: 0.5}
  - {play: tiny, model: "a*"}
cold_start: {for_s: 5, how: slow, extra_s: {uniform: [1, 2]}}
engine: {batch: 8, decode_tokens_per_s: 800}
bytes_per_token: 4
context_tokens: 32768
"""


def settings(text: str) -> MockSettings:
    read = read_settings(text)
    assert isinstance(read, MockSettings), describe(read, "mock.yaml")
    return read


def problems(text: str) -> str:
    read = read_settings(text)
    assert isinstance(read, list)
    return describe(read, "mock.yaml")


def test_everything_a_file_can_say() -> None:
    """Each key arrives in its type; scripts begin from the default, and may name each other."""
    read = settings(FULL)
    assert (read.seed, read.models, read.bytes_per_token, read.context_tokens) == (7, ("a", "b"), 4, 32768)
    assert read.api_key is not None
    assert read.api_key.reveal() == "sesame"
    assert "sesame" not in repr(read)
    assert read.default.first_token_s == Distribution(lognormal=(0.3, 0.8), max=10)
    assert (read.default.prompt_tokens, read.default.newline) == (None, "\r\n")
    tiny = read.scripts["tiny"]
    assert isinstance(tiny, Script)
    assert (tiny.output_tokens, tiny.per_token_s, tiny.honour_max_tokens, tiny.newline) == (1000, 0.5, False, "\r\n")
    assert read.scripts["other"] == tiny
    sequence = read.scripts["seq"]
    assert isinstance(sequence, tuple)
    assert [(script.fault, script.status) for script in sequence] == [
        (Fault(FaultKind.RESET_BEFORE_HEADERS), 200),
        (None, 503),
        (None, 200),
    ]
    assert read.failures[0].play == {"fault": "stall@3"}
    assert read.engine == EngineSettings(batch=8, decode_tokens_per_s=800)


def test_an_empty_file_is_a_healthy_server() -> None:
    """Nothing said is everything as usual."""
    assert settings("") == settings("# nothing\n") == MockSettings()


def test_json_is_read_too_with_tabs() -> None:
    """A file that begins with a brace is JSON, however it is indented."""
    assert settings('{\n\t"seed": 3,\n\t"default": {"status": 500}\n}').default.status == 500
    assert settings(json.dumps({"models": ["x"]})).models == ("x",)
    assert isinstance(settings_of([1]), list)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("seeed: 7", 'mock.yaml:1:1: unknown key "seeed" (did you mean "seed"?)'),
        ("\ndefault:\n  falt: stall\n", 'mock.yaml:3:3: unknown key "falt" in default (did you mean "fault"?)'),
        ("scripts:\n  a:\n    fault: stal@3\n", 'mock.yaml:3:5: no such fault: "stal@3" in scripts.a.fault (did you mean "stall"?)'),
        ("scripts:\n  a:\n    usage: lates\n", 'mock.yaml:3:5: "lates" is not possible here in scripts.a.usage (did you mean "late"?)'),
        ("scripts:\n  a:\n    - {}\n    - {stats: 1}\n", "mock.yaml:4:8: unknown key"),
        ("scripts:\n  a: nobody\n", "mock.yaml:2:3: no script, fault or status is called"),
        ("scripts: [a]", "scripts is not a mapping"),
        ("failures:\n  - {from_s: 1, fault: rest}\n", "did you mean"),
        ("failures:\n  - {from_s: 1}\n", "has one of fault and play"),
        ("failures:\n  - {from_s: 2, to_s: 1, fault: cut}\n", "mock.yaml:2:17: to_s is not after from_s in failures[0].to_s"),
        ("failures:\n  - 3\n", "a window is a mapping"),
        ("failures: 3", "not a list of windows"),
        ("engine: {btach: 3}", 'unknown key "btach" in engine (did you mean "batch"?)'),
        ("engine: {single_tokens_per_s: 1}", "single_tokens_per_s is 1; with this decode_tokens_per_s and batch it lies between"),
        ("cold_start: {how: loading}", 'missing key "for_s"'),
        (
            "default: {status: 500}\ndefault: {}\n",
            'mock.yaml:2:1: the key "default" appears twice (it is first on line 1;',
        ),
        ("default: {first_token_s: soon}", "in default.first_token_s"),
        ("api_key: 3", "in api_key"),
        ("a: [", "not valid YAML"),
        ("- a", "not a mapping"),
        ('{"a": [}', "not valid YAML"),
        ("default: [1]", "expected the fields of a script"),
        ("? [a]\n: b\n", "a key is not text"),
    ],
)
def test_each_mistake_is_named_with_its_line(text: str, why: str) -> None:
    """Line, key, what is wrong, and the nearest name."""
    assert why in problems(text)


def test_all_mistakes_are_told_at_once() -> None:
    """In the order of the file."""
    told = problems("seeed: 1\ndefault: {falt: x}\nscripts:\n  a: {statsu: 3}\n").splitlines()
    assert [line.split(":")[1] for line in told] == ["1", "2", "4"]


# ── docs/mock.md ──


@pytest.mark.parametrize("text", FILES)
def test_the_files_of_the_page_are_read(text: str) -> None:
    """Every script file shown is one that is accepted."""
    settings(text)


@pytest.mark.parametrize("said", sorted(set(re.findall(r"`\[\[mock:(.*?)\]\]`", PAGE)) - {"…"}))
def test_the_markers_of_the_page_are_understood(said: str) -> None:
    """With the scripts of the page's first file."""
    play_of(json.loads(said) if said.startswith(("{", "[")) else said, Script(), settings(FILES[0]).scripts)


@pytest.mark.parametrize(
    "names",
    [
        MockSettings.__struct_fields__,
        Script.__struct_fields__,
        EngineSettings.__struct_fields__,
        FaultKind,
        RetryDialect,
        UsagePlace,
        PRESETS,
    ],
    ids=["settings", "script", "engine", "faults", "dialects", "usage", "ready_made"],
)
def test_the_page_leaves_nothing_out(names: Iterable[str]) -> None:
    """Each field, fault, dialect and ready-made script is on the page."""
    missing = [str(name) for name in names if not re.search(rf"\b{name}\b", PAGE)]
    assert missing == []


def test_the_page_has_every_control_endpoint() -> None:
    """As `GET /mock` lists them."""
    assert [path for path in PATHS if f"`{path}`" not in PAGE] == []


def test_distributions_are_written_as_in_python() -> None:
    """The constructors make what a file says."""
    assert settings("default: {headers_s: {lognormal: [1, 2]}}").default.headers_s == lognormal(1, 2)
