"""Checking: what the settings mean together, each problem on its line."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.config.check import check
from tidegate.config.check_routes import covers
from tidegate.config.environment import with_environment
from tidegate.config.load import Loaded, load_text
from tidegate.config.problem import Problem, Severity

SECRET = "sk-do-not-show-1234"
GOOD = "upstreams:\n  a: {dialect: vllm, base_url: 'http://10.0.0.5:8000/v1', models: [m]}\n"


def problems(text: str, environ: dict[str, str] | None = None, files: frozenset[str] = frozenset()) -> list[Problem]:
    loaded = load_text(text, environ or {})
    assert isinstance(loaded, Loaded), loaded
    return check(with_environment(loaded.configuration, environ or {}), loaded.source, file_exists=files.__contains__)


def upstream(settings_text: str) -> str:
    """Put settings into an upstream; they begin on line 4."""
    return f"upstreams:\n  a:\n    models: [m]\n    {settings_text}\n"


def routes(*lines: str) -> str:
    """Put routes after a good upstream; they begin on line 4."""
    return GOOD + "routes:\n" + "".join(f"  - {line}\n" for line in lines)


def issuer(settings_text: str) -> str:
    """Put settings into an issuer; they begin on line 2."""
    return f"jwt:\n  - {{issuer: i, audience: a, {settings_text}}}\n"


# text, line, what the column points at, part of the message, part of the hint
ERRORS = [
    ("server: {port: 9000}\nadmin: {port: 9000}\n", 2, "9000", "server and admin both listen on port 9000", "another port"),
    ("server: {port: 8081}\n", 1, "8081", "server and admin both listen on port 8081", None),
    ("server: {port: 8081, host: 0.0.0.0}\n", 1, "8081", "both listen on port 8081", None),
    ("server: {host: ''}\n", 1, "''", "server.host is not an address", None),
    ("server:\n  max_body_bytes: 2GiB\n", 2, "2GiB", "the largest bodies would always be refused", "raise max_buffered_bytes"),
    ("server:\n  tls: {certificate: c.pem, key: there}\n", 2, "c.pem", 'the PEM certificate "c.pem" is not a file', "working directory"),
    ("server:\n  tls: {certificate: there, key: k.pem}\n", 2, "k.pem", 'the PEM private key "k.pem" is not a file', None),
    ("local_engine:\n  model_path: x.gguf\n", 2, "x.gguf", 'the GGUF model "x.gguf" is not a file', None),
    ("local_engine:\n  model_name: 'a*'\n", 2, "'a*'", "model_name is not a plain name", None),
    ("local_engine:\n  enabled: false\n", 2, "false", "nothing can answer: there is no upstream", "OPENROUTER_API_KEY"),
    ("state_directory: ''\n", 1, "''", "state_directory is empty", None),
    ("tiers:\n  'v ip': {concurrency: 1}\n", 2, "'v ip': {concurrency: 1", '"v ip" cannot name a tier', None),
    # upstreams
    (
        "upstreams:\n  local: {dialect: vllm, base_url: 'http://h/v1', models: [m]}\n",
        2,
        "local: {dialect: vllm",
        "belongs to the local engine",
        "rename",
    ),
    (
        "upstreams:\n  a/b: {dialect: vllm, base_url: 'http://h/v1', models: [m]}\n",
        2,
        "a/b: {dialect: vllm",
        '"a/b" cannot name an upstream',
        None,
    ),
    (upstream("{dialect: vllm, base_url: h}").replace("models: [m]\n    {", "{models: [m], "), 3, "h", "does not begin with http://", None),
    (upstream("base_url: ftp://h/v1\n    dialect: vllm"), 4, "ftp://h/v1", "does not begin with http://", "https://host/v1"),
    (upstream("base_url: 'http://'\n    dialect: vllm"), 4, "'http://'", "names no host", None),
    (upstream("base_url: http://h:99999/v1\n    dialect: vllm"), 4, "http://h:99999/v1", "port or host that cannot be read", None),
    (upstream("base_url: http://h:0/v1\n    dialect: vllm"), 4, "http://h:0/v1", "names port 0", None),
    (upstream("base_url: 'http://h /v1'\n    dialect: vllm"), 4, "'http://h /v1'", "has a space", None),
    (upstream("base_url: http://h/v1\n    dialect: vllm\n    api_key: ' k'"), 6, "' k'", "begins or ends with a space", None),
    (upstream("base_url: http://-h/v1\n    dialect: vllm"), 4, "http://-h", "neither a name nor an IP address", None),
    (upstream("base_url: http://h/v1|x\n    dialect: vllm"), 4, "http://h/v1|x", "must be percent-encoded", None),
    (upstream("base_url: http://hé/v1\n    dialect: vllm"), 4, "http://hé", "a letter outside ASCII", None),
    (upstream("base_url: 'http://h/v1?a=1'\n    dialect: vllm"), 4, "'http://h/v1?a=1'", "has a query or fragment", None),
    (
        upstream("base_url: http://h/v1/chat/completions\n    dialect: vllm"),
        4,
        "http://h/v1/chat/completions",
        "ends in /chat/completions",
        "leave /chat/completions out",
    ),
    (
        upstream("base_url: http://h/v1\n    dialect: vllm\n    tokenizer: qwen3"),
        6,
        "qwen3",
        'no tokenizer "qwen3"',
        'did you mean "qwen3.6"?',
    ),
    (upstream("base_url: http://h/v1\n    dialect: vllm\n    api_key: ''"), 6, "''", "the api_key of a is empty", None),
    (upstream('base_url: http://h/v1\n    dialect: vllm\n    api_key: "k\\n"'), 6, '"k\\n"', "the api_key of a has a line break", None),
    (
        upstream("base_url: http://h/v1\n    dialect: vllm\n    headers:\n      host: h"),
        7,
        "host: h",
        "the header host is set by Tidegate",
        None,
    ),
    (upstream("base_url: http://h/v1\n    dialect: vllm\n    headers:\n      a b: h"), 7, "a b: h", "not a header name", None),
    (upstream("base_url: http://h/v1\n    dialect: vllm\n    headers:\n      X-A: h\n      x-a: h"), 8, "x-a: h", "given twice", None),
    (
        upstream('base_url: http://h/v1\n    dialect: vllm\n    headers:\n      a: "1\\r\\nb: 2"'),
        7,
        '"1\\r\\nb: 2"',
        "has a line break",
        None,
    ),
    (
        upstream("base_url: http://h/v1\n    dialect: vllm\n    api_key: k\n    headers: {Authorization: x}"),
        6,
        "k",
        "both an api_key and",
        "keep one",
    ),
    (upstream("base_url: http://h/v1\n    dialect: vllm").replace("[m]", "[m, '']"), 3, "'']", "a model name is empty", None),
    # routes
    (
        routes("{model: m, targets: [{upstream: b}]}", "{model: n, targets: [{upstream: a}]}"),
        4,
        "b",
        'no upstream "b"',
        "there are: a, local",
    ),
    (
        GOOD.replace("  a:", "  cluster:") + "routes: [{model: m, targets: [{upstream: clutser}, {upstream: cluster}]}]\n",
        3,
        "clutser",
        "clutser",
        '"cluster"',
    ),
    (
        GOOD + "local_engine: {enabled: no}\n" + "routes: [{model: m, targets: [{upstream: a}, {upstream: local}]}]\n",
        4,
        "local",
        "is disabled",
        "enabled",
    ),
    (routes("{model: m, targets: [{upstream: a}]}", "{model: m, targets: [{upstream: a}]}"), 5, "m", "written twice", "on line 4"),
    (
        routes('{model: "*", targets: [{upstream: a}]}', "{model: m, targets: [{upstream: a}]}"),
        5,
        "m",
        "no request can reach",
        "move this route above",
    ),
    (
        routes('{model: "q*", targets: [{upstream: a}]}', '{model: "qw*n", targets: [{upstream: a}]}'),
        5,
        '"qw*n"',
        'the route for "qw*n": "q*" on line 4',
        None,
    ),
    (routes("{model: '', targets: [{upstream: a}]}"), 4, "''", "the model of this route is empty", None),
    (routes("{model: m, targets: [{upstream: a, model: 'x*'}]}"), 4, "'x*'", '"x*" is not the name of one model', None),
    # issuers
    (issuer("algorithms: [HS256], secret: 0123456789abcdef0123456789abcdef, jwks: there"), 2, "there", "HS256 uses no jwks", "delete it"),
    (issuer("algorithms: [HS256], secret: '-----BEGIN PUBLIC KEY----- MFkwEwYHKoZIzj0C'"), 2, "'-----BEGIN", "is a public key", "use jwks"),
    (issuer("jwks: 'http://127.0.0.1.example.com/keys'"), 2, "'http://127.", "can be replaced on the way", None),
    (issuer("algorithms: [HS256]"), 2, "{issuer: i, ", "HS256 needs a secret", "32 random bytes"),
    (issuer("algorithms: [HS256], secret: short"), 2, "short", "shorter than 32 bytes", "openssl rand"),
    (issuer("algorithms: [RS256]"), 2, "{issuer: i, ", "RS256 and ES256 need jwks", None),
    (
        issuer("jwks: there, algorithms: [HS256, RS256], secret: 0123456789abcdef0123456789abcdef"),
        2,
        "[HS256, RS256]",
        "HS256 together with",
        "either",
    ),
    (issuer(f"jwks: there, secret: {SECRET}"), 2, "sk-do-not-show-1234", "RS256 and ES256 use no secret", None),
    (issuer("jwks: 'http://example.com/keys'"), 2, "'http://example.com/keys'", "can be replaced on the way", "use https://"),
    (issuer("jwks: 'ftp://example.com/keys'"), 2, "'ftp://example.com/keys'", "does not begin with http://", None),
    (issuer("jwks: absent.json"), 2, "absent.json", 'the key set "absent.json" is not a file', None),
    (issuer("jwks: there, algorithms: [RS256, none]"), 2, "none]", "nobody signed", "delete it"),
    (issuer("jwks: there, algorithms: [RS256, es256]"), 2, "es256]", '"es256" is not supported', 'did you mean "ES256"?'),
    (issuer("jwks: there, algorithms: [RS256, PS512]"), 2, "PS512]", '"PS512" is not supported', None),
    (issuer("jwks: there, algorithms: []"), 2, "[]", "no algorithm is accepted", None),
    ("jwt: [{issuer: '', audience: a, jwks: there}]\n", 1, "''", "the issuer is empty", None),
    ("jwt:\n  - {issuer: i, audience: a, jwks: there}\n  - {issuer: i, audience: a, jwks: there}\n", 3, "i", "is written twice", None),
    (
        issuer("jwks: there") + "  - {issuer: i, audience: b, algorithms: [HS256], secret: 0123456789abcdef0123456789abcdef}\n",
        3,
        "[HS256]",
        "HS256 in one entry and with RS256 or ES256 in another",
        "choose",
    ),
]


@pytest.mark.parametrize(("text", "line", "mark", "message", "hint"), ERRORS)
def test_a_contradiction_is_refused_on_its_line(text: str, line: int, mark: str, message: str, hint: str | None) -> None:
    """Each mistake in what the settings mean gives one error, in its place."""
    found = [problem for problem in problems(text, files=frozenset({"there"})) if problem.severity is Severity.ERROR]
    assert [line] == [problem.line for problem in found]
    assert text.split("\n")[line - 1][found[0].column - 1 :].startswith(mark)
    assert message in found[0].message
    assert hint is None or hint in (found[0].hint or "")
    assert SECRET not in repr(found)


WARNINGS = [
    (upstream("base_url: https://h.example.com/v1\n    dialect: vllm\n    verify_tls: false"), 6, "the certificate of a is not checked"),
    (upstream("base_url: http://h.example.com/v1\n    dialect: vllm\n    api_key: k"), 4, "cross the network unencrypted"),
    (upstream("base_url: https://openrouter.ai/api/v1\n    dialect: openrouter"), 2, "a has no api_key"),
    (upstream("base_url: http://h/v1\n    dialect: vllm\n    timeouts: {total_s: 5, stall_s: 6}"), 6, "stall_s of a can never run out"),
    ("upstreams:\n  a: {dialect: vllm, base_url: 'http://h/v1'}\n", 2, "the upstream a is never used: it lists no models"),
    (routes("{model: m, targets: [{upstream: local}]}"), 2, "the upstream a is never used: no route leads to it"),
    (routes("{model: m, targets: [{upstream: a}, {upstream: a}]}"), 4, "a stands twice in this route"),
    ("admin: {host: 0.0.0.0}\n", 1, "the admin API listens on 0.0.0.0"),
    ("tiers: {free: {}}\n", 1, "the tier free sets no limit"),
    (upstream("base_url: http://h:8000\n    dialect: vllm"), 4, "the base_url of a has no version in its path"),
    (upstream("base_url: https://h/api/\n    dialect: dashscope\n    api_key: k"), 4, "calls would go to /api/chat/completions"),
]


@pytest.mark.parametrize(("text", "line", "message"), WARNINGS)
def test_what_is_probably_not_meant_is_a_warning(text: str, line: int, message: str) -> None:
    """A doubtful setting is told and does not keep the gateway from starting."""
    (found,) = problems(text, files=frozenset({"there"}))
    assert (Severity.WARNING, line) == (found.severity, found.line)
    assert message in found.message


@pytest.mark.parametrize(
    "text",
    [
        "",
        GOOD,
        "server: {port: 0}\nadmin: {port: 0}\n",
        "server: {host: 127.0.0.1, port: 80}\nadmin: {host: '::1', port: 80}\n",
        "server: {tls: {certificate: there, key: there}}\n",
        issuer("jwks: 'https://example.com/keys'"),
        issuer("jwks: 'http://127.0.0.1:9/keys'"),
        issuer("jwks: 'http://localhost/keys'"),
        issuer("algorithms: [HS256], secret: 0123456789abcdef0123456789abcdef"),
        "jwt:\n  - {issuer: i, audience: a, jwks: there}\n  - {issuer: i, audience: b, jwks: there}\n",
        routes(
            "{model: 'm-*', targets: [{upstream: a}]}", "{model: '*-m', targets: [{upstream: a}]}", "{model: '*', targets: [{upstream: a}]}"
        ),
        upstream("base_url: http://h/v1\n    dialect: vllm\n    verify_tls: false"),
    ],
)
def test_a_sound_file_has_no_problems(text: str) -> None:
    """Nothing is said where nothing is wrong."""
    assert not problems(text, files=frozenset({"there"}))


def test_a_route_may_lead_to_an_upstream_that_the_environment_adds() -> None:
    """A key in the environment makes `openrouter` known to routes; without it the route is refused."""
    text = "routes:\n  - {model: '*', targets: [{upstream: openrouter}]}\n"
    assert not problems(text, {"OPENROUTER_API_KEY": "k"})
    assert [problem.message for problem in problems(text)] == ['there is no upstream "openrouter"']


def test_an_upstream_without_models_and_routes_cannot_answer_alone() -> None:
    """With the engine off, an upstream that nothing leads to is refused, not just doubted."""
    found = problems("upstreams:\n  a: {dialect: vllm, base_url: 'http://h/v1'}\nlocal_engine: {enabled: false}\n")
    assert [problem.message for problem in found if problem.severity is Severity.ERROR] == [
        "nothing can answer: no upstream lists its models, and there are no routes"
    ]


def test_a_bad_address_with_a_password_is_refused_without_showing_it() -> None:
    """Credentials in a URL end up in logs, so they are refused, and not repeated in doing so."""
    for password in ("${PW}", SECRET):
        found = problems(upstream(f"base_url: 'https://me:{password}@h.example.com/v1'\n    dialect: vllm"), {"PW": SECRET})
        assert [problem.message for problem in found] == ["the base_url of a holds a user name or password"]
        assert SECRET not in repr(found)


def test_a_problem_from_the_environment_has_no_line() -> None:
    """A broken address in a variable is told, though no line of the file is at fault."""
    (found,) = problems("", {"DASHSCOPE_API_KEY": "k", "DASHSCOPE_BASE_URL": "nonsense"})
    assert (found.line, found.excerpt) == (0, None)
    assert "the base_url of dashscope does not begin with http://" in found.message


@given(
    wide=st.text(st.sampled_from("ab*?[]!"), max_size=5),
    narrow=st.text(st.sampled_from("ab*?[]!"), max_size=5),
    name=st.text(st.sampled_from("ab*?[]!"), max_size=6),
)
@settings(max_examples=2000, deadline=None)
def test_law_a_covered_route_matches_nothing_that_the_other_does_not(wide: str, narrow: str, name: str) -> None:
    """A route is called unreachable only if every name it matches is matched before it."""
    if covers(wide, narrow) and fnmatchcase(name, narrow):
        assert fnmatchcase(name, wide)
