"""Loading: every problem of a file in one pass, each on its line, and nothing secret in any of them."""

from __future__ import annotations

import os
import pathlib

import pytest

from tidegate.config.convert import MAX_FINDINGS
from tidegate.config.document import MAX_DEPTH, MAX_FILE_BYTES
from tidegate.config.explain import render_problems
from tidegate.config.load import Loaded, load, load_text
from tidegate.config.problem import Problem
from tidegate.config.schema import Configuration, DialectName
from tidegate.domain.units import Secret


def problems(text: str, environ: dict[str, str] | None = None) -> list[Problem]:
    loaded = load_text(text, environ or {})
    assert isinstance(loaded, list), "this text should have been refused"
    return loaded


def configuration(text: str, environ: dict[str, str] | None = None) -> Configuration:
    loaded = load_text(text, environ or {})
    assert isinstance(loaded, Loaded), loaded
    return loaded.configuration


# text, line, column, part of the message, part of the hint
BROKEN = [
    ("server:\n  max_body_byte: 1\n", 2, 3, 'unknown key "max_body_byte" in server', 'did you mean "max_body_bytes"?'),
    ("servre:\n  port: 1\n", 1, 1, 'unknown key "servre" at the top level', 'did you mean "server"?'),
    ("max_body_bytes: 1\n", 1, 1, 'unknown key "max_body_bytes" at the top level', "it belongs under server"),
    ("admin:\n  slots: 2\n", 2, 3, 'unknown key "slots" in admin', "it belongs under local_engine"),
    ("zzz: 1\n", 1, 1, 'unknown key "zzz" at the top level', "the keys here are: state_directory, server"),
    ("server:\n  port: abc\n", 2, 9, "expected a whole number, got the text 'abc'", None),
    ("server:\n  port: 80.5\n", 2, 9, "expected a whole number, got the number 80.5", None),
    ("server:\n  port: true\n", 2, 9, "expected a whole number, got true", None),
    ("server:\n  port: [1]\n", 2, 9, "expected a whole number, got a list", None),
    ("server:\n  port: {a: 1}\n", 2, 9, "expected a whole number, got a section with keys", None),
    ("server:\n  port:\n", 2, 8, "expected a whole number, got nothing", "delete the key"),
    ("server:\n  host: ~\n", 2, 9, "expected text, got nothing", "delete the key"),
    ("server:\n  port: 65536\n", 2, 9, "server.port must be between 0 and 65,535; got the number 65536", None),
    ("server:\n  workers: 0\n", 2, 12, "server.workers must be between 1 and 256; got the number 0", None),
    ("server:\n  max_connections: 99999999999999999999\n", 2, 20, "between 1 and 9,007,199,254,740,991", None),
    (f"server:\n  port: {'9' * 50_000}\n", 2, 9, "expected a whole number, got the number 9999", None),
    ("server:\n  max_header_bytes: 10\n", 2, 21, "must be at least 1,024 bytes; got the number 10", None),
    ("server:\n  idle_timeout_s: 0s\n", 2, 19, "must be more than 0 and at most 604,800 seconds; got the text '0s'", None),
    ("server:\n  idle_timeout_s: 8d\n", 2, 19, "must be more than 0 and at most 604,800 seconds; got the text '8d'", None),
    ("server:\n  idle_timeout_s: .inf\n", 2, 19, 'expected a duration like "30s"', None),
    ("server:\n  idle_timeout_s: 10 minutes\n", 2, 19, "got the text '10 minutes'", None),
    ("server:\n  max_body_bytes: 32M\n", 2, 19, 'expected a size like "32MiB"', None),
    ("server:\n  max_body_bytes: 0.3KiB\n", 2, 19, 'expected a size like "32MiB"', None),
    ("server:\n  half_close_keeps_going: maybe\n", 2, 27, "expected true or false, got the text 'maybe'", None),
    ("server: 5\n", 1, 9, "expected a section with keys, got a single value", None),
    ("routes: abc\n", 1, 9, "expected a list, got a single value", "[one, two]"),
    ("upstreams: [a]\n", 1, 12, "expected a section with names as keys, got a list", None),
    ("upstreams:\n  a:\n    dialect: vlm\n    base_url: x\n", 3, 14, "expected one of openrouter, dashscope, vllm", '"vllm"'),
    ("upstreams:\n  a: {base_url: x}\n", 2, 3, 'missing key "dialect"', 'add "dialect: …" with one of openrouter, dashscope, vllm'),
    ("prices: {zzz: 1}\n", 1, 10, 'unknown key "zzz" in prices', "the keys here are: version, currency, models, hybrid, file"),
    ("limits:\n  rules: [{zzz: 1, name: n, ceiling: 1}]\n", 2, 12, 'unknown key "zzz" in limits.rules[0]', "are: name, of, scope, ceiling"),
    ("budgets: [{zzz: 1, name: n, amount: 1}]\n", 1, 12, 'unknown key "zzz" in budgets[0]', "are: name, scope, amount, per"),
    ("# top\n\nupstreams:\n  a:\n    dialect: vllm\n", 4, 3, 'missing key "base_url" in upstreams.a', 'add "base_url: …"'),
    ("routes:\n  - model: m\n    targets: []\n", 3, 14, "routes[0].targets is empty", "at least 1"),
    ("routes:\n  - targets: [{upstream: a}]\n", 2, 5, 'missing key "model" in routes[0]', None),
    ("server: {port: 1}\nadmin: {port: 2}\nserver: {port: 3}\n", 3, 1, 'the key "server" appears twice', "first on line 1"),
    ("upstreams:\n  8: {}\n", 2, 3, "the key 8 in upstreams is not text", "put quotes around it"),
    ("? [a]\n: 1\n", 1, 3, "a key at the top level is not text", None),
    ("base: &b {port: 1}\n", 1, 1, 'unknown key "base"', None),
    ("server:\n  <<: {port: 1}\n", 2, 3, "the key << in server is not text", "merging is not supported"),
    ("server:\n  host: ${HOST}\n", 2, 9, "the environment variable HOST is not set", "${HOST:-default}"),
    ("server:\n  host: ${1X}\n", 2, 9, '"${" without a variable name', '"$${"'),
    ("a: 1\n---\nb: 2\n", 2, 1, "a second document", "remove"),
    ("a: [1, 2\n", 2, 1, "not valid YAML", "bracket"),
    ("server:\n\tport: 1\n", 2, 1, "not valid YAML", "spaces"),
    ("server:\n  port: 1\n host: a\n", 3, 2, "not valid YAML", "column"),
    ("server:\n  port: 8080\n   workers: 2\n", 3, 11, "mapping values are not allowed", "deeper than line 2, whose value ends there"),
    ("a:\n  b: 1\n\n    d: 2\n", 4, 6, "mapping values are not allowed", "deeper than line 2"),
    ("a:\n  b: 1\n  # c\n    d: 2\n", 4, 5, "not valid YAML", "start in the same column"),
    ("a:\n  b: 1 # c: d\n  e: f: g\n", 3, 7, "mapping values are not allowed", "quotes"),
    ("server: port: 1\n", 1, 13, "mapping values are not allowed", "quotes"),
    ("server: {host: ${HOST}}\n", 1, 17, "not valid YAML", 'put quotes around a value like "${NAME}"'),
    ("routes:\n  - model: *\n", 2, 13, "not valid YAML", 'put quotes around a pattern that begins with "*"'),
    ("routes:\n  - {model: *qwen*, targets: []}\n", 2, 18, "not valid YAML", 'put quotes around a pattern that begins with "*"'),
    ('a: "x\nb: 1\n', 1, 4, "not valid YAML", "close the quotes that begin here"),
    ("a: 1\nfoo\nb: 2\n", 2, 1, "could not find expected ':'", 'a key needs ": " after it'),
    ("a: {b: 1\nc: 2\n", 2, 2, "not valid YAML", "the bracket that opens on line 1 is not closed"),
    ("server: &s\n  tls: *s\n", 2, 8, "an alias of something that is not complete", "quotes around a pattern"),
    ("a: *nothing\n", 1, 4, "an alias of something that is not complete", "quotes around a pattern"),
    ("a: !!python/object/apply:os.getcwd []\n", 1, 4, "a YAML tag", "remove"),
    ("a: 1\nb\x07: 2\n", 2, 2, "a control character", "delete it"),
    ("a:\n  " + "[" * MAX_DEPTH + "\n", 2, 2 + MAX_DEPTH, "nested more than 50 levels", None),
    ("- a\n- b\n", 1, 1, "the file is not a mapping", "key: value"),
    ("just text\n", 1, 1, "the file is not a mapping", None),
]


