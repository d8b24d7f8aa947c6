"""What `tidegate check` and `explain` say of audit, and what a reload can change of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.config.explain import explain
from tidegate.config.load import Loaded, load_text
from tidegate.config.prepare import prepare
from tidegate.config.reload import reload_obstacles
from tidegate.config.schema import Configuration
from tidegate.domain.audit import AuditPolicy
from tidegate.errors import ConfigurationError
from tidegate.wiring.records import audit_settings

UPSTREAM = (
    "upstreams: {a: {dialect: vllm, base_url: 'http://127.0.0.1:1/v1', models: [m], api_key: key-of-upstream, "
    "headers: {x-auth-token: opens-a-door, x-title: Tidegate, x-key: short}}}\n"
)


def configuration(text: str) -> Configuration:
    loaded = load_text(text, {})
    assert isinstance(loaded, Loaded), loaded
    return loaded.configuration


@pytest.mark.parametrize(
    ("audit", "messages"),
    [
        ("policy: off", []),
        ("policy: redacted, rules: [{tenant: x, route: m, policy: full}]", []),
        ("rules: [{route: n, policy: full}]", ['no route is called "n"']),
        ("rules: [{policy: full}, {tenant: x, policy: off}]", ["this rule holds for every request, so those after it never do"]),
        ("rules: [{tenant: x, policy: off}, {policy: full}]", []),
        ("patterns: [{name: staff, pattern: 'E-\\d{6}'}]", []),
        ("patterns: [{name: 'No name', pattern: x}]", ['"No name" cannot name a pattern']),
        ("patterns: [{name: a, pattern: '['}]", ["this is not a regular expression: unterminated character set at position 0"]),
        (f"patterns: [{{name: a, pattern: {'x' * 201}}}]", ["this pattern has more than 200 characters"]),
        (f"patterns: [{', '.join(['{name: a, pattern: x}'] * 101)}]", ["there are 101 patterns of audit, more than 100"]),
        ("queue_bytes: 1MiB", []),
        ("policy: full, queue_bytes: 1MiB", ["queue_bytes (1,048,576) is less than server.max_body_bytes (33,554,432), so the largest"]),
    ],
)
def test_what_cannot_be_meant_is_told(audit: str, messages: list[str], tmp_path: Path) -> None:
    """Rules that never hold, patterns that are none, and a queue without room."""
    file = tmp_path / "tidegate.yaml"
    file.write_text(f"{UPSTREAM}audit: {{{audit}}}\n", encoding="utf-8")
    found = [problem.message for problem in prepare(file, {}, file_exists=lambda _: True).problems]
    assert len(messages) == len(found)
    assert all(message.startswith(expected) for expected, message in zip(messages, found, strict=True))


@pytest.mark.parametrize(
    ("audit", "line"),
    [
        ("policy: metadata", "bodies   metadata\n"),
        (
            "rules: [{tenant: a, policy: full}, {tenant: b, route: m, policy: redacted}, {policy: metadata}]",
            "bodies   full for tenant a, redacted for tenant b and route m, metadata for everybody, off else\n",
        ),
    ],
)
def test_explain_says_whose_bodies_are_kept(audit: str, line: str) -> None:
    """In the order in which rules are looked at; nothing where none are kept."""
    assert line in explain(configuration(f"audit: {{{audit}}}"))
    assert "bodies" not in explain(configuration(""))


def test_a_reload_changes_policies_and_not_open_files() -> None:
    """Whose bodies are kept, and what is masked, applies to what begins after it."""
    assert [] == reload_obstacles(Configuration(), configuration("audit: {policy: full, max_body_bytes: 1KiB}"))
    (sentence,) = reload_obstacles(Configuration(), configuration("audit: {keep_files: 2}"))
    assert sentence.startswith("audit.keep_files cannot change from 10 to 2 without a restart")


def test_settings_come_from_the_configuration() -> None:
    """The gateway's own credentials are looked for in bodies; values of harmless headers, and short ones, are not."""
    settings = audit_settings(configuration(f"{UPSTREAM}audit: {{policy: full, patterns: [{{name: staff, pattern: 'E-\\d+'}}]}}"))
    assert AuditPolicy.FULL is settings.rules.default
    assert {"key-of-upstream", "opens-a-door"} == set(settings.secrets)
    assert "[staff]" == settings.masker.mask("E-1")


def test_a_pattern_that_could_take_long_is_refused_at_the_start() -> None:
    """With the words of the masker, which knows what it can do in bounded time."""
    with pytest.raises(ConfigurationError, match="groups"):
        audit_settings(configuration("audit: {patterns: [{name: a, pattern: '(x+)+'}]}"))
