"""From what an upstream answers to what is wrong with how it is configured."""

from __future__ import annotations

import json

import msgspec
import pytest

from tidegate.doctor.finding import Verdict
from tidegate.doctor.upstreams import Address, Answer, Model, asked, dialect_of, is_worth_a_version, models_of, reached

OK, WARNING, BAD = Verdict.OK, Verdict.WARNING, Verdict.BAD
THERE = Address(name="there/0", base_url="http://h:8000/v1", dialect="openai", has_key=True)
BARE = msgspec.structs.replace(THERE, base_url="http://h:8000", has_key=False)


def models(*names: str, owner: str = "somebody") -> Answer:
    return Answer(status=200, body=json.dumps({"data": [{"id": name, "owned_by": owner} for name in names]}).encode(), took_s=0.02)


def completion(usage: object) -> Answer:
    return Answer(status=200, body=json.dumps({"choices": [{}], "usage": usage}).encode(), took_s=0.1)


LISTED = models("a", "b")


@pytest.mark.parametrize(
    ("address", "answer", "verdict", "words"),
    [
        (THERE, LISTED, OK, "answered in 20 ms, 2 models."),
        (THERE, Answer(failure="connection refused"), BAD, "gave no answer: connection refused"),
        (THERE, Answer(status=401, body=b"bad\n key"), BAD, "refuses the configured key (401): 'bad key'"),
        (BARE, Answer(status=403), BAD, "wants a key (403), and none is configured"),
        (THERE, Answer(status=404), WARNING, "no list of models"),
        (THERE, Answer(status=200, body=b"<html>" + b"x" * 500), BAD, "no OpenAI-compatible API"),
        (THERE, Answer(status=429), BAD, "answered with 429: nothing"),
        (THERE, Answer(status=500, body=b"oops"), BAD, "answered with 500: 'oops'"),
        (THERE, msgspec.structs.replace(LISTED, took_s=3.0), WARNING, "It answered in 3000 ms."),
        (THERE, models("a", owner="vllm"), WARNING, "configured as openai, and looks like vllm"),
        (msgspec.structs.replace(THERE, models=("qwen-max",)), models("qwen-maxx"), WARNING, "Did you mean qwen-maxx?"),
        (msgspec.structs.replace(THERE, models=("qwen",)), LISTED, WARNING, "It has a, b."),
        (msgspec.structs.replace(THERE, models=("a",)), LISTED, OK, "2 models"),
        (msgspec.structs.replace(THERE, models=("a",)), models(), OK, "0 models"),
    ],
)
def test_the_list_of_models_tells(address: Address, answer: Answer, verdict: Verdict, words: str) -> None:
    """Unreachable, wrong key, wrong address, another kind of server, a model that it has not."""
    [check] = reached(address, answer)
    assert (verdict, True) == (check.verdict, words in check.sentence), check
    assert check.fix or verdict is OK


def test_an_address_without_its_version_is_found() -> None:
    """Only such an address is asked again, and only where the first answer was no list; a refused key below `/v1` shows it, too."""
    assert is_worth_a_version(BARE, Answer(status=404))
    assert not is_worth_a_version(BARE, LISTED)
    assert not is_worth_a_version(BARE, Answer(failure="refused"))
    assert not is_worth_a_version(THERE, Answer(status=404))
    for below in (LISTED, Answer(status=401)):
        [check] = reached(BARE, Answer(status=404), below_v1=below)
        assert (BAD, "base_url: http://h:8000/v1") == (check.verdict, check.fix)
    assert "no list of models" in reached(BARE, Answer(status=404), below_v1=Answer(status=404))[0].sentence


def test_what_is_no_list_is_none() -> None:
    """Whatever its status or shape."""
    assert (Model("a", "x"), Model("b", "x")) == models_of(models("a", "b", owner="x"))
    assert [None, None] == [models_of(Answer(status=404, body=LISTED.body)), models_of(Answer(status=200, body=b'{"data": 1}'))]


@pytest.mark.parametrize(
    ("url", "headers", "listed", "expected"),
    [
        ("http://h/v1", {}, [Model("a", "llamacpp")], "llamacpp"),
        ("http://h/v1", {"server": "llama.cpp"}, [], "llamacpp"),
        ("http://h/v1", {}, [Model("a", "vllm")], "vllm"),
        ("https://openrouter.ai/api/v1", {}, [], "openrouter"),
        ("http://h/v1", {}, [Model("a", None, msgspec.Raw(b"{}"))], "openrouter"),
        ("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", {}, [], "dashscope"),
        ("http://h/v1", {}, [Model("a", "system")], None),
    ],
)
def test_a_server_is_known_by_what_only_it_says(url: str, headers: dict[str, str], listed: list[Model], expected: str | None) -> None:
    """Where nothing tells, nothing is claimed."""
    assert expected == dialect_of(url, headers, listed)


@pytest.mark.parametrize(
    ("answer", "counted", "verdict", "words"),
    [
        (completion({"prompt_tokens": 100}), None, OK, "answered in 100 ms and reports usage."),
        (completion({"prompt_tokens": 100}), 104, OK, "which our count matches"),
        (completion({"prompt_tokens": 100}), 130, WARNING, "We count 130 prompt tokens where it reports 100: +30%."),
        (completion(None), None, WARNING, "reports no usage"),
        (completion({}), None, WARNING, "reports no usage"),
        (msgspec.structs.replace(completion({"prompt_tokens": 9}), took_s=5.0), None, WARNING, "took 5.0 s for one token"),
        (Answer(failure="reset"), None, BAD, "gave no answer: reset"),
        (Answer(status=401), None, BAD, "refuses the configured key"),
        (Answer(status=404, body=b"no such model"), None, BAD, "answered with 404"),
        (Answer(status=429), None, BAD, "answered with 429"),
        (Answer(status=400), None, BAD, "answered with 400"),
        (Answer(status=200, body=b'{"response": "hi"}'), None, BAD, "a shape that is not OpenAI's"),
    ],
)
def test_one_token_tells_the_rest(answer: Answer, counted: int | None, verdict: Verdict, words: str) -> None:
    """Key, model, dialect, usage, and whether we count as it does."""
    [check] = asked(THERE, "m", answer, counted=counted)
    assert (verdict, True) == (check.verdict, words in check.sentence), check
    assert '"model": "m"' in check.command or verdict is OK or "count" in check.command
    assert "api_key" not in check.command
