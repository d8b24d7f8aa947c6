"""Checking rules, promises, budgets and the targets in them: each problem on its line, and nothing said about what is right."""

from __future__ import annotations

import pytest

from tidegate.config.check import check
from tidegate.config.environment import with_environment
from tidegate.config.explain import explain
from tidegate.config.load import Loaded, load_text
from tidegate.config.problem import Problem, Severity

BASE = """\
upstreams:
  cluster: {dialect: vllm, base_url: "http://10.0.0.5:8000/v1"}
  spare: {dialect: vllm, base_url: "http://10.0.0.6:8000/v1"}
"""
ROUTES = "routes: [{model: 'qwen*', targets: [{upstream: cluster}, {upstream: spare}]}]\n"
SLA = "routes: [{model: m, order: sla, targets: [{upstream: cluster}, {upstream: spare}]}]\n"
PROMISED = "tiers: {vip: {promised_ttft_s: 200ms, concurrency: 9}}\n"


def load(text: str) -> Loaded:
    loaded = load_text(BASE + text, {})
    assert isinstance(loaded, Loaded), loaded
    return loaded


def problems(text: str) -> list[Problem]:
    loaded = load(text)
    return check(with_environment(loaded.configuration, {}), loaded.source, file_exists=bool)


def rules(*lines: str) -> str:
    """Put rules after routes; they begin on line 6."""
    return ROUTES + "rules:\n" + "".join(f"  - {line}\n" for line in lines)


def rule(when: str) -> str:
    return rules(f"{{name: r, when: {{{when}}}, use: [{{upstream: spare}}]}}")


def route(settings: str) -> str:
    """Put settings into a route on line 4."""
    return f"routes: [{{model: m, targets: [{{upstream: cluster}}, {{upstream: spare}}], {settings}}}]\n"


