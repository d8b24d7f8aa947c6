"""The bodies that are sent, and the headers with them."""

import json

import msgspec
import pytest

from tidegate.bench.bodies import BodyMaker, UnusableRequestsError
from tidegate.bench.plan import Endpoint, PlannedRequest, Scenario, Target

TARGET = Target("http://127.0.0.1:1/v1", "m")
TIDES = Scenario("tides", system="Be brief.", texts=("The tide comes in. ", "The tide goes out. "), feature="tides")


def planned(*, seed: int = 1, prompt_tokens: int = 20, **more: object) -> PlannedRequest:
    given = {"index": 0, "due_s": 0.0, "stage": 0, "scenario": "tides", "seed": seed, "prompt_tokens": prompt_tokens}
    return PlannedRequest(**(given | more))  # type: ignore[arg-type]


def body(scenario: Scenario = TIDES, request: PlannedRequest | None = None, **target: object) -> dict[str, object]:
    wanted = msgspec.structs.replace(TARGET, **target)
    written: dict[str, object] = json.loads(BodyMaker(wanted, scenario).body(request or planned()))
    return written


def prompt(request: PlannedRequest, scenario: Scenario = TIDES) -> str:
    said = body(scenario, request, endpoint=Endpoint.COMPLETIONS)["prompt"]
    assert isinstance(said, str)
    return said


def test_a_chat_has_the_system_prompt_and_a_cut_of_the_passages() -> None:
    """And model, stream and usage, and nothing else that nobody asked for."""
    written = body()
    messages = written.pop("messages")
    assert isinstance(messages, list)
    assert {"role": "system", "content": "Be brief."} == messages[0]
    assert "user" == messages[1]["role"]
    assert 84 == len(messages[1]["content"])
    assert {"model": "m", "stream": True, "stream_options": {"include_usage": True}} == written


def test_the_cap_is_sent_under_its_name() -> None:
    """Where the plan has one."""
    assert 7 == body(request=planned(completion_tokens=7), cap_field="max_completion_tokens")["max_completion_tokens"]
    assert "max_tokens" not in body()


def test_equal_seeds_give_equal_bytes_and_others_do_not() -> None:
    """A prefix cache finds nothing but what the plan wants it to find."""
    assert prompt(planned(seed=3)) == prompt(planned(seed=3))
    assert prompt(planned(seed=3)) != prompt(planned(seed=4))
    first, second = (prompt(planned(seed=seed, prompt_tokens=40, prefix=9, prefix_tokens=30)) for seed in (1, 2))
    assert first[:126] == second[:126]
    assert first != second


def test_a_prompt_may_be_longer_than_the_passages() -> None:
    """They are laid end to end; characters of Chinese are fewer for as many tokens."""
    assert 4200 == len(prompt(planned(prompt_tokens=1_000)))
    chinese = prompt(planned(prompt_tokens=1_000), Scenario("tides", texts=("潮来潮去",)))
    assert 1_000 < len(chinese) < 2_500


def test_without_a_length_a_passage_is_sent_whole() -> None:
    """The texts of a scenario are then its prompts."""
    assert "The tide goes out. " == prompt(planned(seed=1, prompt_tokens=0))


def test_extra_members_win() -> None:
    """Over the cap and even over the conversation."""
    written = body(request=planned(completion_tokens=7), extra_body='{"max_tokens":1,"messages":[],"temperature":0}')
    assert (1, [], 0) == (written["max_tokens"], written["messages"], written["temperature"])


def test_the_response_format_is_sent_as_it_is() -> None:
    """It is the scenario's."""
    wants = msgspec.structs.replace(TIDES, response_format='{"type":"json_object"}')
    assert {"type": "json_object"} == body(wants)["response_format"]


def own(*lines: str) -> Scenario:
    return Scenario("own", lines=lines)


def test_requests_of_the_users_own_are_kept() -> None:
    """Their members stay, model and stream are the target's; the line's cap stands where the plan has none."""
    scenario = own('{"model":"x","messages":[{"role":"user","content":"Hi"}],"temperature":0.5,"max_tokens":9}', '{"prompt":"Ho"}')
    first, second = body(scenario, planned(seed=0)), body(scenario, planned(seed=1, completion_tokens=4), stream=False)
    assert {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "temperature": 0.5,
        "max_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
    } == first
    assert {"model": "m", "messages": [{"role": "user", "content": "Ho"}], "max_tokens": 4, "stream": False} == second


def test_a_conversation_becomes_a_prompt_for_completions() -> None:
    """Its last turn does."""
    scenario = own('{"messages":[{"role":"system","content":"S"},{"role":"user","content":"Hi"}]}', '{"prompt":"Ho"}')
    said = [body(scenario, planned(seed=seed), endpoint=Endpoint.COMPLETIONS)["prompt"] for seed in (0, 1)]
    assert ["Hi", "Ho"] == said


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"text":"x"}'])
def test_what_is_no_request_is_refused_with_its_number(line: str) -> None:
    """Before anything is sent."""
    with pytest.raises(UnusableRequestsError, match="Request 2 of own"):
        BodyMaker(TARGET, own('{"prompt":"a"}', line))


@pytest.mark.parametrize("messages", ["[]", "[1]", '[{"role":"user"}]'])
def test_a_conversation_that_says_nothing_is_no_prompt(messages: str) -> None:
    """There is nothing to complete."""
    with pytest.raises(UnusableRequestsError, match="Request 1"):
        body(own(f'{{"messages":{messages}}}'), endpoint=Endpoint.COMPLETIONS)


@pytest.mark.parametrize(
    ("scenario", "target", "words"),
    [
        (Scenario("none"), TARGET, "neither texts"),
        (TIDES, msgspec.structs.replace(TARGET, extra_body="{"), "not JSON"),
        (TIDES, msgspec.structs.replace(TARGET, key="a\nb"), "authorization"),
        (TIDES, msgspec.structs.replace(TARGET, color="grün"), "x-tidegate-color"),
    ],
)
def test_what_cannot_be_sent_is_said_before_the_run(scenario: Scenario, target: Target, words: str) -> None:
    """In words that say what to correct; the key is not among them."""
    with pytest.raises(UnusableRequestsError, match=words) as refusal:
        BodyMaker(target, scenario)
    assert "a\nb" not in str(refusal.value)


def test_headers_say_who_asks_and_for_what() -> None:
    """Key, feature, colour; the target's own win, once each."""
    target = msgspec.structs.replace(TARGET, key="sesame", color="bench", stream=False, headers=(("User-Agent", "me"), ("X-A", "1")))
    assert {
        b"content-type": b"application/json",
        b"accept": b"application/json",
        b"user-agent": b"me",
        b"authorization": b"Bearer sesame",
        b"x-business-context": b"feature=tides",
        b"x-tidegate-color": b"bench",
        b"x-a": b"1",
    } == dict(BodyMaker(target, TIDES).headers)
