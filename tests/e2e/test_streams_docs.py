"""The examples of docs/streams.md run as they are pasted, through a connection that breaks on the way."""

from __future__ import annotations

import os
import re
import selectors
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tidegate.testing import GatewayProcess, Script, ThreadedUpstream

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "streams.md").read_text(encoding="utf-8")
WORDS = ("one ", "two ", "three ", "four")


def examples(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


class BreakingLine:
    """A TCP relay on a free port that breaks its first connection once it has carried `after` of the answer; the others live."""

    def __init__(self, target: int, *, after: bytes) -> None:
        self._target = ("127.0.0.1", target)
        self._after = after
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.connections = 0
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5.0)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._carry, args=(client, self.connections == 1), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _carry(self, client: socket.socket, breaks: bool) -> None:
        """Both ways until either side ends: a request may come in any number of pieces."""
        carried = b""
        with (
            suppress(OSError),
            client,
            socket.create_connection(self._target, timeout=10.0) as server,
            selectors.DefaultSelector() as sides,  # not `select`, which knows no descriptor above 1,023
        ):
            sides.register(client, selectors.EVENT_READ)
            sides.register(server, selectors.EVENT_READ)
            while True:
                ready = sides.select(20.0)
                if not ready:
                    return
                for key, _ in ready:
                    from_client = key.fileobj is client
                    piece = (client if from_client else server).recv(65536)
                    if not piece:
                        return
                    if from_client:
                        server.sendall(piece)
                        continue
                    carried += piece
                    client.sendall(piece)
                    if breaks and self._after in carried:
                        return


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[BreakingLine]:
    """The way to a gateway of two workers, over a line that breaks after the second word."""
    with ThreadedUpstream(models=("m",)) as upstream:
        upstream.set_default(Script(pieces=WORDS, per_token_s=0.1))
        there = {"dialect": "openai", "base_url": upstream.base_url, "models": ["m"]}
        process = GatewayProcess({"server": {"workers": 2}, "upstreams": {"there": there}})
        monkeypatch.setenv("TIDEGATE_KEY", process.create_key().reveal())  # before the start, so that every worker knows it
        with process as gateway:
            breaking = BreakingLine(int(gateway.api_url.rpartition(":")[2]), after=b'"two ')
            try:
                yield breaking
            finally:
                breaking.close()


def environment(line: BreakingLine) -> dict[str, str]:
    wanted = {"TIDEGATE_URL": f"http://127.0.0.1:{line.port}/v1", "TIDEGATE_MODEL": "m"}
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")} | wanted


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_examples(line: BreakingLine, tmp_path: Path) -> None:
    """The second call brings exactly what the first one lacks."""
    first, second = examples("bash")
    broken = subprocess.run(["bash", "-c", first], cwd=tmp_path, env=environment(line), check=False, timeout=20.0)
    assert broken.returncode != 0, "the line broke"
    subprocess.run(["bash", "-c", second], cwd=tmp_path, env=environment(line), check=True, timeout=20.0)
    head, rest = ((tmp_path / name).read_text() for name in ("first.txt", "rest.txt"))
    whole = head[: head.rindex("\n\n") + 2] + rest
    numbers = [int(number) for number in re.findall(r"^id: .*-(\d+)$", whole, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert "".join(re.findall(r'"content":"([^"]+)"', whole)) == "".join(WORDS)
    assert whole.endswith("data: [DONE]\n\n")
    assert "x-tidegate-stream-id" in (tmp_path / "head.txt").read_text()


def test_the_python_example(line: BreakingLine) -> None:
    """The program prints the whole text, and has called twice for it."""
    (program,) = examples("python")
    ran = subprocess.run([sys.executable, "-c", program], env=environment(line), capture_output=True, text=True, check=False, timeout=20.0)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "".join(WORDS) + "\n"
    assert line.connections == 2