# text, line, severity, part of the message, part of the hint
PROBLEMS = [
    (rule("min_prompt_tokens: 9, max_prompt_tokens: 8"), 6, "error", "no prompt has at least 9 and at most 8 tokens", "exchange"),
    (rule("has: [code, json], lacks: [xml, json]"), 6, "error", "no request has json and lacks it", "delete it"),
    (rule("has: [soap], lacks: [xml]"), 6, "error", "SOAP is XML", "xml in lacks"),
    (rule("language: latim"), 6, "error", 'there is no language "latim"', 'did you mean "latin"?'),
    (rule("language: klingon"), 6, "error", 'there is no language "klingon"', "use one of: zh, ja, ko, latin"),
    (rule("language_share: 0.5"), 6, "warning", "language_share has no effect without language", None),
    (
        rule("tiers: [default, vpi]") + PROMISED.replace("promised_ttft_s: 200ms, ", ""),
        6,
        "warning",
        'no tier "vpi"',
        'did you mean "vip"?',
    ),
    (rule("tiers: [gold]"), 6, "warning", 'there is no tier "gold"', "add it under tiers"),
    (rule("features: [' ']"), 6, "error", 'no request can name the feature " "', None),
    (rule("features: ['a ']"), 6, "error", 'no request can name the feature "a "', None),
    (rules("{name: 'a ', when: {}, use: [{upstream: spare}]}"), 6, "error", "the name of this rule has spaces", None),
    (rules("{name: sla, when: {}, use: [{upstream: spare}]}"), 6, "error", '"sla" cannot name a rule', "another name"),
    (
        rules("{name: a, when: {stream: true}, use: [{upstream: spare}]}", "{name: a, when: {}, use: [{upstream: spare}]}"),
        7,
        "error",
        'two rules are called "a"',
        None,
    ),
    (rules("{name: a, model: '', when: {}, use: [{upstream: spare}]}"), 6, "error", "the model of this rule is empty", None),
    (
        rules("{name: a, model: gpt-4o, when: {}, use: [{upstream: spare}]}"),
        6,
        "warning",
        'no route takes requests for "gpt-4o"',
        "add a route",
    ),
    (
        rules("{name: a, when: {}, use: [{upstream: spare}]}", "{name: b, when: {stream: true}, use: [{upstream: spare}]}"),
        7,
        "warning",
        '"b" never gets a turn: "a" on line 6 has no conditions',
        "move this rule above it",
    ),
    (
        rules(
            "{name: a, model: 'qwen*', when: {stream: true}, use: [{upstream: spare}]}",
            "{name: b, model: qwen3, when: {stream: true}, use: [{upstream: cluster}]}",
        ),
        7,
        "warning",
        '"b" never gets a turn: "a" on line 6 has the same conditions',
        None,
    ),
    # targets
    (rules("{name: a, when: {}, use: [{upstream: spar}]}"), 6, "error", 'there is no upstream "spar"', 'did you mean "spare"?'),
    (rules("{name: a, when: {}, use: [{upstream: zzz}]}"), 6, "error", 'there is no upstream "zzz"', "there are: cluster, spare, local"),
    (
        rules("{name: a, when: {}, use: [{upstream: local}]}") + "local_engine: {enabled: false}\n",
        6,
        "error",
        "the local engine is disabled",
        "local_engine.enabled",
    ),
    (rules("{name: a, when: {}, use: [{upstream: spare, model: 'q*'}]}"), 6, "error", '"q*" is not the name of one model', None),
    (rules("{name: a, when: {}, use: [{upstream: spare}, {upstream: spare}]}"), 6, "warning", "spare stands twice in this rule", None),
    (rules("{name: a, when: {}, use: [{upstream: spare, relative_cost: 2}]}"), 6, "warning", "relative_cost has no effect here", "delete"),
    (route("budget: {smaller: {upstream: spar}}"), 4, "error", 'there is no upstream "spar"', "spare"),
    (route("budget: {smaller_precise: {upstream: spar}}"), 4, "error", 'there is no upstream "spar"', "spare"),
    (route("ladder: {smaller: {upstream: spar}}"), 4, "error", 'there is no upstream "spar"', "spare"),
    (route("ladder: {smaller_precise: {upstream: spar}}"), 4, "error", 'there is no upstream "spar"', "spare"),
    (route("classes: {fallback: {upstream: spar}}"), 4, "error", 'there is no upstream "spar"', "spare"),
    (
        "routes: [{model: m, targets: [{upstream: cluster, typical_ttft_s: 1s}, {upstream: spare}]}]\n",
        4,
        "warning",
        "typical_ttft_s has no effect here: this route is not ordered by sla",
        None,
    ),
    # promises and budgets
    (SLA, 4, "warning", "nobody is promised a time to first token", "promised_ttft_s"),
    (SLA.replace("{upstream: cluster}, ", "") + PROMISED, 4, "warning", "no effect on a single target", None),
    (ROUTES + PROMISED, 5, "warning", "the promise to the tier vip has no effect", "order: sla"),
    (
        route("budget: {tokens: 100}"),
        4,
        "error",
        "no request fits: the shortest answer (256 tokens) is over the budget (100)",
        "raise tokens",
    ),
    (route("budget: {shortest_answer_tokens: 6000}"), 4, "error", "no request fits", "lower shortest_answer_tokens"),
    (
        route("budget: {smaller: {upstream: cluster}}"),
        4,
        "warning",
        "smaller has no effect: it is the route's first target",
        "smaller model",
    ),
]


@pytest.mark.parametrize(("text", "line", "severity", "message", "hint"), PROBLEMS)
def test_each_problem_is_found_on_its_line(text: str, line: int, severity: str, message: str, hint: str | None) -> None:
    """One thing is wrong, and one problem says so; what may be meant for a while is only a warning."""
    [problem] = [each for each in problems(text) if "is never used" not in each.message]
    assert (line, severity) == (problem.line, problem.severity)
    assert message in problem.message
    assert (hint or "") in (problem.hint or "")


