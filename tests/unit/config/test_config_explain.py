"""What people read in the terminal: the effective configuration, and problems with their lines."""

from __future__ import annotations

import pathlib

from tidegate.config.environment import with_environment
from tidegate.config.explain import MOST_PROBLEMS, explain, render_problem, render_problems
from tidegate.config.load import Loaded, load_text
from tidegate.config.prepare import prepare, readable_file
from tidegate.config.problem import Problem, Severity

SECRET = "sk-do-not-show-1234"


def test_a_problem_is_shown_with_its_line_and_a_caret() -> None:
    """The rendering is what an editor can jump to and a person can read."""
    loaded = load_text("server:\n  max_body_byte: ${X}\n", {})
    assert isinstance(loaded, list)
    assert render_problems(loaded, name="tidegate.yaml") == (
        'tidegate.yaml:2:3 error: unknown key "max_body_byte" in server — did you mean "max_body_bytes"?\n'
        "    2 |   max_body_byte: ****\n"
        "      |   ^\n"
        "1 error\n"
    )


def test_the_caret_stands_under_wide_characters_and_tabs() -> None:
    """Chinese characters take two columns of a terminal, a tab is kept as it is."""
    problem = Problem(1, 4, "", "m", None, Severity.WARNING, "限\tx: y", 2)
    assert render_problem(problem, name="f") == "f:1:4 warning: m\n    1 | 限\tx: y\n      |   \t^\n"


def test_a_problem_without_a_line_is_one_line() -> None:
    """What no line of a file is to blame for is shown without one."""
    assert render_problem(Problem(0, 0, "", "m", "h"), name="f") == "f error: m — h\n"
    assert render_problem(Problem(0, 0, "", "m"), name="") == "configuration error: m\n"


def test_many_problems_are_counted_and_the_first_shown() -> None:
    """A file that is wrong throughout does not flood the terminal."""
    text = render_problems([Problem(0, 0, "", "m")] * (MOST_PROBLEMS + 2) + [Problem(0, 0, "", "w", severity=Severity.WARNING)], name="f")
    assert text.count("error: m") == MOST_PROBLEMS
    assert text.endswith("… and 3 more\n52 errors and 1 warning\n")


def test_no_problems_are_no_text() -> None:
    """Nothing wrong, nothing said."""
    assert render_problems([], name="f") == ""


def test_the_effective_configuration_is_told_without_secrets() -> None:
    """Addresses, upstreams, routes in order and limits are all there; keys and header values are not."""
    environ = {"OPENROUTER_API_KEY": SECRET}
    loaded = load_text(
        "server: {host: '::', workers: 2, tls: {certificate: c, key: k}}\nadmin: {port: 0}\nlimits: {tokens_per_minute: 200_000}\n"
        "tiers: {vip: {concurrency: 3}}\njwt: [{issuer: i, audience: a, algorithms: [HS256], secret: '${OPENROUTER_API_KEY}'}]\n"
        "upstreams: {c: {dialect: vllm, base_url: 'https://h/v1', verify_tls: no, models: [m], headers: {x-a: '${OPENROUTER_API_KEY}'}}}\n",
        environ,
    )
    assert isinstance(loaded, Loaded)
    text = explain(with_environment(loaded.configuration, environ))
    for expected in (
        "API    https://[::]:8080, 2 workers\n",
        "admin  http://127.0.0.1, a free port\n",
        "c  vllm at https://h/v1 (no api_key, x-a: ****, certificate NOT checked)\n",
        "openrouter  openrouter at https://openrouter.ai/api/v1 (api_key ****)\n",
        "*/*                    → openrouter, then local as smollm2-135m-instruct\n",
        "by default  200,000 tokens in 60 s\n",
        "tier vip  3 requests at once\n",
        "i for a (HS256)\n",
    ):
        assert expected in text
    assert SECRET not in text
    assert text.index("  m ") < text.index("  */*")


def test_preparing_gives_a_configuration_or_the_reasons_against_it(tmp_path: pathlib.Path) -> None:
    """Warnings stand beside a configuration; an error stands instead of one, whether it is found in loading or in checking."""
    path = tmp_path / "tidegate.yaml"
    expected = [
        ("", True, []),
        ("admin: {host: 0.0.0.0}", True, [Severity.WARNING]),
        (f"server: {{tls: {{certificate: {path}, key: {path}}}}}", True, []),
        ("server: {port: 8081}", False, [Severity.ERROR]),
        ("server: {port: x}", False, [Severity.ERROR]),
    ]
    for text, usable, severities in expected:
        path.write_text(text)
        prepared = prepare(path, {}, file_exists=readable_file)
        assert usable == (prepared.configuration is not None)
        assert severities == [problem.severity for problem in prepared.problems]


def test_preparing_completes_the_configuration() -> None:
    """What comes out has the routes and upstreams that the environment gives."""
    prepared = prepare(None, {"OPENROUTER_API_KEY": "k"}, file_exists=readable_file)
    assert prepared.configuration is not None
    assert "openrouter" in prepared.configuration.upstreams
    assert prepared.configuration.routes


def test_only_a_file_counts_as_a_readable_file(tmp_path: pathlib.Path) -> None:
    """A folder or a missing path cannot be a certificate."""
    (tmp_path / "f").write_text("x")
    assert [readable_file(str(tmp_path / name)) for name in ("f", "", "absent")] == [True, False, False]
