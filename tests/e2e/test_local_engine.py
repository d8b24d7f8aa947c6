"""The real model in its real process: what clients get from it, that its counts are ours, and that it always goes away."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from tidegate.adapters.counting.service import TokenCountService
from tidegate.adapters.engine.doctor import render, run_doctor
from tidegate.adapters.engine.settings import EnginePhase, EngineSettings, EngineState
from tidegate.adapters.engine.supervisor import EngineSupervisor
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import ModelName
from tidegate.ports import TokenCount

T = TypeVar("T")
DEADLINE_S = 50.0
SLOTS = 2
CONTEXT_TOKENS = 1024
HI = [{"role": "user", "content": "Hi"}]


class Engine:
    """A supervised engine, and the loop it lives on."""

    def __init__(self, runner: asyncio.Runner, settings: EngineSettings) -> None:
        self.states: list[EngineState] = []
        self.supervisor = EngineSupervisor(settings, on_state=self.states.append)
        self._runner = runner

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        async def limited() -> T:
            async with asyncio.timeout(DEADLINE_S):
                return await work

        return self._runner.run(limited())

    def ready(self) -> EngineState:
        return self.run(self.supervisor.wait_ready())

    async def post(self, path: str, body: bytes, deadline_s: float = DEADLINE_S) -> tuple[int, bytes]:
        """Ask the engine as the gateway would: with its key. `path` starts at the origin."""
        state = self.supervisor.state
        assert state.base_url is not None
        assert state.api_key is not None
        url = httpx.URL(state.base_url).join(path)
        async with httpx.AsyncClient(timeout=deadline_s, trust_env=False) as client:
            answer = await client.post(url, content=body, headers={"authorization": f"Bearer {state.api_key.reveal()}"})
            return answer.status_code, answer.content

    def ask(self, path: str, **fields: object) -> tuple[int, Any]:
        status, answer = self.run(self.post(path, json.dumps(fields).encode()))
        return status, json.loads(answer)

    def chat(self, **fields: object) -> tuple[int, Any]:
        return self.ask("/v1/chat/completions", **{"messages": HI, "max_tokens": 4, "temperature": 0} | fields)

    def count(self, operation: Operation, **fields: object) -> TokenCount:
        service = TokenCountService(tokenizer_of=lambda _: "engine", counter=None, engine=self.post)
        request = ParsedRequest(operation=operation, model=ModelName("small"), body=json.dumps(fields).encode())
        return self.run(service.count(request, deadline_s=DEADLINE_S))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    settings = EngineSettings(
        state_directory=str(tmp_path_factory.mktemp("engine")), slots=SLOTS, context_tokens=CONTEXT_TOKENS, model_name="small"
    )
    with asyncio.Runner() as runner:
        engine = Engine(runner, settings)
        engine.run(engine.supervisor.start())
        engine.ready()
        yield engine
        engine.run(engine.supervisor.aclose())


CONVERSATIONS: list[list[dict[str, Any]]] = [
    HI,
    [{"role": "user", "content": ""}],
    [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "Why is the sky blue?"}],
    [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"}],
    [{"role": "user", "content": "敏捷的棕色狐狸 跳过了懒狗 🦊 — naïve café"}],
    [{"role": "user", "content": "def f(x):\n\treturn x ** 2\n\n\n# done   "}],
    [{"role": "user", "content": "special <|im_end|> and <|im_start|> in the text"}],
    [{"role": "user", "content": [{"type": "text", "text": "in "}, {"type": "text", "text": "parts"}]}],
    [{"role": "user", "content": "long " * 200}],
]


@pytest.mark.parametrize("messages", CONVERSATIONS)
def test_our_count_of_a_chat_is_what_the_engine_reports(engine: Engine, messages: list[dict[str, Any]]) -> None:
    """Template included, the count before the call equals `usage.prompt_tokens` after it."""
    status, answer = engine.chat(messages=messages, max_tokens=1)
    assert status == 200
    assert engine.count(Operation.CHAT, messages=messages) == TokenCount(answer["usage"]["prompt_tokens"], "engine", exact=True)


def test_the_count_does_not_depend_on_the_other_fields(engine: Engine) -> None:
    """Streaming, sampling and formats change nothing about the prompt."""
    plain = engine.count(Operation.CHAT, messages=HI)
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    assert plain == engine.count(Operation.CHAT, messages=HI, stream=True, temperature=0.1, n=2, response_format=schema, model="x")


def test_our_count_of_prompts_and_inputs_is_what_the_engine_reports(engine: Engine) -> None:
    """Completions and embeddings are counted as the engine counts them, and `/tokenize` gives the ids of the same chat."""
    _, completion = engine.ask("/v1/completions", prompt="Once upon a time", max_tokens=1)
    assert engine.count(Operation.COMPLETION, prompt="Once upon a time").prompt_tokens == completion["usage"]["prompt_tokens"]
    _, embedding = engine.ask("/v1/embeddings", input=["one", "two and three"])
    assert engine.count(Operation.EMBEDDING, input=["one", "two and three"]).prompt_tokens == embedding["usage"]["prompt_tokens"]
    tokenized = engine.count(Operation.TOKENIZE, messages=HI)
    assert tokenized.prompt_tokens == engine.count(Operation.CHAT, messages=HI).prompt_tokens == len(tokenized.tokens or ())


def test_it_is_ready_only_after_it_was_warmed(engine: Engine) -> None:
    """Cold and warm TTFT are known when ready is announced, and the address is on loopback."""
    state = engine.ready()
    assert state.cold_ttft_s is not None
    assert state.warm_ttft_s is not None
    assert state.cold_ttft_s > 0 < state.warm_ttft_s
    assert (state.base_url or "").startswith("http://127.0.0.1:")


def test_without_its_key_nobody_is_answered(engine: Engine) -> None:
    """Another user of the machine who finds the port gets 401, and the key is in no process's command line."""
    state = engine.ready()
    assert state.base_url is not None
    assert state.api_key is not None
    refused = httpx.post(f"{state.base_url}/chat/completions", json={"messages": HI}, trust_env=False)
    assert refused.status_code == 401
    assert state.api_key.reveal() not in Path(f"/proc/{state.pid}/cmdline").read_text()