def test_a_default_line_is_not_blamed() -> None:
    """The setting that the file writes is at fault, not the one that it leaves out."""
    [problem] = problems(route("budget: {shortest_answer_tokens: 6000}"))
    assert problem.path == "routes[0].budget.shortest_answer_tokens"
    assert problem.severity is Severity.ERROR


def test_where_there_is_no_upstream_at_all_the_hint_says_so() -> None:
    """There is nothing to choose from."""
    text = "local_engine: {enabled: false}\nrules: [{name: a, when: {}, use: [{upstream: x}]}]\n"
    loaded = load_text(text, {})
    assert isinstance(loaded, Loaded)
    found = check(loaded.configuration, loaded.source, file_exists=bool)
    assert [("add it under upstreams")] == [each.hint for each in found if "no upstream" in each.message and "x" in each.message]


def test_a_shadow_without_a_line_is_above() -> None:
    """Rules that come through an anchor have no line of their own to name."""
    text = "rules: [{name: a, when: {}, use: [{upstream: spare}]}, {name: b, when: {}, use: [{upstream: spare}]}]\n"
    loaded = load(ROUTES + text)
    del loaded.source.values["rules", 0]
    found = check(loaded.configuration, loaded.source, file_exists=bool)
    assert any('"a" above has no conditions' in problem.message for problem in found)


def test_a_full_set_of_settings_is_passed_without_a_word() -> None:
    """Everything at once, rightly used."""
    text = (
        "routes:\n  - model: m\n    order: sla\n    targets:\n"
        "      - {upstream: cluster, typical_ttft_s: 100ms, relative_cost: 2}\n      - {upstream: spare}\n"
        "    budget: {smaller: {upstream: spare, model: q4}, smaller_precise: {upstream: spare, model: q8}}\n"
        "    ladder: {smaller: {upstream: spare, model: q4}}\n    classes: {fallback: {upstream: spare}}\n" + PROMISED + "rules:\n"
        "  - {name: a, model: m, when: {has: [soap], lacks: [images], min_prompt_tokens: 5}, use: [{upstream: spare}]}\n"
        "  - {name: b, when: {language: zh, language_share: 0.5, tiers: [vip, default], features: [chat]}, use: [{upstream: spare}]}\n"
        "  - {name: c, when: {stream: false}, use: [{upstream: spare}]}\n  - {name: d, when: {}, use: [{upstream: spare}]}\n"
    )
    assert problems(text) == []


def test_rules_and_what_a_route_does_are_explained_in_a_line_each() -> None:
    """`tidegate check` shows when a rule holds and where it leads."""
    text = (
        "routes:\n  - model: m\n    order: sla\n    targets: [{upstream: cluster}, {upstream: spare}]\n    budget: {tokens: 9000}\n"
        "    ladder: {}\n    classes: {fallback: {upstream: spare, model: q4}}\n"
        "rules:\n"
        "  - name: everything\n    model: qwen*\n    when: {has: [code], lacks: [xml], min_prompt_tokens: 2000, max_prompt_tokens: 9000,"
        " language: zh, tiers: [vip, gold], features: [chat], stream: true}\n    use: [{upstream: spare, model: x}, {upstream: cluster}]\n"
        "  - {name: calm, when: {stream: false}, use: [{upstream: spare}]}\n  - {name: rest, when: {}, use: [{upstream: spare}]}\n"
    )
    explained = explain(load(text).configuration)
    everything = (
        "  everything for qwen*  tier vip or gold and feature chat and a stream and prompt ≥ 2,000 tokens and prompt ≤ 9,000 tokens and "
        "has code and lacks xml and zh ≥ 30% of the letters → spare as x, then cluster\n"
    )
    for expected in (
        everything,
        "  calm  no stream → spare\n",
        "  rest  always → spare\n",
        "  m  → cluster, then spare (ordered by promise, budget 9,000 tokens, ladder, failing kinds to spare as q4)\n",
    ):
        assert expected in explained
