"""`tidegate mock` as a process: what it prints, how it stops, and what it says of a script that is wrong."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tidegate.cli.main import main
from tidegate.config.prepare import prepare
from tidegate.testing import ScriptedUpstream

EVERYWHERE = "0.0.0.0"  # noqa: S104  nothing is opened


@contextmanager
def running(*options: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Start it on a free port; give the process, its address and what it printed."""
    command = [sys.executable, "-W", "error", "-m", "tidegate.cli.main", "mock", "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        lines: list[str] = []
        while not any("Ctrl-C" in line for line in lines):
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr is not None else ""
            lines.append(line)
        address = re.search(r"listens on (http://\S+)/v1", lines[0])
        assert address is not None
        yield process, address[1], "".join(lines)
    finally:
        process.kill()
        process.communicate(timeout=10)


def test_it_serves_reports_a_departure_and_stops_in_order(tmp_path: Path) -> None:
    """The script is followed, options win over it, the YAML it prints is accepted, Ctrl-C ends it with 0."""
    script = tmp_path / "mock.yaml"
    script.write_text("models: [from-file]\ndefault: {pieces: [scripted]}\nseed: 3\n")
    with running("--script", str(script), "--model", "m1", "--model", "m2", "--api-key", "sesame", "--seed", "9") as (process, url, banner):
        section = re.search(r"^upstreams:\n(?:  .*\n)+", banner, re.MULTILINE)
        assert section is not None
        file = tmp_path / "tidegate.yaml"
        file.write_text(section[0])
        prepared = prepare(file, {"MOCK_API_KEY": "sesame"}, file_exists=lambda _: True)
        assert prepared.problems == ()
        told = httpx.get(f"{url}/mock/script", timeout=5).json()
        assert (told["models"], told["seed"], told["default"]["pieces"]) == (["m1", "m2"], 9, ["scripted"])
        host, port = url.removeprefix("http://").split(":")
        body = b'{"model":"m1","messages":[{"role":"user","content":"[[mock:stall@1]]"}],"stream":true}'
        with socket.create_connection((host, int(port)), timeout=5) as client:
            head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sesame\r\n"
            client.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            assert client.recv(4096).startswith(b"HTTP/1.1 200")
        assert process.stdout is not None
        assert process.stdout.readline() == "\n"
        line = process.stdout.readline()
        assert re.fullmatch(
            r"client left  #1 POST /v1/chat/completions model=m1 script=stall@1  after 1 of 1 pieces, \d\.\d{3} s after the request\n", line
        )
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=10)
        assert (process.returncode, errors) == (0, "")
        assert output == "Stopped after 1 requests; 1 clients left early.\n"


def test_a_wrong_script_is_explained_and_nothing_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each mistake with file, line, key and the nearest name; exit status 2."""
    script = tmp_path / "mock.yaml"
    script.write_text("scripts:\n  a:\n    fault: stal@3\n")
    assert main(["mock", "--script", str(script)]) == 2
    told = capsys.readouterr().err
    assert f'{script}:3:5: no such fault: "stal@3" in scripts.a.fault (did you mean "stall"?)' in told


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_that_is_none_is_refused(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is opened."""
    assert main(["mock", "--port", str(port)]) == 2
    assert f"There is no port {port}. Choose one up to 65535" in capsys.readouterr().err


def test_a_script_that_is_not_there_and_a_port_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both say what to do, with exit status 2."""
    assert main(["mock", "--script", str(tmp_path / "none.yaml")]) == 2
    assert "cannot be read" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["mock", "--port", port]) == 2
    assert "Choose another with --port" in capsys.readouterr().err


def test_the_banner_names_an_address_that_clients_can_use() -> None:
    """Listening everywhere is reached on this machine."""
    assert ScriptedUpstream(host=EVERYWHERE, port=7).base_url == "http://127.0.0.1:7/v1"
    assert ScriptedUpstream(host="::", port=7).base_url == "http://[::1]:7/v1"
    assert ScriptedUpstream(host="::1", port=7).base_url == "http://[::1]:7/v1"
    assert ScriptedUpstream(host="10.0.0.1", port=7).base_url == "http://10.0.0.1:7/v1"
