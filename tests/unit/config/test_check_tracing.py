"""Checking where spans are sent, saying it, and the configuration that the page about tracing shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.config.check import check
from tidegate.config.environment import with_environment
from tidegate.config.explain import explain
from tidegate.config.load import Loaded, load_text
from tidegate.config.problem import Problem, Severity
from tidegate.config.reload import reload_obstacles

UPSTREAM = "upstreams: {there: {dialect: vllm, base_url: 'http://127.0.0.1:8000/v1', models: [m]}}\n"
PAGE = Path(__file__).parents[3] / "docs" / "tracing.md"


def loaded(text: str) -> Loaded:
    found = load_text(UPSTREAM + text, {})
    assert isinstance(found, Loaded), found
    return found


def problems(text: str) -> list[Problem]:
    found = loaded(text)
    return check(with_environment(found.configuration, {}), found.source, file_exists=lambda _: True)


def collector(endpoint: str, more: str = "") -> str:
    return f"tracing: {{otlp: {{endpoint: '{endpoint}'{more}}}}}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        collector("http://127.0.0.1:4318/v1/traces", ", headers: {authorization: Bearer t}"),
        collector("http://collector:4318/v1/traces"),
        collector("https://otel.example/api/otlp/v1/traces", ", headers: {x-token: t}"),
        "tracing: {keep_ratio: 0, slow_s: 5s, service_name: gate, resource: {a.b: c}}",
    ],
)
def test_sensible_settings_pass_without_a_word(text: str) -> None:
    """Neither errors nor warnings."""
    assert [] == problems(text)


@pytest.mark.parametrize(
    ("text", "expected", "severity"),
    [
        (collector("127.0.0.1:4318"), "tracing.otlp.endpoint does not begin with http:// or https://", Severity.ERROR),
        (collector("http://user:canary@collector/v1/traces"), "tracing.otlp.endpoint holds a user name or password", Severity.ERROR),
        (collector("http://collector:4318"), "tracing.otlp.endpoint has no path", Severity.ERROR),
        (collector("http://collector:4318/"), "tracing.otlp.endpoint has no path", Severity.ERROR),
        (
            collector("http://collector:4318/v1/traces", ", headers: {x: canary}"),
            "the headers of tracing.otlp go over the network in clear",
            Severity.WARNING,
        ),
        (collector("https://c/t", ", headers: {'a b': canary}"), "the header 'a b' or its value cannot be sent", Severity.ERROR),
        (collector("https://c/t", ', headers: {x: "canary\\nline"}'), "the header 'x' or its value cannot be sent", Severity.ERROR),
        (
            f"tracing: {{resource: {{{', '.join(f'a{number}: b' for number in range(65))}}}}}",
            "tracing.resource has more than 64 attributes",
            Severity.ERROR,
        ),
    ],
)
def test_what_cannot_be_sent_anywhere_is_told(text: str, expected: str, severity: Severity) -> None:
    """At its place, and without a word of what is secret."""
    (problem,) = problems(text)
    assert (expected, severity) == (problem.message, problem.severity)
    assert "canary" not in f"{problem.message} {problem.hint}"


def test_explain_says_what_is_kept_and_where_it_goes() -> None:
    """And nothing while no spans are sent; headers are not shown."""
    text = explain(loaded(collector("https://c/v1/traces", ", headers: {x: canary}")).configuration)
    assert "spans    to https://c/v1/traces as tidegate: 0.1 of all" in text
    assert "canary" not in text
    assert "spans " not in explain(loaded("").configuration)


def test_a_change_needs_a_restart() -> None:
    """The recorder process has its settings from its start."""
    (refusal,) = reload_obstacles(loaded("").configuration, loaded(collector("https://c/v1/traces")).configuration)
    assert refusal.startswith("tracing.otlp cannot change")


def test_the_configuration_on_the_page_is_sound() -> None:
    """Whoever copies it gets what the page says."""
    text = PAGE.read_text().split("```yaml\n")[1].split("```")[0]
    found = load_text(UPSTREAM + text, {"OTEL_TOKEN": "t"})
    assert isinstance(found, Loaded), found
    assert [] == check(with_environment(found.configuration, {}), found.source, file_exists=lambda _: True)
    assert found.configuration.tracing.otlp is not None
