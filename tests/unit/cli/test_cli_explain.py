"""`tidegate explain`: what it says of one request, for people and as JSON, and what it refuses."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from tidegate.cli.main import main

CONFIGURATION = """\
upstreams:
  cluster: {dialect: vllm, base_url: "http://10.0.0.5:8000/v1", replicas: [{base_url: "http://10.0.0.6:8000/v1"}]}
  hosted: {dialect: dashscope, base_url: "https://example.com/v1", api_key: k}
local_engine: {enabled: false}
routes:
  - model: m
    order: sla
    targets: [{upstream: cluster, relative_cost: 2, typical_ttft_s: 100ms}, {upstream: hosted, model: big}]
    budget: {tokens: 2000, smaller: {upstream: cluster, model: q4}}
  - model: plain
    targets: [{upstream: hosted}]
    budget: {tokens: 100_000}
tiers: {vip: {promised_ttft_s: 200ms, concurrency: 9}}
rules:
  - {name: others, model: plain, when: {stream: true}, use: [{upstream: cluster}]}
  - {name: pictures, model: m, when: {has: [images], tiers: [vip]}, use: [{upstream: hosted}]}
  - {name: code, model: m, when: {has: [code]}, use: [{upstream: hosted, model: coder}]}
  - {name: streams, model: m, when: {stream: true}, use: [{upstream: hosted}]}
