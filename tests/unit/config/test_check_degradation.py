"""Checking the prepared answers, and what wiring makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.cli.check import check as check_command
from tidegate.config.check import check
from tidegate.config.load import Loaded, load_text
from tidegate.config.problem import Problem, Severity
from tidegate.config.schema import Configuration
from tidegate.domain.features import PromptFeatures
from tidegate.domain.units import ModelName, UpstreamName
from tidegate.domain.upstream import Target
from tidegate.errors import ConfigurationError
from tidegate.policy.degradation.answers import PreparedAnswer
from tidegate.policy.degradation.class_health import Diversion
from tidegate.wiring.parts import class_levels, classes_of, degradation_of

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "rules" / "faq.json"
HELD = "holding: {default: {sentence: Wait.}}"


def loaded(settings: str) -> Loaded:
    """Put settings into the section; they stand on line 1, from column 14 on."""
    found = load_text(f"degradation: {{{settings}}}\n", {})
    assert isinstance(found, Loaded), found
    return found


def problems(settings: str) -> list[Problem]:
    found = loaded(settings)
    return check(found.configuration, found.source, file_exists=lambda path: path == "faq.json")


def configuration(settings: str) -> Configuration:
    return loaded(settings).configuration


@pytest.mark.parametrize(
    "settings", ["", HELD, "rules_file: faq.json", f"{HELD}, rules_file: faq.json, hold_for_s: 5s, hand_over: Ask us."]
)
def test_sensible_settings_pass_without_a_word(settings: str) -> None:
    """Neither errors nor warnings."""
    assert [] == problems(settings)


@pytest.mark.parametrize(
    ("settings", "path", "message", "severity"),
    [
        ("rules_file: gone.json", "degradation.rules_file", '"gone.json" is not a file that can be read', Severity.ERROR),
        ("holding: {' ': {sentence: Wait.}, default: {sentence: x}}", "degradation.holding. ", "no request can name", Severity.ERROR),
        (f"holding: {{{'f' * 65}: {{sentence: x}}, default: {{sentence: x}}}}", None, "no request can name", Severity.ERROR),
        ("holding: {default: {sentence: ' '}}", "degradation.holding.default.sentence", "is empty", Severity.ERROR),
        (
            "holding: {default: {sentence: x, links: [{title: t, url: 'javascript:alert(1)'}]}}",
            "degradation.holding.default.links[0].url",
            "is not an address",
            Severity.ERROR,
        ),
        (
            "holding: {default: {sentence: x, links: [{title: 'a]b', url: 'https://example.com'}]}}",
            "degradation.holding.default.links[0].title",
            "would break the Markdown link",
            Severity.ERROR,
        ),
        ("holding: {faq: {sentence: x}}", "degradation.holding", "there is no answer called default", Severity.WARNING),
        ("hold_for_s: 5s", "degradation.hold_for_s", "no effect without holding", Severity.WARNING),
        (f"{HELD}, hold_for_s: 5s", "degradation.hold_for_s", "no effect without rules_file", Severity.WARNING),
        (f"{HELD}, hand_over: x", "degradation.hand_over", "never said without rules_file", Severity.WARNING),
    ],
)
def test_what_would_not_do_as_meant_is_said(settings: str, path: str | None, message: str, severity: Severity) -> None:
    """With its place in the file and what to do."""
    [problem] = problems(settings)
    assert message in problem.message
    assert problem.hint
    assert (1, severity) == (problem.line, problem.severity)
    assert path is None or path == problem.path


def test_without_settings_nothing_is_prepared() -> None:
    """Clients get their errors, and nothing is built."""
    assert degradation_of(configuration("")) is None
    assert classes_of(configuration("")) is None


def test_holding_answers_are_wired_with_their_links() -> None:
    """Title and address in the order of the file."""
    degradation = degradation_of(configuration("holding: {default: {sentence: Wait., links: [{title: FAQ, url: 'https://e.com/faq'}]}}"))
    assert degradation is not None
    assert PreparedAnswer("Wait.\n\n- [FAQ](https://e.com/faq)", "L2", "holding") == degradation.answer("", "", "r", now=0.0)


def test_rules_are_wired_with_the_sentence_that_hands_over() -> None:
    """Which is said to questions that they do not know."""
    degradation = degradation_of(configuration(f"rules_file: {EXAMPLE}, hand_over: Ask us."))
    assert degradation is not None
    assert PreparedAnswer("Ask us.", "L3", "hand_over") == degradation.answer("?", "", "r", now=0.0)


def test_a_broken_file_of_rules_is_a_problem_of_the_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`tidegate check` refuses it with the reason, as the start and a reload do."""
    (tmp_path / "rules.json").write_text("{}")
    file = tmp_path / "tidegate.yaml"
    file.write_text(f"degradation: {{rules_file: {tmp_path / 'rules.json'}}}\n")
    with pytest.raises(ConfigurationError, match="it has no lists of nodes and edges"):
        degradation_of(configuration(f"rules_file: {tmp_path / 'rules.json'}"))
    assert 2 == check_command(file)
    assert "it has no lists of nodes and edges" in capsys.readouterr().err


@pytest.mark.parametrize("section", ["When no model can answer", "Kinds of prompts that fail"])
def test_the_example_of_the_page_is_accepted(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`tidegate check` takes it without a word, the file of rules that it names included."""
    _, _, rest = (ROOT / "docs" / "resilience.md").read_text().partition(f"\n## {section}\n")
    example = rest.partition("```yaml\n")[2].partition("```")[0]
    assert example
    file = tmp_path / "tidegate.yaml"
    file.write_text(example)
    monkeypatch.chdir(ROOT)
    for name in ("OPENROUTER_API_KEY", "DASHSCOPE_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert 0 == check_command(file)
    assert "" == capsys.readouterr().err


def test_classes_are_wired_by_route() -> None:
    """With their fallback and their figures; what was learned stays over a reload."""
    found = load_text(
        "routes:\n"
        "  - {model: a, targets: [{upstream: local}]}\n"
        "  - {model: b, targets: [{upstream: local}], classes: {fallback: {upstream: small, model: q4}, min_calls: 3}}\n"
        "  - {model: c, targets: [{upstream: local}], classes: {fallback: {upstream: small}}}\n",
        {},
    )
    assert isinstance(found, Loaded), found
    classes = classes_of(found.configuration)
    assert classes is not None
    assert [False, True, True] == [classes.watches(route) for route in "abc"]
    table = PromptFeatures(10, frozenset({"table"}))
    for _ in range(9):
        classes.observe("b", PromptFeatures(10), failed=False, now=0.0)
        classes.observe("b", table, failed=True, now=0.0)
    diversion = Diversion("table", Target(UpstreamName("small"), ModelName("q4")))
    assert diversion == classes.diverted("b", table, now=0.0)
    again = classes_of(found.configuration, before=classes)
    assert again is not None
    assert diversion == again.diverted("b", table, now=0.0)
    assert {"classes.diverted": 1.0} == class_levels(again, now=0.0)
    assert {} == class_levels(None, now=0.0)