@pytest.mark.parametrize(("text", "line", "column", "message", "hint"), BROKEN)
def test_a_broken_file_is_refused_at_the_right_place(text: str, line: int, column: int, message: str, hint: str | None) -> None:
    """Each kind of mistake is told with its line, its column and what to do about it."""
    found = problems(text)
    assert [(line, column)] == [(problem.line, problem.column) for problem in found]
    assert message in found[0].message
    assert (hint is None and found[0].hint is None) or hint is None or hint in (found[0].hint or "")


def test_all_problems_are_found_in_one_pass() -> None:
    """A file with five mistakes shows five problems, in the order of its lines."""
    text = "server:\n  port: x\n  prt: 1\nadmin:\n  port: ${NOT_SET}\nupstreams:\n  a: {dialect: vllm}\nrouts: []\n"
    assert [problem.path for problem in problems(text)] == ["server.port", "server.prt", "admin.port", "upstreams.a.base_url", "routs"]


def test_every_variable_of_one_value_that_is_missing_is_named() -> None:
    """Two unset variables in one value are two problems."""
    found = problems("server:\n  host: ${ONE}-${TWO}\n")
    assert [problem.message for problem in found] == ["the environment variable ONE is not set", "the environment variable TWO is not set"]


@pytest.mark.parametrize(
    ("spelling", "seconds"),
    [
        ("30", 30.0),
        ("30s", 30.0),
        ("500ms", 0.5),
        ("10m", 600.0),
        ("1h", 3600.0),
        ("1h30m", 5400.0),
        ("2d", 172800.0),
        ("1.5s", 1.5),
        ("'5s'", 5.0),
    ],
)
def test_durations_are_written_as_people_do(spelling: str, seconds: float) -> None:
    """A setting in seconds takes units."""
    assert seconds == configuration(f"server: {{idle_timeout_s: {spelling}}}").server.idle_timeout_s


