"""An open-loop client: requests are due at fixed times computed beforehand, and a latency runs from when its request was due.

Task: see `Task`. Answers with the figures. A gateway that falls behind is not waited for: what could not be sent in time because every
connection was busy is late from the client's point of view too. Plain sockets and `select`, whose time-outs are exact to the
microsecond; event loops wake at whole milliseconds.
"""

from __future__ import annotations

import json
import re
import select
import socket
import sys
import time
from dataclasses import dataclass

from benchmarks.rows import quantile

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_GRACE_S = 5.0
"""For the last answers; what is still missing then is counted as unanswered."""
_READ_BYTES = 65_536


@dataclass(frozen=True)
class Task:
    """What to do. A request is `before`, ten digits, `after`; or `before` alone when `after` is empty."""

    port: int
    before: str
    after: str
    rate_per_s: float
    seconds: float
    connections: int
    slice_s: float = 1.0
    """`slice_worst_ms` is the median, over slices of this length, of the largest latency in each: what one disturbance does not move."""


class Connection:
    """One keep-alive connection, with at most one request on it."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_GRACE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self.due_at = 0.0

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, request: bytes, due_at: float) -> None:
        self.due_at = due_at
        self._received = b""
        self._socket.sendall(request)

    def answered(self) -> bool:
        """Read what is there; tell whether the answer is complete."""
        piece = self._socket.recv(_READ_BYTES)
        if not piece:
            raise ConnectionError("the gateway closed a connection in the middle of an answer")
        self._received += piece
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return False
        length = _LENGTH.search(self._received, 0, end + 2)
        return self._received.endswith(b"0\r\n\r\n") if length is None else len(self._received) >= end + 4 + int(length[1])

    def succeeded(self) -> bool:
        return self._received.startswith(b"HTTP/1.1 200")

    def close(self) -> None:
        self._socket.close()


class Pace:
    """One run: what is due, what is under way, what was measured."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._before, self._after = task.before.encode(), task.after.encode()
        self._idle = [Connection(task.port) for _ in range(task.connections)]
        self._busy: set[Connection] = set()
        self._sent = 0
        self._total = int(task.rate_per_s * task.seconds)
        self._began = 0.0
        self._latencies: list[float] = []
        self._late: list[float] = []
        self._slices: dict[int, float] = {}
        self._wrong = 0

    def run(self) -> dict[str, float]:
        self._began = time.monotonic() + 0.05
        until = self._began + self._task.seconds + _GRACE_S
        while self._sent < self._total or self._busy:
            now = time.monotonic()
            if now > until:
                break
            self._send_what_is_due(now)
            self._take_answers(self._wait_s(now))
        for connection in (*self._idle, *self._busy):
            connection.close()
        return self._figures()

    def _due_at(self, index: int) -> float:
        return self._began + index / self._task.rate_per_s

    def _send_what_is_due(self, now: float) -> None:
        while self._sent < self._total and self._idle and (due_at := self._due_at(self._sent)) <= now:
            connection = self._idle.pop()
            connection.send(self._request(), due_at)
            self._late.append(time.monotonic() - due_at)
            self._busy.add(connection)
            self._sent += 1

    def _request(self) -> bytes:
        return b"%b%010d%b" % (self._before, self._sent, self._after) if self._after else self._before

    def _wait_s(self, now: float) -> float:
        """How long nothing is due; with every connection busy, until an answer comes."""
        if self._sent < self._total and self._idle:
            return max(0.0, self._due_at(self._sent) - now)
        return _GRACE_S

    def _take_answers(self, wait_s: float) -> None:
        readable, _, _ = select.select(list(self._busy), [], [], wait_s)
        for connection in readable:
            if not connection.answered():
                continue
            latency = time.monotonic() - connection.due_at
            self._latencies.append(latency)
            slice_number = int((connection.due_at - self._began) / self._task.slice_s)
            self._slices[slice_number] = max(latency, self._slices.get(slice_number, 0.0))
            self._wrong += not connection.succeeded()
            self._busy.discard(connection)
            self._idle.append(connection)

    def _figures(self) -> dict[str, float]:
        ordered, late = sorted(self._latencies), sorted(self._late)
        figures: dict[str, float] = {"requests": len(ordered), "wrong": self._wrong + self._total - len(ordered)}
        figures |= {f"p{share}_ms": round(quantile(ordered, share / 100) * 1e3, 3) for share in (50, 99)}
        figures["largest_ms"] = round(ordered[-1] * 1e3, 3) if ordered else float("nan")
        figures["slice_worst_ms"] = round(quantile(sorted(self._slices.values()), 0.5) * 1e3, 3)
        figures["sent_late_p99_ms"] = round(quantile(late, 0.99) * 1e3, 3)
        return figures


def main() -> None:
    task = Task(**json.loads(sys.stdin.readline()))
    print(json.dumps(Pace(task).run()), flush=True)


if __name__ == "__main__":
    main()
