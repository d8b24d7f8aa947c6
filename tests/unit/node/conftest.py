"""A real supervisor in a process of its own, with stand-in workers."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

DEADLINE_S = 20.0
NODE = Path(__file__).with_name("stand_in_node.py")

Result = TypeVar("Result")


def wait_for(condition: Callable[[], Result], what: str, *, deadline_s: float = DEADLINE_S) -> Result:
    """Wait until `condition` gives something true, and give that."""
    deadline = time.monotonic() + deadline_s
    while not (result := condition()):
        assert time.monotonic() < deadline, f"waited {deadline_s} s for {what}"
        time.sleep(0.02)
    return result


class Stream:
    """A response being read; closed by `rest`, or by the node's fixture."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self.connection = connection
        self.response = connection.getresponse()

    def rest(self) -> bytes:
        """Read to the end."""
        try:
            return self.response.read()
        finally:
            self.close()

    def close(self) -> None:
        self.response.close()
        self.connection.close()


class Node:
    """A node under test; its configuration can be changed with `configure`."""

    def __init__(self, directory: Path) -> None:
        self.state = directory / "state"
        self.file = directory / "tidegate.yaml"
        self.log_file = directory / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self.children: list[psutil.Process] = []
        self.streams: list[Stream] = []

    def configure(self, **settings: Any) -> None:
        fixed: dict[str, Any] = {
            "state_directory": str(self.state),
            "server": {"port": 0, "workers": 2, "drain_timeout_s": 5.0} | settings.pop("server", {}),
            "admin": {"port": 0},
            "local_engine": {"enabled": False},
            "analytics": {"enabled": False},
            "upstreams": {"there": {"dialect": "vllm", "base_url": "http://127.0.0.1:9/v1", "models": ["m"]}},
        }
        self.file.write_text(json.dumps(fixed | settings))

    def launch(self, **environment: str) -> None:
        """Start the process without waiting for anything."""
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(NODE), str(self.file)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | environment
            )

    def start(self) -> None:
        """Start, and wait until all workers serve."""
        self.launch()
        wait_for(lambda: self.ended() or (self.state / "endpoints.json").exists(), "the node to listen")
        assert not self.ended(), self.log()
        self.children = psutil.Process(self.pid).children(recursive=True)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def endpoint(self, name: str) -> str:
        return str(json.loads((self.state / "endpoints.json").read_text())[name])

    def connect(self, name: str = "api") -> http.client.HTTPConnection:
        address = urllib.parse.urlsplit(self.endpoint(name))
        return http.client.HTTPConnection(address.hostname or "", address.port, timeout=DEADLINE_S)

    def get(self, path: str, name: str = "api") -> tuple[int, bytes]:
        connection = self.connect(name)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def open_stream(self, seconds: float) -> Stream:
        """Begin a stream of some seconds; its first event has arrived."""
        connection = self.connect()
        connection.request("GET", f"/stream?s={seconds}")
        stream = Stream(connection)
        self.streams.append(stream)
        assert stream.response.readline() == b"data: tick\n"
        return stream

    def wait_for(self, condition: Callable[[], Result], what: str, *, deadline_s: float = DEADLINE_S) -> Result:
        return wait_for(condition, what, deadline_s=deadline_s)

    def whoami(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.get("/whoami")[1])
        return answer

    def both(self) -> dict[int, dict[str, Any]]:
        """Ask until each of the two workers has answered once; the kernel chooses who does."""
        answers: dict[int, dict[str, Any]] = {}

        def asked() -> bool:
            answer = self.whoami()
            answers[answer["index"]] = answer
            return len(answers) == 2

        wait_for(asked, "both workers to answer")
        return answers

    def requests_counted(self) -> float:
        """The sum of requests that `/metrics` shows."""
        page = self.get("/metrics", "admin")[1].decode()
        return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith("tidegate_requests_total{"))

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def exit_code(self, *, deadline_s: float = DEADLINE_S) -> int:
        assert self.process is not None
        return self.process.wait(deadline_s)

    def log(self) -> str:
        return self.log_file.read_text()

    def survivors(self, *, deadline_s: float = 5.0) -> list[str]:
        """Give the children of the start that still run after a moment."""
        _, alive = psutil.wait_procs(self.children, timeout=deadline_s)
        return [f"{child.pid} {child.name()}" for child in alive if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]

    def kill_everything(self) -> None:
        for stream in self.streams:
            stream.close()
        for child in self.children:
            if child.is_running():
                child.kill()
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node with two workers, configured and not started."""
    under_test = Node(tmp_path)
    under_test.configure()
    try:
        yield under_test
    finally:
        under_test.kill_everything()