@pytest.mark.parametrize(
    ("spelling", "size"),
    [("1_000_000", 1_000_000), ("64KB", 64_000), ("32MiB", 33_554_432), ("1 GiB", 1_073_741_824), ("1.5kib", 1536), ("9000B", 9000)],
)
def test_sizes_are_written_as_people_do(spelling: str, size: int) -> None:
    """A setting in bytes takes units."""
    assert size == configuration(f"server: {{max_body_bytes: {spelling}}}").server.max_body_bytes


def test_the_schema_decides_what_a_scalar_means() -> None:
    """Words that YAML takes for booleans, numbers or dates are text where text is expected, and quoted numbers are numbers."""
    loaded = configuration("upstreams: {a: {dialect: vllm, base_url: x, models: [no, 1.0, 2020-01-01, on]}}\nserver: {port: '81'}")
    assert loaded.upstreams["a"].models == ("no", "1.0", "2020-01-01", "on")
    assert loaded.server.port == 81


def test_an_empty_section_takes_its_defaults() -> None:
    """A section whose keys are all commented out is as good as absent."""
    assert Configuration() == configuration("server:\nupstreams:\nroutes:\njwt:\nlimits: {tokens_per_minute: }\n")


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "{}", "null"])
def test_an_empty_file_is_a_working_configuration(text: str) -> None:
    """Nothing written means every default."""
    assert Configuration() == configuration(text)


def test_values_come_from_the_environment() -> None:
    """Variables are put into any value, whole or part, with a default and an escape; what is put in is not read again."""
    environ = {"KEY": "a${b}", "PORT": "81", "EMPTY": ""}
    loaded = configuration(
        "server: {port: '${PORT}', host: '$${x}-${KEY}-${EMPTY:-d}-${UNSET:-}e'}\n"
        "upstreams: {a: {dialect: '${DIALECT:-vllm}', base_url: x, api_key: '${KEY}', tokenizer: '${UNSET:-}'}}",
        environ,
    )
    assert loaded.server.port == 81
    assert loaded.server.host == "${x}-a${b}-d-e"
    assert loaded.upstreams["a"].dialect is DialectName.VLLM
    assert Secret("a${b}") == loaded.upstreams["a"].api_key
    assert loaded.upstreams["a"].tokenizer is None


def test_aliases_repeat_what_they_name() -> None:
    """An anchor within the schema is usable, so that clocks need not be written twice."""
    first = "a: &a {dialect: vllm, base_url: x, timeouts: &t {total_s: 5}}"
    text = f"upstreams:\n  {first}\n  b: {{dialect: vllm, base_url: y, timeouts: *t}}\n  c: *a\n"
    loaded = configuration(text)
    assert [upstream.timeouts.total_s for upstream in loaded.upstreams.values()] == [5.0, 5.0, 5.0]


def test_an_alias_bomb_is_refused() -> None:
    """Aliases that multiply are counted as if written out."""
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 9))
    (found,) = problems(f"l0: &l0 [x]\n{levels}\n")
    assert "more than 50000 values" in found.message
    assert found.line <= 6


SECRET = "sk-do-not-show-1234"


