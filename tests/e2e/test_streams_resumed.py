"""Heartbeats and resumable streams as clients meet them: official SDKs, a strict parser, several workers (case S7)."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator

import httpx
import openai
import pytest

from tidegate.domain.units import Secret
from tidegate.testing import Endpoint, GatewayProcess, Script, ThreadedUpstream, end_after, stall_after

NODE = shutil.which("node")
NODE_FOLDER = pathlib.Path(__file__).parent / "node"
WORKERS = 3
CHAT: dict[str, object] = {"model": "slow", "messages": [{"role": "user", "content": "x"}], "stream": True}
IDLE = Script(pieces=("潮", "水 is ", "🌊"), per_token_s=0.35, comment="PROCESSING")
TEXT = "潮水 is 🌊"
ID = re.compile(r"^id: (?P<stream>[0-9]+\.[0-9a-f]{24})-(?P<number>[0-9]+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def slow_upstream() -> Iterator[ThreadedUpstream]:
    with ThreadedUpstream(models=("slow", "other")) as server:
        yield server


@pytest.fixture(scope="module")
def stopped(slow_upstream: ThreadedUpstream) -> GatewayProcess:
    """Three workers, and heartbeats after 100 ms, so that a second of silence is like half a minute."""
    configuration: dict[str, object] = {
        "server": {"workers": WORKERS, "drain_timeout_s": 1.0},
        "upstreams": {"slow": {"dialect": "openai", "base_url": slow_upstream.base_url, "models": ["slow", "other"]}},
        "streams": {"heartbeat_s": 0.1, "resume_window_s": 2.0},
    }
    return GatewayProcess(configuration)


@pytest.fixture(scope="module")
def keys(stopped: GatewayProcess) -> tuple[Secret, Secret]:
    """Made before the start, so that every worker knows them."""
    return stopped.create_key(name="mine"), stopped.create_key(name="others")


@pytest.fixture(scope="module")
def process(stopped: GatewayProcess, keys: tuple[Secret, Secret]) -> Iterator[GatewayProcess]:
    assert len(keys) == 2
    with stopped as running:
        yield running


@pytest.fixture
def slow(slow_upstream: ThreadedUpstream) -> ThreadedUpstream:
    slow_upstream.reset()
    return slow_upstream


@pytest.fixture
def mine(process: GatewayProcess, keys: tuple[Secret, Secret]) -> Endpoint:
    return process.endpoint(keys[0])


def begin(endpoint: Endpoint, *, events: int) -> tuple[str, str]:
    """Ask for a resumable stream, leave after so many events; give the text so far and the stream's id."""
    headers = {**endpoint.headers, "x-tidegate-resumable": "1"}
    text = ""
    with httpx.stream("POST", f"{endpoint.base_url}/chat/completions", json=CHAT, headers=headers, timeout=10.0) as answer:
        assert answer.status_code == 200
        for piece in answer.iter_text():
            text += piece
            if text.count("\n\n") >= events:
                break
    return text, answer.headers["x-tidegate-stream-id"]


def resume(endpoint: Endpoint, last_event_id: str) -> httpx.Response:
    """Come back on a new connection, which may reach any worker."""
    headers = {**endpoint.headers, "last-event-id": last_event_id}
    return httpx.post(f"{endpoint.base_url}/chat/completions", headers=headers, timeout=10.0)


def strictly_dispatched(text: str) -> list[str]:
    """Parse as a client does for which every blank line dispatches an event, empty or not."""
    events: list[str] = []
    fields: list[str] = []
    for line in re.split(r"\r\n|\r|\n", text):
        if line:
            fields.append(line)
            continue
        events.append("\n".join(field.removeprefix("data:").removeprefix(" ") for field in fields if field.startswith("data:")))
        fields = []
    return events[:-1] if text.endswith("\n") and not events[-1] and not fields else events


def said(events: list[str]) -> str:
    chunks = [json.loads(event) for event in events if event != "[DONE]"]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


@pytest.mark.parametrize("resumable", [False, True])
def test_a_strict_parser_reads_an_idle_stream(mine: Endpoint, slow: ThreadedUpstream, *, resumable: bool) -> None:
    """Each blank line ends an event with data, whatever heartbeats and ids stand between.

    So it is for resumable streams whatever the upstream sends; of others its own comment blocks pass byte for byte, so it sends none here.
    """
    slow.set_default(IDLE if resumable else Script(pieces=IDLE.pieces, per_token_s=IDLE.per_token_s))
    headers = {**mine.headers, **({"x-tidegate-resumable": "1"} if resumable else {})}
    answer = httpx.post(f"{mine.base_url}/chat/completions", json=CHAT, headers=headers, timeout=10.0)
    beats = re.findall(r"^: heartbeat ([0-9.]+) ([0-9]+)\n(?!\n)", answer.text, re.MULTILINE)
    assert len(beats) >= 5
    assert [number for _, number in beats] == [str(number) for number in range(1, len(beats) + 1)]
    assert all(float(earlier[0]) < float(later[0]) for earlier, later in itertools.pairwise(beats))
    events = strictly_dispatched(answer.text)
    assert "" not in events
    assert events[-1] == "[DONE]"
    assert said(events) == TEXT
    assert len(ID.findall(answer.text)) == (len(events) if resumable else 0)