"""
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run each test beside a configuration, without keys of providers in the environment."""
    monkeypatch.chdir(tmp_path)
    for variable in ("OPENROUTER_API_KEY", "DASHSCOPE_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "tidegate.yaml").write_text(CONFIGURATION)
    return tmp_path


def write(body: object) -> str:
    Path("request.json").write_text(body if isinstance(body, str) else json.dumps(body))
    return "request.json"


def chat(content: object, **members: object) -> str:
    return write({"model": "m", "messages": [{"role": "user", "content": content}], **members})


def explained(file: str, capture: Capture, *options: str) -> str:
    assert main(["explain", file, *options]) == 0
    return capture.readouterr().out


def test_every_step_of_the_decision_is_told(capsys: Capture) -> None:
    """Request, prompt, each rule with its conditions, promise, budget, plan, targets with replicas, and what is sent otherwise."""
    out = explained(
        chat("def f(x):\n    return x\n" * 400, stream=True, max_completion_tokens=900), capsys, "--tier", "vip", "--feature", "chat"
    )
    promise = (
        "promise  0.2 s to the first token\n  cluster: first token 0.1 s declared, relative cost 2, keeps it\n"
        "  hosted as big: first token not known, relative cost 1\n"
    )
    for expected in (
        promise,
        "request  chat for m, a stream, answer of at most 900 tokens, ",
        "caller   tier vip, feature chat\n",
        "route    m\n",
        "; has code; latin 100%\n",
        "  pictures: does not hold\n    yes  tier vip — vip\n    no   has images — code\n",
        "  code: holds\n    yes  has code — code\n",
        "  streams: holds too, but the first wins\n",
        "  1 more look at other models only\n",
        " + 900 = ",
        " tokens is over 2,000\n  answer capped at 256: ",
        " is still over\n  a smaller model goes first: cluster as q4\n",
        "plan     rule code holds; about ",
        "         decided by budget\n",
        "         the client sees X-Tidegate-Degraded: L1; reason=over_budget\n",
        "  1. cluster as q4\n       cluster/",
        'body: model "m" → "q4"\n',
        "body: max_completion_tokens 900 → 256\n",
        'body: stream_options absent → {"include_usage":true}\n',
        "  2. hosted as coder\n       hosted/0  available\n",
        "body: max_completion_tokens 900 → left out\n",
        "  3. cluster as m\n",
        "  4. hosted as big\n",
    ):
        assert expected in out
    assert out.count("would get this request") == 1


def test_a_plain_request_is_told_in_few_words(capsys: Capture) -> None:
    """Nothing held, nothing changed: the order of the route, and the shares of the scripts."""
    out = explained(write({"model": "plain", "messages": [{"role": "user", "content": "你好 hi"}], "n": 2}), capsys)
    for expected in (
        "answer of no cap",
        "caller   tier default, feature none\n",
        "has nothing special; zh 50%, latin 50%\n",
        "  others: does not hold\n    no   a stream — no stream\n",
        "+ 1,024 × 2 = ",
        " tokens fits 100,000\n",
        "plan     as the route lists its targets\n",
    ):
        assert expected in out
    assert "promise" not in out
    assert "decided by" not in out


def test_promises_are_told_to_whom_they_are_made(capsys: Capture) -> None:
    """Without a promise the cheapest goes first; a shorter answer alone may be enough; a time that is too long is said to be."""
    out = explained(chat("Hello", max_tokens=5_000), capsys)
    assert "promise  nothing to tier default: the cheapest goes first\n" in out
    assert " fits\n" in out
    Path("tidegate.yaml").write_text(CONFIGURATION.replace("typical_ttft_s: 100ms", "typical_ttft_s: 300ms"))
    assert "cluster: first token 0.3 s declared, relative cost 2, does not keep it\n" in explained(chat("Hello"), capsys, "--tier", "vip")


def test_a_budget_without_a_smaller_model_says_so(capsys: Capture) -> None:
    """What would help is named by what is missing."""
    Path("tidegate.yaml").write_text(CONFIGURATION.replace(", smaller: {upstream: cluster, model: q4}", ""))
    assert "  no smaller model is configured for it\n" in explained(chat("word " * 3_000), capsys)


def test_embeddings_take_the_route_as_it_is(capsys: Capture) -> None:
    """Rules are not asked, and only the first target is used; a prompt of digits has no letters."""
    out = explained(write({"model": "m", "input": "123"}), capsys)
    assert "rules    embeddings take the route as it is" in out
    assert "  1. cluster as m\n" in out
    assert "  2." not in out
    assert "no letters" in out


def test_embeddings_have_the_same_model_elsewhere_as_a_stand_by(directory: Path, capsys: Capture) -> None:
    """Vectors of one model may come from several places, as the gateway does it."""
    targets = "[{upstream: cluster}, {upstream: hosted, model: big}, {upstream: hosted}]"
    wanted = f"  - model: vectors\n    targets: {targets}\ntiers:"
    (directory / "tidegate.yaml").write_text(CONFIGURATION.replace("tiers:", wanted, 1))
    out = explained(write({"model": "vectors", "input": "a"}), capsys)
    assert "  1. cluster as vectors\n" in out
    assert "hosted as vectors\n" in out
    assert "hosted as big" not in out


def test_a_tier_that_does_not_exist_is_said_to(capsys: Capture) -> None:
    """It is explained all the same, with what it would get: nothing."""
    assert main(["explain", chat("hi"), "--tier", "nope"]) == 0
    assert "no tier 'nope' (it has: vip)" in capsys.readouterr().err
    assert main(["explain", chat("hi"), "--tier", "vip"]) == 0
    assert capsys.readouterr().err == ""


def test_completions_are_known_by_their_prompt(capsys: Capture) -> None:
    """No option says what a body is."""
    assert "request  completion for m, no stream" in explained(write({"model": "m", "prompt": "Hello"}), capsys)


def test_without_rules_there_is_nothing_to_judge(capsys: Capture) -> None:
    """One line says so."""
    Path("tidegate.yaml").write_text(CONFIGURATION.partition("rules:")[0])
    assert "rules    none\n" in explained(chat("Hello"), capsys)


def test_long_values_are_cut(capsys: Capture) -> None:
    """A name of two hundred letters does not fill the screen."""
    name = "x" * 200
    text = CONFIGURATION.replace("model: plain", f"model: {name}").replace(
        "targets: [{upstream: hosted}]", "targets: [{upstream: hosted, model: big}]"
    )
    Path("tidegate.yaml").write_text(text)
    out = explained(write({"model": name, "messages": [{"role": "user", "content": "x"}]}), capsys)
    assert f'body: model "{"x" * 99}… → "big"\n' in out


def test_json_has_everything_and_is_stable(capsys: Capture) -> None:
    """Programs read the same facts; no order depends on hashing."""
    file = chat('```python\nx = 1 + 2\n``` | and {"a": 1}')
    first = json.loads(explained(file, capsys, "--json"))
    assert first["explanation"]["features"]["traits"] == ["code", "figures", "formulas", "json"]
    assert [verdict["name"] for verdict in first["explanation"]["rules"] if verdict["held"]] == ["code"]
    assert first["targets"][0]["view"]["upstream"] == "hosted"
    assert first["targets"][0]["changes"][0] == {"member": "model", "sent": '"coder"', "instead_of": '"m"'}
    assert first["first_replica"] == "hosted/0"


def test_a_request_can_come_through_standard_input(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tidegate explain -` reads a pipe."""
    pipe = io.TextIOWrapper(io.BytesIO(Path(chat("Hello")).read_bytes()))
    monkeypatch.setattr(sys, "stdin", pipe)
    assert "route    m\n" in explained("-", capsys)


@pytest.mark.parametrize(
    ("body", "options", "expected"),
    [
        ("{", [], "is not valid JSON"),
        ({"model": "m"}, [], "`messages` is missing"),
        ({"model": "n", "messages": [{"role": "user"}]}, [], "No route serves the model 'n'"),
        ({"model": "m", "messages": [{"role": "user"}]}, ["--key-model", "gpt*"], "This key may not use the model 'm'"),
    ],
)
def test_what_the_gateway_would_refuse_is_refused(body: object, options: list[str], expected: str, capsys: Capture) -> None:
    """With the same words, and the exit status of a question that must be put otherwise."""
    assert main(["explain", write(body), *options]) == 2
    assert expected in capsys.readouterr().err


def test_a_file_that_cannot_be_read_or_is_too_large_is_named(capsys: Capture) -> None:
    """The limit is the gateway's own."""
    assert main(["explain", "absent.json"]) == 2
    assert "absent.json cannot be read: No such file" in capsys.readouterr().err
    Path("tidegate.yaml").write_text(CONFIGURATION + "server: {max_body_bytes: 10}\n")
    assert main(["explain", chat("Hello")]) == 2
    assert "larger than server.max_body_bytes (10)" in capsys.readouterr().err