@pytest.mark.parametrize(
    "text",
    [
        f"upstreams:\n  a: {{dialect: vlm, api_key: {SECRET}, verify_tls: 3}}",
        f"upstreams:\n  a: {{api_key: {SECRET}, api_key: {SECRET}2}}",
        f"upstreams:\n  a:\n    api_ky: {SECRET}",
        f"upstreams:\n  a:\n    api_key: [{SECRET}]",
        f"upstreams:\n  a:\n    headers: {SECRET}",
        f"upstreams:\n  a:\n    headers: {{x: {{y: {SECRET}}}}}",
        f"upstreams:\n  a: {{headers: {{1: {SECRET}}}}}",
        f"upstreams:\n  a: {{api_key: '{SECRET}-${{NOT_SET}}'}}",
        f'upstreams:\n  a:\n    api_key: "{SECRET}',
        f"api_key: {SECRET}: x",
        f"jwt: [{{secret: |\n  {SECRET}\n  , secret: 1}}]",
        f"upstreams:\n  a: &x\n    api_key: {SECRET}\n    headers: *x",
        "server: {port: '${TOKEN}', idle_timeout_s: '${TOKEN}', half_close_keeps_going: '${TOKEN}'}\nupstreams: {a: {dialect: '${TOKEN}'}}",
    ],
)
def test_a_secret_is_in_no_problem(text: str) -> None:
    """Whatever is wrong around a secret, and wherever it was mistakenly put, neither messages nor excerpts show it."""
    found = problems(text, {"TOKEN": SECRET})
    assert SECRET not in repr(found)
    assert "sk-do-not" not in render_problems(found, name="tidegate.yaml")


def test_a_masked_excerpt_keeps_the_caret_on_its_mark() -> None:
    """A caret behind a masked secret points at the fault, not where it was before masking."""
    (found, *_) = problems(f"upstreams:\n  a: {{api_key: {SECRET}, base_url: x, dialect: vllm, verify_tls: maybe}}\n")
    assert found.excerpt == "  a: {api_key: ****, base_url: x, dialect: vllm, verify_tls: maybe}"
    assert found.excerpt[found.caret :].startswith("maybe")


def test_lines_are_counted_as_the_parser_counts_them() -> None:
    """Line ends of other systems, a byte order mark and Chinese text do not move a problem."""
    (found,) = problems("# 限额\r\nserver:\r\n  port: 限额\r\n")
    assert (found.line, found.column, found.excerpt) == (3, 9, "  port: 限额")


def test_a_file_is_read_with_its_byte_order_mark(tmp_path: pathlib.Path) -> None:
    """Editors that put a mark before the text do no harm."""
    path = tmp_path / "tidegate.yaml"
    path.write_bytes(b"\xef\xbb\xbfserver: {port: 81}\n")
    loaded = load(path, {})
    assert isinstance(loaded, Loaded)
    assert (81, str(path)) == (loaded.configuration.server.port, loaded.source.name)


def test_no_file_is_an_empty_one() -> None:
    """Without a path every default holds."""
    loaded = load(None, {})
    assert isinstance(loaded, Loaded)
    assert Configuration() == loaded.configuration


def test_a_file_that_cannot_be_read_is_a_problem_and_not_an_exception(tmp_path: pathlib.Path) -> None:
    """A missing file, a folder, a pipe, a huge file and bytes that are not text are each named."""
    (tmp_path / "huge").write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    (tmp_path / "latin").write_bytes(b"a: 1\nb: caf\xe9\n")
    os.mkfifo(tmp_path / "pipe")
    expected = {
        "absent": "does not exist",
        "": "is not a regular file",
        "pipe": "not a regular file",
        "huge": "larger than",
        "latin": "not UTF-8",
    }
    for name, message in expected.items():
        loaded = load(tmp_path / name, {})
        assert isinstance(loaded, list)
        assert message in loaded[0].message
        assert loaded[0].line == (2 if name == "latin" else 0)


def test_a_secret_over_several_lines_is_masked_on_each() -> None:
    """A problem pointing into or behind a long secret shows none of its lines."""
    (found,) = problems(f'jwt: [{{issuer: i, audience: a, secret: "{SECRET}\n  and-more", leeway_s: x}}]\n')
    assert (found.line, found.excerpt) == (2, "****, leeway_s: x}]")
    assert (found.excerpt or "")[found.caret :] == "x}]"


def test_a_wrong_file_is_not_told_mistake_by_mistake_for_ever() -> None:
    """The number of problems kept has a bound."""
    assert len(problems("".join(f"k{number}: 1\n" for number in range(MAX_FINDINGS + 5)))) == MAX_FINDINGS