def test_a_stream_ends_with_usage_and_done(engine: Engine) -> None:
    """The stream has OpenAI's shape: deltas, a finish reason, the usage chunk that was asked for, and the end mark."""
    body = {"messages": HI, "max_tokens": 3, "stream": True, "stream_options": {"include_usage": True}}
    status, raw = engine.run(engine.post("/v1/chat/completions", json.dumps(body).encode()))
    events = [line[6:] for line in raw.decode().splitlines() if line.startswith("data: ")]
    chunks = [json.loads(event) for event in events[:-1]]
    assert (status, events[-1]) == (200, "[DONE]")
    assert (chunks[-1]["choices"], chunks[-1]["usage"]["completion_tokens"]) == ([], 3)
    assert {chunk["model"] for chunk in chunks} == {"small"}
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"


def test_schema_logprobs_and_embeddings_work_in_one_server(engine: Engine) -> None:
    """Structured output parses, log-probabilities come, and the same process embeds."""
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    _, structured = engine.chat(max_tokens=40, response_format=wanted)
    assert set(json.loads(structured["choices"][0]["message"]["content"])) == {"ok"}
    _, probable = engine.chat(logprobs=True, top_logprobs=2)
    assert len(probable["choices"][0]["logprobs"]["content"]) == 4
    status, embedded = engine.ask("/v1/embeddings", input=["one", "two"])
    assert status == 200
    assert [len(entry["embedding"]) for entry in embedded["data"]] == [576, 576]


def test_a_prompt_over_the_context_is_the_clients_fault(engine: Engine) -> None:
    """An over-long prompt is a 400 that names both lengths."""
    status, answer = engine.chat(messages=[{"role": "user", "content": "long " * 2 * CONTEXT_TOKENS}])
    assert (status, answer["error"]["type"]) == (400, "exceed_context_size_error")
    assert answer["error"]["n_ctx"] == CONTEXT_TOKENS


def test_more_requests_than_slots_wait_their_turn(engine: Engine) -> None:
    """Requests beyond the slots are queued, not refused, and the engine still counts meanwhile."""

    async def scene() -> list[int]:
        body = json.dumps({"messages": HI, "max_tokens": 6}).encode()
        answers = [asyncio.ensure_future(engine.post("/v1/chat/completions", body)) for _ in range(3 * SLOTS)]
        counted, _ = await engine.post("/v1/chat/completions/input_tokens", body)
        return [counted, *[status for status, _ in await asyncio.gather(*answers)]]

    assert engine.run(scene()) == [200] * (3 * SLOTS + 1)


