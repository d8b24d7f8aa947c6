"""The generated pages and the example file: committed as generated, complete, and right."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

import pytest
from msgspec import inspect

from tidegate import errors
from tidegate.config.check import check
from tidegate.config.convert import configuration_type
from tidegate.config.environment import with_environment
from tidegate.config.load import Loaded, load_text
from tidegate.config.prepare import prepare
from tidegate.config.reference import configuration_page, error_classes, errors_page, seconds_text, size_text, write_pages
from tidegate.config.reference_text import ADVICE
from tidegate.config.scalars import bare

ROOT = pathlib.Path(__file__).parents[3]
PAGES = ROOT / "docs" / "reference"
EXAMPLE = (ROOT / "tidegate.example.yaml").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", configuration_page(), re.DOTALL | re.MULTILINE)


def field_names(kind: inspect.Type) -> Iterator[str]:
    """Walk every key of the schema."""
    inner, _ = bare(kind)
    match inner:
        case inspect.StructType():
            for field in inner.fields:
                yield field.encode_name
                yield from field_names(field.type)
        case inspect.DictType():
            yield from field_names(inner.value_type)
        case inspect.VarTupleType():
            yield from field_names(inner.item_type)
        case _:
            pass


@pytest.mark.parametrize(("name", "text"), [("configuration.md", configuration_page()), ("errors.md", errors_page())])
def test_the_committed_page_is_the_generated_one(name: str, text: str) -> None:
    """A change of the schema or the errors without its page fails here; `python -m tidegate.config.reference docs/reference` mends it."""
    assert text == (PAGES / name).read_text(encoding="utf-8")


def test_pages_are_written_where_asked(tmp_path: pathlib.Path) -> None:
    """The writer makes the folder and both pages."""
    write_pages(tmp_path / "a" / "b")
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == ["configuration.md", "errors.md"]


@pytest.mark.parametrize("text", [*BLOCKS, EXAMPLE])
def test_every_example_loads_and_checks_without_a_word(text: str) -> None:
    """What we show works as shown, given the variables and files that it names."""
    environ = dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "0123456789abcdef0123456789abcdef")
    loaded = load_text(text, environ)
    assert isinstance(loaded, Loaded), loaded
    assert check(with_environment(loaded.configuration, environ), loaded.source, file_exists=bool) == []


def test_the_page_has_examples() -> None:
    """The test above would pass on a page without any."""
    assert len(BLOCKS) >= 4


def test_the_example_file_shows_every_setting() -> None:
    """A new setting belongs in the example too, commented out if it must be."""
    missing = [name for name in field_names(configuration_type()) if not re.search(rf"^[ #-]*{name}:", EXAMPLE, re.MULTILINE)]
    assert missing == []


def test_the_example_file_is_accepted_as_it_stands() -> None:
    """`tidegate check` has nothing to say of it, on a machine where no variable is set."""
    prepared = prepare(ROOT / "tidegate.example.yaml", {}, file_exists=lambda _: True)
    assert prepared.problems == ()
    assert prepared.configuration is not None


def test_the_example_file_is_right_where_it_is_commented_out() -> None:
    """Removing the comment marks before settings gives a file that loads."""
    text = re.sub(r"^( *)# ( *[a-z_]+:)", r"\1\2", EXAMPLE, flags=re.MULTILINE).replace("secret:", "# secret:")
    loaded = load_text(text, {"OPENROUTER_API_KEY": "k"})
    assert isinstance(loaded, Loaded), loaded
    assert loaded.configuration.server.tls is not None
    assert loaded.configuration.local_engine.threads == 4


def test_every_setting_has_a_sentence() -> None:
    """No row of the page is without a meaning."""
    assert re.findall(r"^\| .*\|\s*\|$", configuration_page().partition("# Every setting")[2], re.MULTILINE) == []


def test_the_error_tree_in_the_docstring_is_the_error_tree() -> None:
    """The drawing that the page is made from has every class, under its parent's status."""

    def below(cls: type[errors.TidegateError]) -> set[type[errors.TidegateError]]:
        return {cls}.union(*(below(child) for child in cls.__subclasses__() if child.__module__ == errors.__name__))

    drawn = [cls for cls, _, _ in error_classes()]
    assert below(errors.TidegateError) - {errors.TidegateError} == set(drawn)
    assert len(drawn) == len(set(drawn))
    for line in (errors.__doc__ or "").splitlines():
        match = re.search(r"── (\w+)\s+(\d{3}) ", line)
        if match is not None:
            assert int(match[2]) == getattr(errors, match[1]).status


def test_every_error_says_what_to_do() -> None:
    """Each class that can be met has its advice, and no advice is left over."""
    assert {cls for cls, _, is_group in error_classes() if not is_group} == set(ADVICE)


def test_a_class_derived_elsewhere_does_not_change_the_page() -> None:
    """Other parts may derive their own error from one of the tree; the page is of the tree alone."""
    page = errors_page()

    class Derived(errors.InternalError):
        """Stands for what some other module declares."""

    assert Derived in errors.InternalError.__subclasses__()
    assert page == errors_page()


def test_codes_are_unique() -> None:
    """A program can tell errors apart by code alone."""
    codes = [cls.code for cls, _, is_group in error_classes() if not is_group]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (size_text(33_554_432), "32MiB"),
        (size_text(1000), "1000"),
        (seconds_text(600.0), "10m"),
        (seconds_text(60.0), "60s"),
        (seconds_text(0.5), "0.5s"),
    ],
)
def test_defaults_are_written_as_people_do(text: str, expected: str) -> None:
    """The page shows values in the spelling that the file takes."""
    assert expected == text
