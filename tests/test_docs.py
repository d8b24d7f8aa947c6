"""The pages for people are true: their code runs, their YAML is accepted, their commands and files exist, both READMEs say the same.

The generated pages under docs/reference are compared with their generators beside those; here only their links are followed.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from tidegate.adapters.keys.store import KeyStore
from tidegate.adapters.wall_clock import wall_clock
from tidegate.admin.keys import KeyRequest
from tidegate.cli.main import main
from tidegate.config.prepare import prepare
from tidegate.testing import GatewayProcess, ThreadedUpstream
from tidegate.wiring.worker import KEYS_FILE

ROOT = Path(__file__).resolve().parent.parent
READMES = (ROOT / "README.md", ROOT / "README.zh-CN.md")
REFERENCE = tuple(sorted((ROOT / "docs" / "reference").glob("*.md")))
WRITTEN = (
    *READMES,
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
)
"""Pages that people write; the generated ones are `REFERENCE`."""
PLACES = (ROOT, ROOT / "src" / "tidegate", ROOT / "docs")
"""Where a path in a page may start."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_INLINE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"(?:[\w-]+/)+(?:[\w-]+\.(?:py|md|yaml|toml))?")
_TARGET = re.compile(r"^([a-z]+):(?!=)", re.MULTILINE)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path) -> list[tuple[str, str]]:
    """Give each fenced block of a page: its language and its text."""
    return _FENCE.findall(path.read_text(encoding="utf-8"))


def prose(path: Path) -> str:
    """Give a page without its fenced blocks."""
    return _FENCE.sub("", path.read_text(encoding="utf-8"))


def blocks_in(language: str) -> list[object]:
    """Give every block in a language as a test's parameter, named by its page and its number there."""
    return [
        pytest.param(text, id=f"{name(path)}-{number}")
        for path in WRITTEN
        for number, (written_in, text) in enumerate(blocks(path))
        if written_in == language
    ]


def without_comments(text: str) -> list[str]:
    """Give the lines of a block without comments, which are written in the page's language."""
    lines = (re.sub(r"(^|\s)#.*$", "", line).rstrip() for line in text.splitlines())
    return [line for line in lines if line]


def commands(path: Path) -> Iterator[str]:
    """Give each command line that a page shows, in a block or in a sentence."""
    shown = [line for language, text in blocks(path) if language == "sh" for line in without_comments(text)]
    shown += _INLINE.findall(prose(path))
    yield from (line for line in shown if line.startswith(("make ", "tidegate ")))


# ── the two READMEs ───────────────────────────────────────────────────────────


def test_both_readmes_have_the_same_code() -> None:
    """Block by block the same language and the same lines; comments may differ, and so may the drawing, which has words in it."""
    english, chinese = ([(language, without_comments(text) if language else []) for language, text in blocks(readme)] for readme in READMES)
    assert english == chinese


def test_both_readmes_have_the_same_structure() -> None:
    """The same levels of headings, and tables of the same length, in the same order."""
    english, chinese = (
        [line.split(" ", 1)[0] for line in prose(readme).splitlines() if line.startswith(("#", "| "))] for readme in READMES
    )
    assert english == chinese


def test_both_readmes_name_the_same_things() -> None:
    """A path, command, setting or page that one of them names is in the other too."""
    english, chinese = (
        {*_INLINE.findall(prose(readme)), *_LINK.findall(prose(readme))} - {other.name for other in READMES} for readme in READMES
    )
    assert english == chinese


def there(upstream: ThreadedUpstream, model: str) -> dict[str, object]:
    """Give the settings of a scripted upstream."""
    return {"dialect": "openai", "base_url": upstream.base_url, "models": [model]}


# ── code ──────────────────────────────────────────────────────────────────────


