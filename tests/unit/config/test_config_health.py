"""What the check says of health checks and of the store that nodes share."""

from __future__ import annotations

import pytest

from tidegate.config.check import check
from tidegate.config.environment import with_environment
from tidegate.config.load import Loaded, load_text
from tidegate.config.problem import Problem, Severity


def problems(text: str) -> list[Problem]:
    loaded = load_text(text, {})
    assert isinstance(loaded, Loaded), loaded
    return check(with_environment(loaded.configuration, {}), loaded.source, file_exists=lambda _: True)


def asked(health: str) -> str:
    return f"upstreams:\n  a: {{dialect: vllm, base_url: 'http://10.0.0.5:8000/v1', models: [m],\n      health: {{{health}}}}}\n"


@pytest.mark.parametrize("path", ["health", "''", "'/he alth'", "'/gesundheit/ä'", "'/a#b'", "'http://other/health'"])
def test_a_health_path_begins_at_the_root(path: str) -> None:
    """What a request line cannot carry is refused on its own line."""
    [problem] = problems(asked(f"path: {path}"))
    assert (problem.line, problem.severity) == (3, Severity.ERROR)
    assert problem.message == "the health path of a is not a path from the server's root"
    assert 'begin it with "/"' in (problem.hint or "")


@pytest.mark.parametrize("path", ["/health", "/", "'/v1/models?limit=1'", "'/%C3%A4'"])
def test_usual_health_paths_pass(path: str) -> None:
    """A query and percent-encoded letters are part of a path here."""
    assert problems(asked(f"path: {path}")) == []


def test_a_path_that_nobody_asks_for_is_told() -> None:
    """With checks turned off the path is probably a mistake."""
    [problem] = problems(asked("path: /health, enabled: false"))
    assert problem.severity is Severity.WARNING
    assert "changes nothing" in problem.message


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://user:canary@store", "redis_url does not begin with redis:// or rediss://"),
        ("store:6379", "redis_url does not begin with redis:// or rediss://"),
        ("redis://", "redis_url names no server"),
        ("redis://user:canary@/0", "redis_url names no server"),
        ("'redis://user:canary@[::1'", "redis_url names no server"),
    ],
)
def test_the_stores_address_names_a_redis(url: str, message: str) -> None:
    """The address is not repeated: it may hold a password."""
    [problem] = problems(f"shared:\n  redis_url: {url}\n")
    assert (problem.line, problem.severity, problem.message) == (2, Severity.ERROR, message)
    assert "canary" not in f"{problem.message}{problem.hint}{problem.excerpt}"


@pytest.mark.parametrize("url", ["redis://10.0.0.7:6379/0", "rediss://user:canary@store", "redis://[::1]:6379"])
def test_usual_stores_pass(url: str) -> None:
    """Plain, with TLS and a password, and by an IPv6 address."""
    assert problems(f"shared:\n  redis_url: '{url}'\n") == []
