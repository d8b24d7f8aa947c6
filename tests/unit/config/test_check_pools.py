"""Checking pools: replicas, picks, breakers."""

from __future__ import annotations

import pytest

from tidegate.config.check import check
from tidegate.config.environment import with_environment
from tidegate.config.load import Loaded, load_text
from tidegate.config.problem import Problem, Severity


def problems(settings: str) -> list[Problem]:
    """Check an upstream; its settings begin on line 6."""
    text = f"upstreams:\n  a:\n    dialect: vllm\n    models: [m]\n    base_url: http://10.0.0.1:8000/v1\n{settings}"
    loaded = load_text(text, {})
    assert isinstance(loaded, Loaded), loaded
    return check(with_environment(loaded.configuration, {}), loaded.source, file_exists=frozenset[str]().__contains__)


REPLICAS = "    replicas: [{base_url: 'http://10.0.0.2:8000/v1', weight: 2}, {base_url: 'http://10.0.0.3:8000/v1', priority: 1}]\n"

FAULTS = [
    ("    replicas:\n      - {base_url: 'http://10.0.0.1:8000/v1/'}\n", 7, Severity.ERROR, "twice", "delete one of them"),
    ("    replicas:\n      - {base_url: 'HTTP://10.0.0.1:8000/v1'}\n", 7, Severity.ERROR, "twice", "delete one of them"),
    ("    replicas:\n      - {base_url: 'ftp://10.0.0.2/v1'}\n", 7, Severity.ERROR, "does not begin with http://", "https://host/v1"),
    ("    replicas:\n      - {base_url: 'http://10.0.0.2/v1/models'}\n", 7, Severity.ERROR, "ends in /models", "leave /models out"),
    ("    breaker: {cooldown_s: 60}\n", 6, Severity.ERROR, "cannot pause for cooldown_s (60 s)", "raise max_cooldown_s"),
    ("    breaker: {max_cooldown_s: 500ms}\n", 6, Severity.ERROR, "cannot pause for cooldown_s (1 s)", "lower cooldown_s"),
    ("    pick: weighted\n", 6, Severity.WARNING, "pick does nothing: a has one address", "add replicas"),
    ("    weight: 2\n", 6, Severity.WARNING, "weight does nothing", "add replicas"),
    ("    priority: 2\n", 6, Severity.WARNING, "priority does nothing", "add replicas"),
    ("    affinity: session\n", 6, Severity.WARNING, "affinity does nothing", "add replicas"),
    ("    drain_s: 5\n", 6, Severity.WARNING, "drain_s does nothing: on_client_leave is cancel", "on_client_leave: drain"),
    ("    breaker: {slow_ratio: 0.6}\n", 6, Severity.WARNING, "the slow trip of a comes too late", "below failure_ratio"),
    ("    breaker: {failure_ratio: 0.01}\n", 6, Severity.WARNING, "the slow trip of a comes too late", "below failure_ratio"),
    ("    breaker: {slow_window_s: 5}\n", 6, Severity.WARNING, "looks at 5 s, the fast one at 10 s", "longer one"),
    ("    breaker: {window_s: 90}\n", 6, Severity.WARNING, "looks at 60 s, the fast one at 90 s", "longer one"),
    ("    breaker: {ttft_s: 61}\n", 6, Severity.WARNING, "so breaker.ttft_s (61 s) never trips", "ttft_s: null"),
    ("    timeouts: {first_token_s: 2}\n", 6, Severity.WARNING, "so breaker.ttft_s (3 s, its default) never trips", "less than 2s"),
]


@pytest.mark.parametrize(("settings", "line", "severity", "message", "hint"), FAULTS)
def test_a_pool_that_cannot_work_as_written_is_told(settings: str, line: int, severity: Severity, message: str, hint: str) -> None:
    """One problem each, on its line, with what to do."""
    (found,) = problems(settings)
    assert (line, severity) == (found.line, found.severity)
    assert message in found.message
    assert hint in (found.hint or "")


@pytest.mark.parametrize(
    "settings",
    [
        "",
        REPLICAS,
        REPLICAS + "    pick: peak_ewma\n    affinity: session\n    weight: 3\n",
        "    on_client_leave: drain\n    drain_s: 5\n",
        "    breaker: {enabled: false, cooldown_s: 90}\n",
        "    breaker: {ttft_s: null}\n    timeouts: {first_token_s: 2}\n",
        "    replicas: [{base_url: 'https://10.0.0.1:8000/v2'}]\n",
    ],
)
def test_a_sound_pool_has_no_problems(settings: str) -> None:
    """Nothing is said where nothing is wrong."""
    assert not problems(settings)