@pytest.mark.parametrize("resumable", [False, True])
def test_openai_python_reads_an_idle_stream(
    mine: Endpoint, slow: ThreadedUpstream, sdk: Callable[[Endpoint], openai.OpenAI], *, resumable: bool
) -> None:
    """The official decoder gives the text and no empty event."""
    slow.set_default(IDLE if resumable else Script(pieces=IDLE.pieces, per_token_s=IDLE.per_token_s))
    extra = {"x-tidegate-resumable": "1"} if resumable else {}
    stream = sdk(mine).chat.completions.create(model="slow", messages=[{"role": "user", "content": "x"}], stream=True, extra_headers=extra)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == TEXT


@pytest.mark.skipif(NODE is None, reason="node is not installed; the suite for the openai npm package needs it")
@pytest.mark.skipif(not (NODE_FOLDER / "node_modules" / "openai").is_dir(), reason="run `npm ci` in tests/e2e/node first")
def test_openai_node_reads_an_idle_stream(mine: Endpoint, slow: ThreadedUpstream) -> None:
    """The official decoder for Node too, with ids and without."""
    slow.scripts["slow"] = IDLE
    slow.scripts["other"] = Script(pieces=IDLE.pieces, per_token_s=IDLE.per_token_s)
    environment = {"PATH": os.environ["PATH"], "TIDEGATE_BASE_URL": mine.base_url, "TIDEGATE_API_KEY": mine.api_key.reveal()}
    suite = subprocess.run(
        [NODE or "node", "--test", "--test-reporter=spec", "streams.test.mjs"],
        cwd=NODE_FOLDER,
        env={**environment, "TIDEGATE_TEXT": TEXT},
        capture_output=True,
        text=True,
        timeout=30.0,
        check=False,
    )
    assert suite.returncode == 0, suite.stdout[-4000:] + suite.stderr[-2000:]
    assert "pass 2\n" in suite.stdout, suite.stdout


def test_a_stream_goes_on_after_a_break(mine: Endpoint, slow: ThreadedUpstream) -> None:
    """What was read before the break and what came after it are one whole stream; the upstream was called once."""
    slow.set_default(Script(pieces=IDLE.pieces, per_token_s=0.2))
    before, stream_id = begin(mine, events=2)
    ids = [match["number"] for match in ID.finditer(before)]
    read = before[: before.rindex("\n\n") + 2]
    rest = resume(mine, f"{stream_id}-{ids[-1]}")
    assert rest.status_code == 200
    assert rest.headers["content-type"].startswith("text/event-stream")
    events = strictly_dispatched(read + rest.text)
    assert said(events) == TEXT
    assert events[-1] == "[DONE]"
    numbers = [int(match["number"]) for match in ID.finditer(read + rest.text)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert sum(request.method == "POST" for request in slow.requests) == 1


def test_a_client_may_return_to_any_worker(mine: Endpoint, slow: ThreadedUpstream) -> None:
    """Whichever worker a new connection reaches, the same bytes come, and what is wrong is said the same way."""
    slow.set_default(Script(pieces=("a", "b", "c")))
    _, stream_id = begin(mine, events=99)
    answers = [resume(mine, f"{stream_id}-2") for _ in range(4 * WORKERS)]
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.text for answer in answers}) == 1
    assert said(strictly_dispatched(answers[0].text)) == "bc"
    missing = [resume(mine, f"{stream_id}-99") for _ in range(2 * WORKERS)]
    assert {(answer.status_code, answer.json()["error"]["code"]) for answer in missing} == {(404, "stream_not_found")}


def test_only_the_key_that_began_it(process: GatewayProcess, keys: tuple[Secret, Secret], mine: Endpoint, slow: ThreadedUpstream) -> None:
    """Another good key is told that there is no such stream, a bad one that it is bad, by every worker."""
    slow.set_default(Script(pieces=("a", "b")))
    _, stream_id = begin(mine, events=99)
    for _ in range(2 * WORKERS):
        assert resume(process.endpoint(keys[1]), f"{stream_id}-1").status_code == 404
        assert resume(process.endpoint(Secret("tg-wrong")), f"{stream_id}-1").status_code == 401


def test_the_upstream_is_stopped_when_nobody_returns(mine: Endpoint, slow: ThreadedUpstream) -> None:
    """After the window, and not before it."""
    slow.set_default(Script(pieces=("a", "b"), fault=stall_after(2)))
    begin(mine, events=1)
    (request,) = [received for received in slow.requests if received.method == "POST"]
    slow.wait_for(lambda: request.client_left_at is not None, 5.0)
    assert request.client_left_after_s is not None
    assert request.client_left_after_s >= 1.9


def test_the_numbers_are_published(process: GatewayProcess, mine: Endpoint, slow: ThreadedUpstream) -> None:
    """Who came back, in vain or not, and how many heartbeats were sent."""
    slow.set_default(IDLE)
    _, stream_id = begin(mine, events=99)
    resume(mine, stream_id)
    resume(mine, f"{stream_id}-77")
    wanted = (
        'tidegate_stream_resumptions_total{result="resumed"}',
        'tidegate_stream_resumptions_total{result="missed"}',
        "tidegate_stream_heartbeats_total",
        "tidegate_resumable_streams",
    )
    process.wait_for_metrics(
        lambda page: all(re.search(rf"^{re.escape(name)} [1-9]", page, re.MULTILINE) for name in wanted), deadline_s=5.0
    )


def test_a_stream_that_breaks_upstream_says_so_after_the_return(mine: Endpoint, slow: ThreadedUpstream) -> None:
    """The error event is replayed, and no `[DONE]` is made up."""
    slow.set_default(Script(pieces=("a", "b"), fault=end_after(2)))
    _, stream_id = begin(mine, events=99)
    rest = resume(mine, f"{stream_id}-2").text
    assert "stream_interrupted" in rest
    assert "[DONE]" not in rest
