"""Every sentence of the doctor is there in Chinese, with the same figures, and none is left over."""

from __future__ import annotations

import ast
import string
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tidegate import doctor
from tidegate.config.reference_text import ADVICE
from tidegate.doctor import evidence, machine, services, story
from tidegate.doctor.causes import SYMPTOMS
from tidegate.doctor.finding import Verdict
from tidegate.doctor.outcomes import OUTCOMES
from tidegate.doctor.phrases import CHINESE, in_language, joined, said, say
from tidegate.doctor.symptoms import RecordEvidence, Statement, matching, nothing_like
from tidegate.language import Language

EN, ZH = Language.ENGLISH, Language.CHINESE
HERE = Path(doctor.__file__).parent
SPOKEN = [HERE / f"{name}.py" for name in ("machine", "services", "upstreams", "symptoms", "story")]
SPOKEN += sorted((HERE.parent / "cli").glob("doctor*.py"))
FREE_TEXT = ("sentence", "fix", "told", "well", "way", "what", "late", "why", "fixes", "stores", "nowhere", "span")
"""Names under which these modules keep a template until it is said."""


def _constants(node: ast.AST | None) -> Iterator[str]:
    """Give the texts that an expression may be, both sides of an `if`, and those of a table."""
    match node:
        case ast.Constant(value=str(text)) if text:
            yield text
        case ast.IfExp():
            yield from (*_constants(node.body), *_constants(node.orelse))
        case ast.BoolOp():
            yield from (text for value in node.values for text in _constants(value))
        case ast.Tuple() | ast.List():
            yield from (text for each in node.elts for text in _constants(each))
        case ast.Dict():
            yield from (text for each in node.values for text in _constants(each))
        case _:
            return


def _written(path: Path) -> Iterator[str]:
    """Give every template of a module: what is said, what a check is made of, and what a name keeps until then."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in {"say", "spoken"}:
                yield from _constants(node.args[0])
            elif node.func.id in {"ok", "warning", "bad"}:
                yield from (text for argument in node.args[1:3] for text in _constants(argument))
            elif node.func.id == "Statement":
                yield from _constants(node.args[1])
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in FREE_TEXT:
            yield from _constants(node.value)


def _spoken() -> set[str]:
    """Everything that the doctor can say of its own accord."""
    causes = [cause for symptom in SYMPTOMS for cause in symptom.causes]
    shown = [each for each in vars(evidence).values() if isinstance(each, RecordEvidence)]
    texts = {text for path in SPOKEN for text in _written(path)} - {"shortened", "smaller"}
    texts |= {symptom.name for symptom in SYMPTOMS}
    texts |= {text for cause in causes for text in (cause.sentence, cause.fix)} | {
        text for each in shown for text in (each.told, each.wants)
    }
    texts |= {text for ending in OUTCOMES.values() for text in (ending.sentence, ending.fix) if text} | set(ADVICE.values())
    texts |= {extra.gives for extra in services.EXTRAS} | set(Verdict)
    for table in (story._STEPS, story._RESULTS, story._HINTS, story._DEGRADED):
        texts |= set(table.values())
    return texts | set(story._HINTS) | {story._GATEWAY, story._FAILED, "on the way, or not told"}


def _figures(text: str) -> list[str]:
    if text.startswith("{") or "{" in text:
        try:
            return sorted(f"{name}:{shape}" for _, name, shape, _ in string.Formatter().parse(text) if name is not None)
        except ValueError:
            return []
    return []


def test_every_sentence_is_there_in_chinese_and_no_other() -> None:
    """What is added in English wants its Chinese; what is taken away leaves none behind."""
    assert [] == sorted(_spoken() - set(CHINESE))
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in SPOKEN]
    written = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert [] == sorted(set(CHINESE) - _spoken() - written)


@pytest.mark.parametrize(("english", "chinese"), sorted(CHINESE.items()))
def test_both_languages_have_the_same_figures(english: str, chinese: str) -> None:
    """And Chinese is Chinese, but for names."""
    assert _figures(english) == _figures(chinese)
    assert any("\u3400" <= letter <= "\u9fff" or letter in "（：。，" for letter in chinese)


def test_a_phrase_is_english_until_it_is_said_otherwise() -> None:
    """Figures that are phrases are said, too; what comes from elsewhere stays, braces and all."""
    told = say(
        "It runs and is not ready: {lacks}.", lacks=joined("; ", (say("{name} is drained", name="a{0}"), say("no upstream can be used")))
    )
    assert "It runs and is not ready: a{0} is drained; no upstream can be used." == told == said(told, EN)
    assert "它在运行但没有就绪：a{0} 已被排空; 没有可用的上游。" == said(told, ZH)
    assert "{not ours}" == said("{not ours}", ZH) == say("{not ours}") == said(say("{not ours}"), ZH)
    assert "" == joined("; ", ())


def test_a_document_is_said_whole_and_can_be_written() -> None:
    """Checks, statements and what holds them; verdicts stay, since programs go by them."""
    checks = [*machine.node(None, admin="h:1"), *machine.clock({"a": 31.0}, stepped_s=0.0)]
    assert ["它没有运行。", "与 1 个上游地址相比，快了 31 秒。"] == [check.sentence for check in in_language(checks, ZH)]
    assert [Verdict.OK, Verdict.BAD] == [check.verdict for check in in_language(checks, ZH)]
    document = {"symptom": say("Keys are refused."), "records": None, "causes": (Statement("no", say("{name} is drained", name="a")),)}  # type: ignore[arg-type]
    for language in Language:
        assert msgspec.json.encode(in_language(document, language))


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda symptom: symptom.name)
@pytest.mark.parametrize("language", Language)
def test_every_symptom_is_found_by_its_example_and_its_name(symptom: object, language: Language) -> None:
    """In both languages, before all others."""
    assert isinstance(symptom, type(SYMPTOMS[0]))
    example = symptom.words.example[1 if language is ZH else 0]
    assert symptom == matching(example, SYMPTOMS)[0]
    assert symptom == matching(said(symptom.name, language), SYMPTOMS)[0]


@pytest.mark.parametrize("language", Language)
def test_words_that_are_not_known_get_the_whole_list(language: Language) -> None:
    """Each symptom with an example; none is taken for the nearest."""
    assert [] == matching("今天天气不错", SYMPTOMS)
    lines = nothing_like("今天天气不错", SYMPTOMS, language).splitlines()
    assert len(SYMPTOMS) + 1 == len(lines)
    for line, symptom in zip(lines[1:], SYMPTOMS, strict=True):
        assert said(symptom.name, language) in line
        assert symptom.words.example[1 if language is ZH else 0] in line
