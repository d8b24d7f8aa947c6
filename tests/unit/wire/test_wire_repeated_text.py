"""What an upstream repeats of a request is taken out of its message: whole, in part, escaped; and nothing else is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.wire.repeated_text import LOOKED_AT_BYTES, PLACEHOLDER, SHORTEST_RUN, without_request_text

PROMPT = 'Patient Wang Fang, born 1987-03-02, writes:\n"又头疼了，从星期二开始，医生说不要紧。" \U0001f62d C:\\temp\\report'
BODIES = [
    json.dumps({"model": "qwen-plus", "messages": [{"role": "user", "content": PROMPT}]}, ensure_ascii=is_ascii).encode()
    for is_ascii in (True, False)
]


@pytest.mark.parametrize("body", BODIES, ids=["escaped", "plain"])
@pytest.mark.parametrize(
    "echo",
    [
        PROMPT,
        " ".join(PROMPT.split()),
        json.dumps(PROMPT)[1:-1],
        json.dumps(PROMPT, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps(PROMPT))[3:-3],
        repr(PROMPT)[1:-1],
    ],
    ids=["whole", "on one line", "as JSON", "as JSON in UTF-8", "as JSON in JSON", "as Python writes it"],
)
def test_an_echo_is_taken_out_however_it_is_written(body: bytes, echo: str) -> None:
    """What stands around it stays."""
    assert f"cannot use <{PLACEHOLDER}> here" == without_request_text(f"cannot use <{echo}> here", body)


@pytest.mark.parametrize("body", BODIES, ids=["escaped", "plain"])
def test_parts_are_taken_out_each(body: bytes) -> None:
    """A beginning and an end, with the upstream's dots between; what two runs share goes with both."""
    said = without_request_text(f"bad input: {PROMPT[:30]}…{PROMPT[-30:]}", body)
    assert f"bad input: {PLACEHOLDER}…{PLACEHOLDER}" == said


def test_the_message_itself_stays() -> None:
    """Without an echo, or one too short to tell; a message that is shorter still, and an empty body."""
    body = BODIES[1]
    for message in ("max_tokens must be at least 1, and 0 is less than that", PROMPT[: SHORTEST_RUN - 1], "no", ""):
        assert message == without_request_text(message, body)
        assert message == without_request_text(message, b"")
    assert PLACEHOLDER == without_request_text(PROMPT[:SHORTEST_RUN], body)


def test_the_name_of_the_model_stays() -> None:
    """An operator looks for it, and the record has it."""
    model = "Qwen/Qwen2.5-72B-Instruct-AWQ"
    body = json.dumps({"model": model, "messages": []}).encode()
    message = f"The model `{model}` does not exist."
    assert message == without_request_text(message, body, model=model)
    assert f"The model `{PLACEHOLDER}` does not exist." == without_request_text(message, body)


def test_both_ends_of_a_long_body_are_looked_at() -> None:
    """Its middle is not: the work has a bound."""
    first, middle, last = ("the very beginning of the text", "somewhere in the middle of it", "and here it ends after a while")
    rest = "x" * LOOKED_AT_BYTES
    body = f"{first}{rest}{middle}{rest}{last}".encode()
    assert f"{PLACEHOLDER}; {middle}; {PLACEHOLDER}" == without_request_text(f"{first}; {middle}; {last}", body)


TEXT = st.text(st.sampled_from('ab \n\\"u4é中\U0001f600'), max_size=80)


@given(TEXT, TEXT, TEXT, st.booleans())
def test_no_run_of_the_prompt_is_left(before: str, prompt: str, after: str, is_ascii: bool) -> None:
    """Law: whatever surrounds an echo, no 24 characters of the prompt are left in a row, and what is kept was there."""
    plain = prompt.replace("\\", "").replace("\U0001f600", " ")
    prompt = " ".join(plain.split())
    body = json.dumps({"messages": [{"content": prompt}]}, ensure_ascii=is_ascii).encode()
    said = without_request_text(f"{before}<{prompt}>{after}", body)
    assert [] == [at for at in range(len(prompt) - SHORTEST_RUN + 1) if prompt[at : at + SHORTEST_RUN] in said]
    assert said.startswith(before) or PLACEHOLDER in said
