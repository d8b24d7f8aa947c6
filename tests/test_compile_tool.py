"""What `make up` compiles exists, stays Python, and can be loaded beside the rest: compiling itself takes too long for this suite."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tools.compile_hot_modules import HOT, NO_COMPILER, main, make_native

SOURCE = Path(__file__).resolve().parent.parent / "src" / "tidegate"
COMPILED = {f"{folder}/{name}" for folder, names in HOT.items() for name in names}


def _classes(path: Path) -> list[ast.ClassDef]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]


@pytest.mark.parametrize("module", sorted(COMPILED))
def test_the_copy_of_a_module_is_python_without_slots(module: str, tmp_path: Path) -> None:
    """The module exists, and what the compiler gets has the same classes and functions."""
    original = (SOURCE / f"{module}.py").read_text()
    copy = tmp_path / "copy.py"
    copy.write_text(original)
    make_native(copy)
    named = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    before, after = ([node.name for node in ast.walk(ast.parse(text)) if isinstance(node, named)] for text in (original, copy.read_text()))
    assert before == after
    assert "__slots__ =" not in copy.read_text()


def test_nothing_interpreted_derives_from_a_compiled_class() -> None:
    """A native class refuses to be a base of an ordinary one, which is only noticed when the compiled form runs.

    A protocol may extend a native one: nobody makes an instance of it.
    """
    native = {cls.name for module in COMPILED for cls in _classes(SOURCE / f"{module}.py")}
    interpreted = [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).with_suffix("").as_posix() not in COMPILED]
    bases = {
        f"{path.relative_to(SOURCE)}: {cls.name}({base})"
        for path in interpreted
        for cls in _classes(path)
        if "Protocol" not in (names := [base.id for base in cls.bases if isinstance(base, ast.Name)])
        for base in names
        if base in native
    }
    assert bases == set()


def test_code_compiled_from_another_state_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no compiler any more, what an earlier run left must not be what runs."""
    target = tmp_path / "compiled"
    target.mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_config_var", lambda _: None)
    assert main(target) == NO_COMPILER
    assert not target.exists()
