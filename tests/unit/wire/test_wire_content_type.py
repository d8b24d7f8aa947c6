"""What kind of text a prompt is, and what is wished of its answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidegate.domain.features import AnswerWishes, ContentType
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import ModelName
from tidegate.wire.content_type import content_type_of, wishes_of
from tidegate.wire.openai import parse_request

PROSE = "The tide comes in twice a day, and the gate lets as much through as the harbour can hold; nobody waits for long. " * 4
SCAN = (
    "Tl1e qu|ck br0wn f\ufffdx jumps ov3r tne lazy d\ufffd\ufffdg .,;' and tben ru~ns aw4y. I n v o i c e  t o t a l : thr3e hundr3d ;,.'\n"
    "P|ease p^y w1thin f0urteen d*ys , .;;, t0 the ad8ress ab0ve \ufffd\n"
)
HTML = "<html><body><div><p>Hello</p><p>World</p></div></body></html>"
CODE = "```python\ndef add(a: int, b: int) -> int:\n    return a + b\n```"


def chat(content: str, **members: Any) -> ParsedRequest:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": content}], **members}).encode()
    parsed = parse_request(Operation.CHAT, body)
    assert isinstance(parsed, ParsedRequest)
    return parsed


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (PROSE, ContentType.PLAIN),
        ("", ContentType.PLAIN),
        ("今天天气很好，我们去海边看潮水。" * 20, ContentType.PLAIN),
        ("Prices: 1,200.50; 3,400.00; see items 1-12 (a, b, c)... | col | col |\n|---|---|\n| 5 | 6 |", ContentType.PLAIN),
        (SCAN, ContentType.SCAN),
        (SCAN * 300, ContentType.SCAN),
        (HTML + CODE, ContentType.HTML),
        (CODE, ContentType.CODE),
        ('{"name": "x", "values": [1, 2]}', ContentType.JSON),
    ],
)
def test_kinds_of_text_are_told_apart(content: str, kind: ContentType) -> None:
    """Markup before code before data before noise; everything else is plain."""
    assert content_type_of(chat(content)) == kind


@pytest.mark.parametrize(
    ("members", "wishes"),
    [
        ({}, AnswerWishes()),
        ({"temperature": 1, "stream": True}, AnswerWishes(temperature=1.0, stream=True)),
        ({"temperature": "hot", "tools": "none"}, AnswerWishes(tools=True)),
        ({"temperature": True}, AnswerWishes()),
        ({"temperature": 10**400, "stream": False}, AnswerWishes(temperature=2.0)),
        ({"response_format": {"type": "json_object"}, "tools": []}, AnswerWishes(json=True)),
        ({"response_format": {"type": "text"}, "tools": [{"type": "function"}]}, AnswerWishes(tools=True)),
    ],
)
def test_wishes_are_read_as_they_stand(members: dict[str, Any], wishes: AnswerWishes) -> None:
    """Temperature, JSON, tools and streaming are found; what has an odd type wishes nothing."""
    assert wishes_of(chat("x", **members)) == wishes


def test_a_number_beyond_every_float_is_the_highest() -> None:
    """It is JSON all the same, wherever it stands."""
    body = b'{"model":"m","messages":[{"role":"user","content":"x"}],"temperature":1e400,"tools":[{"maximum":1e400}]}'
    assert wishes_of(ParsedRequest(Operation.CHAT, ModelName("m"), body)) == AnswerWishes(temperature=2.0, tools=True)
