"""The request (1.7 KB) and the answer (0.9 KB) of all measurements: ordinary mixed Chinese and English chat.

Each request body has a place for a number, so that no prompt repeats and no cache of prompts or counts can help anyone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

MODEL = "bench-model"
PATH = "/v1/chat/completions"
NUMBER_AFTER = "Log "
CHUNKS_END = 1000
"""The number of a stream's body, modulo this, is the number of chunks it asks for."""
_MARK = "0123456789"
"""Stands for the number in a body; the number has as many digits, so that the length stays."""

_QUESTION = (
    "You help the operators of a harbour. Read the log of this night and answer in three short points: what happened, why, what to do. "
    "02:10 水位比预报高出四十厘米，北闸门的传感器没有报告。02:25 值班员手动关闭了闸门，一艘拖船在外港等待。03:05 传感器恢复，数据补传完成。"
    "03:40 The tug entered, one line parted, nobody was hurt; the pilot asked for a second tug before the ebb. "
)


@dataclass(frozen=True)
class Body:
    """A JSON body in two parts with a number of ten digits between them."""

    before: bytes
    after: bytes

    def numbered(self, number: int) -> bytes:
        return b"%b%010d%b" % (self.before, number, self.after)

    @property
    def size(self) -> int:
        return len(self.before) + len(_MARK) + len(self.after)


def chat_body(*, stream: bool = False) -> Body:
    """Give a chat request; the number is in the prompt. For a stream its last three digits tell our upstream how many chunks to send."""
    request: dict[str, object] = {"model": MODEL, "messages": _messages(), "temperature": 0.3, "max_tokens": 256}
    return _cut(request | {"stream": True} if stream else request)


def stream_number(serial: int, chunks: int) -> int:
    """Make the number for the body of a stream of 1..999 chunks."""
    return serial % 10_000_000 * CHUNKS_END + chunks


def long_body(size_bytes: int) -> Body:
    """Give a chat request of about this size; the number is at the beginning of the prompt, so that no two have a text in common."""
    text = f"{_MARK} " + _QUESTION * (size_bytes // len(_QUESTION.encode()))
    return _cut({"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 16})


def answer() -> bytes:
    """Give the whole answer of the upstream that does not stream."""
    text = (
        "一、水位异常由风暴增水引起，传感器断线延误了报警。" * 5
        + "Close the gate by hand, call the second tug, replace the sensor cable. " * 3
    )
    reply = {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": MODEL,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 480, "completion_tokens": 150, "total_tokens": 630},
    }
    return json.dumps(reply, ensure_ascii=False).encode()


def _messages() -> list[dict[str, str]]:
    return [
        {"role": "system", "content": "Answer from the log alone. If the log does not say, say so."},
        {"role": "user", "content": f"{NUMBER_AFTER}{_MARK}. {_QUESTION * 3}{_QUESTION[:90]}"},
    ]


def _cut(request: dict[str, object]) -> Body:
    before, after = json.dumps(request, ensure_ascii=False).encode().split(_MARK.encode())
    return Body(before, after)
