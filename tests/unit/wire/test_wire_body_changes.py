"""What a policy changes in a body on its way to an upstream."""

from __future__ import annotations

import json

import pytest

from tidegate.domain.request import BodyChanges, Operation, ParsedRequest
from tidegate.wire.dialects import DIALECTS
from tidegate.wire.openai import parse_request, rewrite_body

HI = [{"role": "user", "content": "hi"}]
LOWER = BodyChanges(max_completion_tokens=70, temperature=0.1)


def _rewritten(
    operation: Operation, changes: BodyChanges, members: dict[str, object], *, dialect: str = "vllm", model: str = "m"
) -> dict[str, object]:
    body = json.dumps({"model": "m", **members}).encode()
    request = parse_request(operation, body)
    assert isinstance(request, ParsedRequest)
    out = rewrite_body(request, model=model, dialect=DIALECTS[dialect], ask_usage=False, changes=changes)
    decoded = json.loads(out)
    assert isinstance(decoded, dict)
    return decoded


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"max_tokens": 100, "temperature": 0.9}, {"max_tokens": 70, "temperature": 0.1}),
        ({"max_tokens": 50, "temperature": 0}, {"max_tokens": 50, "temperature": 0}),
        ({"max_completion_tokens": 100}, {"max_completion_tokens": 70, "temperature": 0.1}),
        ({"max_tokens": 10, "max_completion_tokens": 100}, {"max_tokens": 10, "max_completion_tokens": 70, "temperature": 0.1}),
        ({"max_tokens": None, "temperature": None}, {"max_tokens": 70, "temperature": 0.1}),
        ({}, {"max_completion_tokens": 70, "temperature": 0.1}),
    ],
)
def test_changes_lower_and_never_raise(members: dict[str, object], expected: dict[str, object]) -> None:
    """The client's own names are kept; a lower wish of the client's stays."""
    assert {"model": "m", "messages": HI, **expected} == _rewritten(Operation.CHAT, LOWER, {"messages": HI, **members})


def test_a_number_beyond_every_float_is_lowered() -> None:
    """It is JSON, and nothing looked at it before."""
    request = parse_request(Operation.CHAT, b'{"model":"m","messages":[{"role":"user","content":"hi"}],"temperature":1e400}')
    assert isinstance(request, ParsedRequest)
    out = rewrite_body(request, model="m", dialect=DIALECTS["vllm"], ask_usage=False, changes=BodyChanges(temperature=0.1))
    assert json.loads(out)["temperature"] == 0.1


def test_a_completion_is_capped_by_its_own_name() -> None:
    """`/v1/completions` knows `max_tokens` only."""
    assert _rewritten(Operation.COMPLETION, LOWER, {"prompt": "hi"}) == {"model": "m", "prompt": "hi", "max_tokens": 70, "temperature": 0.1}


def test_an_added_cap_speaks_the_upstreams_dialect() -> None:
    """What is added is renamed like what the client sent."""
    out = _rewritten(Operation.CHAT, LOWER, {"messages": HI}, dialect="llamacpp", model="small")
    assert out == {"model": "small", "messages": HI, "max_tokens": 70, "temperature": 0.1}


def test_one_change_leaves_the_other_member_alone() -> None:
    """None means: as the client sent it."""
    sent: dict[str, object] = {"messages": HI, "max_tokens": 100, "temperature": 0.9}
    assert _rewritten(Operation.CHAT, BodyChanges(temperature=0.1), sent)["max_tokens"] == 100
    assert _rewritten(Operation.CHAT, BodyChanges(max_completion_tokens=70), sent)["temperature"] == 0.9


def test_what_needs_no_lowering_stays_byte_for_byte() -> None:
    """A body whose members are low enough is sent as it came, spaces and all."""
    request = parse_request(
        Operation.CHAT, b'{"model": "m", "messages": [{"role":"user","content":"hi"}], "max_tokens": 5, "temperature": 0}'
    )
    assert isinstance(request, ParsedRequest)
    assert request.body == rewrite_body(request, model="m", dialect=DIALECTS["vllm"], ask_usage=False, changes=LOWER)
