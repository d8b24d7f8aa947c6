"""`tidegate up` as a person meets it: one command, and what it prints works when pasted."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tidegate.cli.banner import ANY_MODEL, curl_snippet, example_model, model_words, own_command, python_snippet
from tidegate.config.environment import with_environment
from tidegate.config.schema import Configuration, DialectName, LocalEngineSection, UpstreamSection
from tidegate.config.schema_routing import RouteSection, TargetSection
from tidegate.testing import ThreadedUpstream

DEADLINE_S = 30.0


class Up:
    """A running `tidegate up` in a directory, and what it printed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.output = directory / "output"
        self.log = directory / "log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Start, and wait until it says how to stop it; give what it printed."""
        with self.output.open("wb") as output, self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tidegate.cli.main", "up", "--port", "0", "--admin-port", "0"],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                env={name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")},
            )
        deadline = time.monotonic() + DEADLINE_S
        while "Ctrl-C" not in self.output.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)
        return self.output.read_text()

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(DEADLINE_S)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """`tidegate up` before a scripted upstream, without the local engine."""
    with ThreadedUpstream(models=("scripted",), api_key="sk-upstream-canary") as upstream:
        configuration = {
            "local_engine": {"enabled": False},
            "upstreams": {
                "there": {"dialect": "vllm", "base_url": upstream.base_url, "api_key": "sk-upstream-canary", "models": ["scripted"]},
            },
        }
        (tmp_path / "tidegate.yaml").write_text(json.dumps(configuration))
        under_test = Up(tmp_path)
        try:
            yield under_test
        finally:
            if under_test.process is not None and under_test.process.poll() is None:
                under_test.process.kill()
                under_test.process.wait()


def test_what_is_printed_works_when_pasted(up: Up) -> None:
    """The curl line streams an answer to its `[DONE]`, the Python program prints text, and Ctrl-C ends with 0."""
    printed = up.start()
    curl = printed[printed.index("curl -N") :].partition("\n\n")[0]
    assert _run_curl(curl).rstrip().endswith("data: [DONE]")
    program = printed[printed.index("from openai") : printed.index("Ctrl-C")]
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    assert up.stop() == 0
    assert "request.finished" in up.log.read_text()
    assert "sk-upstream-canary" not in up.log.read_text()


def test_the_second_start_shows_the_same_key(up: Up) -> None:
    """A key pasted into an application's settings works tomorrow too; the state directory is its owner's."""
    first = re.search(r"tg-\S+", up.start())
    assert up.stop() == 0
    second = re.search(r"tg-\S+", up.start())
    assert up.stop() == 0
    assert first is not None
    assert second is not None
    assert first[0] == second[0]
    assert (up.directory / ".tidegate").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("model", ["plain", 'it\'s "quoted" $(id) `id` \\ 模型'])
def test_snippets_survive_the_shell_and_the_interpreter(model: str) -> None:
    """A model name with quotes is data in both."""
    words = shlex.split(curl_snippet("http://127.0.0.1:1", "tg-key", model).replace("\\\n", " "))
    assert json.loads(words[words.index("-d") + 1])["model"] == model
    compile(python_snippet("http://127.0.0.1:1", "tg-key", model), "pasted", "exec")
    assert repr(model) in python_snippet("http://127.0.0.1:1", "tg-key", model)


def _routes(*routes: tuple[str, tuple[TargetSection, ...]]) -> tuple[RouteSection, ...]:
    return tuple(RouteSection(model=model, targets=targets) for model, targets in routes)


def test_the_model_shown_is_one_that_answers() -> None:
    """The local model when a route leads to it, else a name that the configuration gives and routes, never a pattern."""
    off = LocalEngineSection(enabled=False)
    upstreams = {"u": UpstreamSection(dialect=DialectName.VLLM, base_url="http://127.0.0.1:1/v1", models=("other", "qwen-served"))}
    there, local = TargetSection(upstream="u"), TargetSection(upstream="local")

    def shown(**settings: Any) -> tuple[str, str]:
        configuration = with_environment(Configuration(**settings), {})
        model = example_model(configuration)
        return model, model_words(model, configuration)

    assert shown() == ("smollm2-135m-instruct", "")
    assert shown(upstreams=upstreams) == ("smollm2-135m-instruct", "")
    assert shown(local_engine=off, routes=_routes(("q*", (there,))), upstreams=upstreams) == ("qwen-served", "")
    assert shown(local_engine=off) == (ANY_MODEL, "  (no route serves any)")
    assert shown(local_engine=off, routes=_routes(("z*", (there,)))) == (ANY_MODEL, "  (write a name that a route serves: z*)")
    named, words = shown(routes=_routes(("q*", (there, local))), upstreams=upstreams)
    assert named == "qwen-served"
    assert "of u; the local smollm2-135m-instruct answers when nobody before it" in words
    named, words = shown(routes=_routes(("q*", (there,)), ("z*", (TargetSection(upstream="u", model="qwen-big"),))), upstreams=upstreams)
    assert named == "qwen-served"
    assert "no route leads to the local smollm2-135m-instruct" in words
    assert shown(routes=_routes(("other", (there,)), ("q*", (there, local))), upstreams=upstreams)[0] == "qwen-served"


def test_the_command_printed_can_be_pasted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With its path where the shell does not find it; by its name alone where it does, and where it was not started by a name at all."""
    program = tmp_path / "bin" / "tidegate"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(program), "up"])
    assert own_command() == str(program)
    monkeypatch.setenv("PATH", str(program.parent))
    assert own_command() == "tidegate"
    monkeypatch.setattr(sys, "argv", ["/somewhere/main.py"])
    assert own_command() == "tidegate"


def _run_curl(command: str) -> str:
    """Run the line in a shell; where there is no curl, send what it would send."""
    if shutil.which("curl") is not None:
        return subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=DEADLINE_S, check=True).stdout
    words = shlex.split(command.replace("\\\n", " "))
    headers = dict(word.split(": ", 1) for flag, word in pairwise(words) if flag == "-H")
    request = urllib.request.Request(words[2], data=words[words.index("-d") + 1].encode(), headers=headers)  # noqa: S310  loopback
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:  # noqa: S310  loopback
        text: str = answer.read().decode()
        return text


def test_a_reader_that_goes_does_not_end_what_it_read_of(tmp_path: Path) -> None:
    """`tidegate up | head -1`: the banner is for a person, the gateway for everybody."""
    program = (
        "import sys, time\n"
        "from tidegate.cli.banner import PatientConsole\n"
        "console = PatientConsole()\n"
        "sys.stdin.readline()\n"
        "console.print('one'); console.print('two')\n"
        "sys.stderr.write('still here')\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait(DEADLINE_S) == 0
    assert said == b"still here"
