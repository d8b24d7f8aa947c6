"""Open-loop clients of a failover drill: requests are due at fixed times, every second one a stream, each on a connection of its own.

One JSON line in; one line when it begins, and at the end one line with all requests (when each was due, how long it took, how it ended).
A connection for each request keeps the drill's figures free of the clients' pools: what a client sees is the gateway's doing.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from http import HTTPStatus
from typing import Any

import uvloop

from tidegate.conformance.observe import Observation, Target, ask

_DEADLINE_S = 60.0  # longer than any default clock that a drill should ever run into


async def play(task: dict[str, Any], number: int, due: float, begun: float) -> dict[str, Any]:
    """Make one request when it is due, and tell how it ended."""
    stream = number % 2 == 0
    loop = asyncio.get_running_loop()
    await asyncio.sleep(max(0.0, due - loop.time()))
    message = task["prompt"].replace("#", str(number))
    body = json.dumps({"model": task["model"], "stream": stream, "messages": [{"role": "user", "content": message}]}).encode()
    target = Target(f"http://127.0.0.1:{task['port']}/v1", task["key"])
    seen = await ask(target, "/chat/completions", body, deadline_s=_DEADLINE_S)
    took_s = loop.time() - due
    report: dict[str, Any] = {
        "due_s": round(due - begun, 4),
        "took_s": round(took_s, 4),
        "stream": stream,
        "end": _verdict(seen, stream=stream),
        "degraded": "x-tidegate-degraded" in seen.headers,
    }
    if report["end"] != "ok":
        report["said"] = f"status {seen.status or 'none'}, {seen.end}: {seen.body[-300:].decode('utf-8', 'replace')}"
    return report


def _verdict(seen: Observation, *, stream: bool) -> str:
    """Tell how an answer ended.

    `ok`; `error`: an error status, half of a whole answer, or nothing at all (before the commit point); `broken`: a stream that ended with
    an error event; `cut`: one that ended without a word.
    """
    if seen.status != HTTPStatus.OK:
        return "error"
    if not stream:
        return "ok" if b'"finish_reason"' in seen.body and seen.body.rstrip().endswith(b"}") else "error"
    if b'"error"' in seen.body:
        return "broken"
    return "ok" if b"data: [DONE]" in seen.body else "cut"


async def _main(task: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time() + 0.2
    sys.stdout.write(json.dumps({"begun_monotonic_s": time.monotonic() + 0.2}) + "\n")
    sys.stdout.flush()
    number = round(task["rate_per_s"] * task["seconds"])
    tasks = [asyncio.create_task(play(task, index, begun + index / task["rate_per_s"], begun)) for index in range(number)]
    sys.stdout.write(json.dumps({"requests": await asyncio.gather(*tasks)}) + "\n")


if __name__ == "__main__":
    uvloop.run(_main(json.loads(sys.stdin.readline())))
