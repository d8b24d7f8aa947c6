"""What others build on: the test kit exports what it says and explains it, the drawn error tree is the real one, and
what `make up` installs can be installed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

import tidegate
from tidegate import errors, testing

ROOT = Path(__file__).resolve().parent.parent
_DRAWN = re.compile(r"^(?P<indent>[│├└─ ]*)(?P<name>\w+)(?:\s+(?P<status>\d{3})(?=\s)|\s|$)")
_INDENT = 4
"""Characters of one level in the drawing."""


def test_the_kit_exports_what_it_lists() -> None:
    """`__all__` is sorted and names everything public in `tidegate.testing`, and nothing else."""
    public = {
        name
        for name, member in vars(testing).items()
        if not name.startswith("_") and not isinstance(member, ModuleType) and name != "annotations"
    }
    assert sorted(public) == testing.__all__


@pytest.mark.parametrize("name", testing.__all__)
def test_everything_exported_is_explained(name: str) -> None:
    """A class or function of the kit says in its own docstring what it is for."""
    own = vars(getattr(testing, name)).get("__doc__") if isinstance(getattr(testing, name), type) else getattr(testing, name).__doc__
    assert (own or "").strip()
    assert not (own or "").startswith(f"{name}("), "a docstring that a decorator made says nothing"


def test_the_version_is_the_packages() -> None:
    """`tidegate version` and the package index agree."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == tidegate.__version__


def test_the_pins_allow_what_the_package_asks_for() -> None:
    """A pin below a lower bound would make the first command of the README fail; every direct requirement has a pin."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = {
        name.lower().replace("_", "-"): version
        for name, _, version in (line.partition("==") for line in (ROOT / "constraints.txt").read_text().splitlines())
        if version
    }
    groups = (project["dependencies"], *project["optional-dependencies"].values())
    asked = [Requirement(text) for group in groups for text in group]
    assert [f"{one}: {pins.get(one.name)}" for one in asked if one.name not in pins or pins[one.name] not in one.specifier] == []


def test_the_drawn_error_tree_has_the_real_parents() -> None:
    """Each class stands in the docstring under the class it derives from, with its own status where one is drawn."""
    drawn: list[tuple[str, str]] = []
    above: list[str] = []
    for line in (errors.__doc__ or "").split("\n\n")[1].splitlines():
        match = _DRAWN.match(line)
        assert match is not None, line
        depth = len(match["indent"]) // _INDENT
        del above[depth:]
        drawn.extend((match["name"], parent) for parent in above[-1:])
        above.append(match["name"])
        if match["status"] is not None:
            assert int(match["status"]) == getattr(errors, match["name"]).status, line
    real = {
        (member.__name__, member.__bases__[0].__name__)
        for member in vars(errors).values()
        if isinstance(member, type) and issubclass(member, errors.TidegateError) and member is not errors.TidegateError
    }
    assert sorted(drawn) == sorted(real)