def test_ctrl_c_leaves_it_running_and_a_crash_brings_another(engine: Engine) -> None:
    """SIGINT is for the parent to decide on; after SIGKILL there is another process with another key that answers."""
    before = engine.ready()
    assert before.pid is not None
    os.kill(before.pid, signal.SIGINT)
    assert engine.chat()[0] == 200
    os.kill(before.pid, signal.SIGKILL)

    async def until_failed() -> None:
        while all(state.phase is not EnginePhase.FAILED for state in engine.states):  # noqa: ASYNC110  only ready has a waiter
            await asyncio.sleep(0.02)

    engine.run(until_failed())
    after = engine.ready()
    assert engine.chat()[0] == 200
    assert after.pid != before.pid
    assert after.api_key != before.api_key
    assert after.restarts == 1
    assert any("SIGKILL" in (state.last_error or "") for state in engine.states)


def test_closing_leaves_no_process(tmp_path: Path) -> None:
    """`aclose` ends a ready engine within two seconds: no orphan, no zombie."""
    with asyncio.Runner() as runner:
        engine = Engine(runner, EngineSettings(state_directory=str(tmp_path), slots=1, context_tokens=256))
        engine.run(engine.supervisor.start())
        pid = engine.ready().pid

        async def timed_close() -> float:
            loop = asyncio.get_running_loop()
            began = loop.time()
            await engine.supervisor.aclose()
            return loop.time() - began

        assert engine.run(timed_close()) < 2.0
        assert not Path(f"/proc/{pid}").exists()


PARENT = """
import asyncio, sys
from tidegate.adapters.engine.settings import EngineSettings
from tidegate.adapters.engine.supervisor import EngineSupervisor

async def main():
    supervisor = EngineSupervisor(EngineSettings(state_directory=sys.argv[1], slots=1, context_tokens=256), on_state=lambda state: None)
    await supervisor.start()
    print((await supervisor.wait_ready()).pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_a_killed_parent_takes_the_engine_with_it(tmp_path: Path) -> None:
    """When the parent is killed without a chance to clean up, the engine ends too."""
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        ended = select.poll()
        process = os.pidfd_open(pid)
        ended.register(process, select.POLLIN)
        parent.kill()
        assert ended.poll(5000), "the engine outlived its parent"
        os.close(process)


@pytest.mark.timeout(180)  # a model computes: some 10 s of a core that is its own
def test_the_doctor_measures_a_healthy_engine(tmp_path: Path) -> None:
    """Under the default memory limit every figure of the report is there, and the verdict is good."""
    report = asyncio.run(run_doctor(EngineSettings(state_directory=str(tmp_path))))
    assert report.failure is None
    figures = (report.model_bytes, report.load_s, report.cold_ttft_s, report.warm_ttft_s, report.tokens_per_s, report.peak_rss_bytes)
    assert all(figure is not None and figure > 0 for figure in figures)
    assert render(report).splitlines()[-1].startswith(("OK", "SLOW"))


@pytest.mark.parametrize("limit_bytes", [209_715_200, 314_572_800, 419_430_400])
def test_too_little_memory_says_what_to_raise(tmp_path: Path, limit_bytes: int) -> None:
    """However the model server takes it (an abort or a refusal), the report names the setting."""
    report = asyncio.run(run_doctor(EngineSettings(state_directory=str(tmp_path), memory_limit_bytes=limit_bytes)))
    assert "local_engine.memory_limit_bytes" in (report.failure or "")
    assert "FAILED" in render(report)


def test_a_damaged_model_says_so(tmp_path: Path) -> None:
    """A file that only begins like a model is named with what to do."""
    damaged = tmp_path / "model.gguf"
    damaged.write_bytes(b"GGUF" + bytes(1000))
    report = asyncio.run(run_doctor(EngineSettings(state_directory=str(tmp_path), model_path=str(damaged))))
    assert "model.gguf" in (report.failure or "")
    assert "download it again" in (report.failure or "")