def test_the_readme_program_runs_as_pasted(tmp_path: Path) -> None:
    """The official SDK prints the model's words, given only the gateway and the key file that `make up` leaves."""
    (program,) = (text for language, text in blocks(READMES[0]) if language == "python")
    assert "http://127.0.0.1:8080/v1" in program
    model = re.search(r'model="([^"]+)"', program)
    assert model is not None
    with (
        ThreadedUpstream(models=(model[1],)) as upstream,
        GatewayProcess({"upstreams": {"there": there(upstream, model[1])}}) as gateway,
    ):
        key = gateway.create_key()
        gateway.wait_for_key(key)
        (tmp_path / ".tidegate").mkdir()
        (tmp_path / ".tidegate" / "dev-key").write_text(f"{key.reveal()}\n")
        result = subprocess.run(
            [sys.executable, "-W", "error", "-c", program.replace("http://127.0.0.1:8080", gateway.api_url)],
            cwd=tmp_path,
            env={variable: value for variable, value in os.environ.items() if not variable.lower().endswith("_proxy")},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def test_the_models_of_the_readme_are_routed_by_its_configuration(tmp_path: Path) -> None:
    """Whoever puts the page's file in place can still run the page's program and its `tidegate bench`."""
    page = READMES[0].read_text(encoding="utf-8")
    used = set(re.findall(r'model="([^"]+)"|--model (\S+)', page))
    (text,) = (text for language, text in blocks(READMES[0]) if language == "yaml")
    (tmp_path / "tidegate.yaml").write_text(text, encoding="utf-8")
    configuration = prepare(tmp_path / "tidegate.yaml", {}, file_exists=lambda _: True).configuration
    assert configuration is not None
    patterns = [route.model for route in configuration.routes]
    assert {"".join(names) for names in used} == {configuration.local_engine.model_name}
    assert any(fnmatchcase(configuration.local_engine.model_name, pattern) for pattern in patterns)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page's commands are those of curl")
def test_the_key_commands_of_the_console_page_run() -> None:
    """Make, list, rotate, revoke, line by line as pasted, with the answers that the page's table promises."""
    (block,) = (text for language, text in blocks(ROOT / "docs" / "console.md") if language == "sh" and "/admin/keys" in text)
    with ThreadedUpstream(models=("m",)) as upstream, GatewayProcess({"upstreams": {"there": there(upstream, "m")}}) as gateway:
        with KeyStore(gateway.state_directory / KEYS_FILE) as store:
            root = store.create(name="root", tenant="t", user="u", now=wall_clock(), admin=True)
        known = {"ADMIN_KEY": root.token.reveal()}
        answers: list[dict[str, Any]] = []
        for line in without_comments(block):
            if line.startswith("export "):
                known[line.removeprefix("export ").partition("=")[0]] = answers[-2]["key_id"]
                continue
            pasted = line.replace("http://127.0.0.1:8081", gateway.admin_url)
            shell = subprocess.run(["sh", "-c", pasted], env=os.environ | known, capture_output=True, text=True, timeout=30, check=True)
            answers.append(json.loads(shell.stdout))
    made, listed, rotated, revoked = answers
    assert {made["key_id"], rotated["key_id"], revoked["revoked"]} == {known["KEY_ID"]}
    assert made["key"] != rotated["key"]
    (shown,) = (key for key in listed["keys"] if key["key_id"] == made["key_id"])
    page = (ROOT / "docs" / "console.md").read_text(encoding="utf-8")
    assert [field for field in {*shown, *KeyRequest.__struct_fields__} if f"`{field}`" not in page] == []


@pytest.mark.parametrize("text", blocks_in("python"))
def test_python_is_python(text: str) -> None:
    """Every program in a page can at least be read by the interpreter."""
    assert ast.parse(text).body


@pytest.mark.parametrize("text", blocks_in("yaml"))
def test_yaml_is_accepted_without_a_word(text: str, tmp_path: Path) -> None:
    """Every configuration in a page is one that the gateway starts with, with no variable set."""
    file = tmp_path / "tidegate.yaml"
    file.write_text(text, encoding="utf-8")
    prepared = prepare(file, {}, file_exists=lambda _: True)
    assert prepared.problems == ()
    assert prepared.configuration is not None


@pytest.mark.parametrize("path", [*WRITTEN, *REFERENCE], ids=name)
def test_commands_exist(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each `make` target and each `tidegate` command that a page shows is there, with the options it is shown with."""
    targets = set(_TARGET.findall((ROOT / "Makefile").read_text()))
    for line in commands(path):
        words = shlex.split(line.partition("…")[0])
        if words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= targets, line
            if words[1] != "up":
                continue  # ARGS of the others go to programs that are not ours, or that take minutes
            options = [option for word in words if word.startswith("ARGS=") for option in word.removeprefix("ARGS=").split()]
            command = ["up"]
        else:
            options = words[1:]
            command = [word for word in words[1:3] if re.fullmatch("[a-z]+", word)]
        assert main([*command, "--help"]) == 0, line
        page = capsys.readouterr().out
        assert [option for option in options if option.startswith("--") and option not in page] == [], line


# ── files ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", [*WRITTEN, *REFERENCE], ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    """A link within the repository names a file or folder that is there."""
    targets = [target.partition("#")[0] for target in _LINK.findall(prose(path)) if "://" not in target]
    assert [target for target in targets if not (path.parent / target).exists()] == []


@pytest.mark.parametrize("path", WRITTEN, ids=name)
def test_files_and_folders_named_exist(path: Path) -> None:
    """A reader who looks for `flow/request_flow.py` finds it."""
    named = [code for code in _INLINE.findall(prose(path)) if _PATH.fullmatch(code)]
    assert [code for code in named if not any((place / code).exists() for place in PLACES)] == []
