"""Open-loop clients of a failover drill: requests are due at fixed times, every second one a stream, each on a connection of its own.

One JSON line in; one line when it begins, and at the end one line with all requests (when each was due, how long it took, how it ended).
A connection for each request keeps the drill's figures free of the clients' pools: what a client sees is the gateway's doing.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import uvloop

_DEADLINE_S = 60.0  # longer than any default clock that a drill should ever run into
_READ_BYTES = 65_536


async def _play(task: dict[str, Any], number: int, due: float, begun: float) -> dict[str, Any]:
    stream = number % 2 == 0
    loop = asyncio.get_running_loop()
    await asyncio.sleep(max(0.0, due - loop.time()))
    message = task["prompt"].replace("#", str(number))
    body = json.dumps({"model": task["model"], "stream": stream, "messages": [{"role": "user", "content": message}]}).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: drill\r\nauthorization: Bearer {task['key']}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    ).encode()
    answer = b""
    try:
        async with asyncio.timeout(_DEADLINE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", task["port"])
            writer.write(head + body)
            pieces: list[bytes] = []
            while piece := await reader.read(_READ_BYTES):
                pieces.append(piece)
            answer = b"".join(pieces)
            writer.close()
    except (OSError, TimeoutError) as problem:
        answer = answer or f"no answer: {problem!r}".encode()
    took_s = loop.time() - due
    report: dict[str, Any] = {
        "due_s": round(due - begun, 4),
        "took_s": round(took_s, 4),
        "stream": stream,
        "end": _verdict(answer, stream=stream),
    }
    head_text = answer.partition(b"\r\n\r\n")[0].lower()
    report["degraded"] = b"x-tidegate-degraded" in head_text
    if report["end"] != "ok":
        report["said"] = answer[-300:].decode("utf-8", "replace")
    return report


def _verdict(answer: bytes, *, stream: bool) -> str:
    """Tell how an answer ended.

    `ok`; `error`: an error status, or nothing at all (before the commit point); `broken`: a stream that ended with an error event; `cut`:
    one that ended without a word.
    """
    head, _, rest = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        return "error"
    if not stream:
        return "ok" if b'"finish_reason"' in rest and rest.rstrip().endswith(b"}") else "error"
    if b'"error"' in rest:
        return "broken"
    return "ok" if b"data: [DONE]" in rest else "cut"


async def _main(task: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time() + 0.2
    sys.stdout.write(json.dumps({"begun_monotonic_s": time.monotonic() + 0.2}) + "\n")
    sys.stdout.flush()
    number = round(task["rate_per_s"] * task["seconds"])
    tasks = [asyncio.create_task(_play(task, index, begun + index / task["rate_per_s"], begun)) for index in range(number)]
    sys.stdout.write(json.dumps({"requests": await asyncio.gather(*tasks)}) + "\n")


if __name__ == "__main__":
    uvloop.run(_main(json.loads(sys.stdin.readline())))
