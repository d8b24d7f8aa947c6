"""What `make up` compiles exists, stays Python, and can be loaded beside the rest: compiling itself takes too long for this suite."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tools.compile_hot_modules import HOT, MESSAGES, NO_COMPILER, look_up_members_once, main, make_messages_native, make_native

SOURCE = Path(__file__).resolve().parent.parent / "src" / "tidegate"
COMPILED = {f"{folder}/{name}" for folder, names in HOT.items() for name in names} | set(MESSAGES)


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


def test_a_message_becomes_a_class_with_the_same_fields(tmp_path: Path) -> None:
    """Expected the Struct's fields with their order, defaults, and those of its base, in a class that asks msgspec for nothing."""
    module = tmp_path / "messages.py"
    module.write_text(
        "import msgspec\n\n\nclass Base(msgspec.Struct, frozen=True):\n    number: int\n\n\n"
        'class Told(Base, frozen=True):\n    """Said."""\n\n    text: str = "-"\n'
        '    """What."""\n\n    @property\n    def size(self) -> int:\n'
        "        return len(self.text)\n\n\nclass Other(msgspec.Struct):\n    left: int\n"
    )
    make_messages_native(module, ("Base", "Told"))
    found: dict[str, Any] = {}
    exec(compile(module.read_text(), "messages", "exec"), found)  # noqa: S102  what was just written above
    told = found["Told"](7)
    assert (told.number, told.text, told.size, found["Told"](1, text="ab").size) == (7, "-", 1, 2)
    assert [issubclass(found[name], msgspec.Struct) for name in ("Base", "Told", "Other")] == [False, False, True]


def test_members_of_enums_are_looked_up_once(tmp_path: Path) -> None:
    """Expected a constant wherever a member is named, but in a pattern, where a name would catch everything."""
    (tmp_path / "tidegate").mkdir()
    (tmp_path / "tidegate" / "colours.py").write_text("from enum import StrEnum\nclass Colour(StrEnum):\n    RED = 'r'\n    BLUE = 'b'\n")
    module = tmp_path / "user.py"
    module.write_text(
        "from tidegate.colours import Colour\n\n\ndef said(colour: Colour) -> str:\n    match colour:\n        case Colour.BLUE:\n"
        "            return 'ü' if colour is Colour.RED else Colour.BLUE.value\n    return Colour.__name__\n"
    )
    look_up_members_once(module, tmp_path)
    text = module.read_text()
    assert "case Colour.BLUE:" in text
    assert "'ü' if colour is _Colour_RED else _Colour_BLUE.value" in text
    assert "_Colour_RED: _Final = Colour.RED\n" in text
    assert "Colour.__name__" in text


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


def _decoded_into(tree: ast.AST) -> set[str]:
    """Give the names in the types that a module asks msgspec to decode or convert into."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [(call, call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")) for call in calls]
    types = [argument for call, name in named if name in ("Decoder", "convert") for argument in call.args]
    types += [keyword.value for call, name in named if name in ("Decoder", "convert", "decode") for keyword in call.keywords]
    return {name.id for kind in types for name in ast.walk(kind) if isinstance(name, ast.Name)}


def test_nothing_is_decoded_into_a_class_of_a_compiled_module() -> None:
    """A compiled class says `list` where its source says `list[Part]`: msgspec would fill it with dictionaries."""
    wrong = set()
    for path in SOURCE.rglob("*.py"):
        tree, module = ast.parse(path.read_text()), path.relative_to(SOURCE).with_suffix("").as_posix()
        origins = {cls.name: module for cls in _classes(path)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                origins |= {name.name: node.module.removeprefix("tidegate.").replace(".", "/") for name in node.names}
        wrong |= {f"{module}: {name}" for name in _decoded_into(tree) if origins.get(name) in COMPILED}
    assert wrong == set()


def test_code_compiled_from_another_state_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no compiler any more, what an earlier run left must not be what runs."""
    target = tmp_path / "compiled"
    target.mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_config_var", lambda _: None)
    assert main(target) == NO_COMPILER
    assert not target.exists()
