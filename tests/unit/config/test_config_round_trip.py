"""Law: any configuration, written as YAML, loads back equal."""

from __future__ import annotations

from enum import Enum

import msgspec
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from tidegate.config.convert import configuration_type
from tidegate.config.load import Loaded, load_text
from tidegate.config.scalars import LARGEST_WHOLE_NUMBER, bare
from tidegate.config.schema import Configuration
from tidegate.domain.units import Secret

# PyYAML's writer loses the line breaks of other systems and the byte order mark; that is not the loader's doing.
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x85\u2028\u2029\ufeff"), max_size=12) | st.sampled_from(
    [
        "${A}",
        "$${A}",
        "$$${",
        "no",
        "null",
        "~",
        "1_0",
        "1:30",
        "0o7",
        "*",
        "&a",
        "!x",
        "a: b",
        "#",
        "---",
        " x ",
        "\n",
        "'",
        '"',
        "<<",
        "=",
    ]
)


def strategy(kind: inspect.Type) -> st.SearchStrategy[object]:
    """Generate values of a type of the schema, over its whole range."""
    inner, optional = bare(kind)
    values: st.SearchStrategy[object]
    match inner:
        case inspect.StructType():
            values = st.builds(inner.cls, **{field.name: strategy(field.type) for field in inner.fields})
        case inspect.DictType():
            values = st.dictionaries(TEXT, strategy(inner.value_type), max_size=2)
        case inspect.VarTupleType():
            values = st.lists(strategy(inner.item_type), min_size=inner.min_length or 0, max_size=2).map(tuple)
        case inspect.CustomType():
            values = TEXT.map(Secret)
        case inspect.EnumType():
            values = st.sampled_from(list(inner.cls))
        case inspect.BoolType():
            values = st.booleans()
        case inspect.IntType():
            values = st.integers(inner.ge or 0, inner.le if inner.le is not None else LARGEST_WHOLE_NUMBER)
        case inspect.FloatType():
            values = st.floats(inner.ge or 0, inner.le, exclude_min=inner.ge is None)
        case inspect.StrType():
            values = TEXT
        case _:
            raise AssertionError(inner)
    return values | st.none() if optional else values


def plain(value: object) -> object:
    """Reduce a value to what YAML has, with `${` escaped."""
    reduced: object = value
    match value:
        case msgspec.Struct():
            reduced = {field: plain(getattr(value, field)) for field in value.__struct_fields__}
        case dict():
            reduced = {key: plain(member) for key, member in value.items()}
        case tuple():
            reduced = [plain(member) for member in value]
        case Secret():
            reduced = plain(value.reveal())
        case Enum():
            reduced = value.value
        case str():
            reduced = value.replace("${", "$${")
        case _:
            pass
    return reduced


@given(configuration=strategy(configuration_type()), flow=st.booleans(), unicode=st.booleans())
@settings(max_examples=60, deadline=None)
def test_law_a_configuration_written_as_yaml_loads_back_equal(configuration: Configuration, *, flow: bool, unicode: bool) -> None:
    """Whatever the values and the style of YAML, nothing is lost, rounded or taken for something else."""
    text = yaml.safe_dump(plain(configuration), default_flow_style=flow, allow_unicode=unicode, sort_keys=False)
    loaded = load_text(text, {})
    assert isinstance(loaded, Loaded), (loaded, text)
    assert configuration == loaded.configuration


@given(text=st.text(st.sampled_from("ab:-[]{}&*!|>'\"#%@`,?\n\t ~<$0\x00\x85é限"), max_size=60))
@settings(max_examples=200, deadline=None)
def test_law_any_text_gives_a_configuration_or_problems_and_never_an_exception(text: str) -> None:
    """Loading is total, and each problem's place lies within the text or just behind it."""
    loaded = load_text(text, {})
    if isinstance(loaded, list):
        assert loaded
        for problem in loaded:
            assert problem.line >= 1
            assert problem.column >= 1
            assert problem.caret <= len(problem.excerpt or "") or problem.excerpt is None
