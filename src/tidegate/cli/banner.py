"""What `tidegate up` tells a person on standard output: where it listens, what to paste, how to stop.

The snippets are printed as plain text, never wrapped, so that they work when pasted.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
from rich.console import Console
from rich.text import Text

from tidegate.adapters.engine.settings import EnginePhase, EngineState
from tidegate.config.environment import LOCAL, is_pattern
from tidegate.config.schema import Configuration
from tidegate.domain.units import Secret
from tidegate.node.state_directory import Endpoints

COMMAND = "tidegate"
ANY_MODEL = "MODEL"
"""Shown where the configuration names no model; the person knows one."""


def example_model(configuration: Configuration) -> str:
    """Choose a model for the snippets that a route serves, and rather one that the local model stands behind, since it surely answers."""
    engine = configuration.local_engine
    named = [engine.model_name] if engine.enabled else []
    named += [route.model for route in configuration.routes]
    named += [model for upstream in configuration.upstreams.values() for model in upstream.models]
    named += [target.model for route in configuration.routes for target in route.targets if target.model is not None]
    served = [name for name in named if not is_pattern(name) and _upstreams_of(name, configuration)]
    return next((name for name in served if LOCAL in _upstreams_of(name, configuration)), served[0] if served else ANY_MODEL)


def _upstreams_of(model: str, configuration: Configuration) -> tuple[str, ...]:
    """Name the upstreams of the route that serves a model, in their order; none when no route does."""
    route = next((route for route in configuration.routes if fnmatchcase(model, route.model)), None)
    return () if route is None else tuple(target.upstream for target in route.targets)


def model_words(model: str, configuration: Configuration) -> str:
    """Say what a reader should know of the model in the snippets, if it is not simply the local one."""
    upstreams = _upstreams_of(model, configuration)
    if not upstreams:
        patterns = ", ".join(route.model for route in configuration.routes)
        return f"  (write a name that a route serves: {patterns})" if patterns else "  (no route serves any)"
    if not configuration.local_engine.enabled or upstreams[0] == LOCAL:
        return ""
    local = configuration.local_engine.model_name
    if LOCAL in upstreams:
        return f"  (of {upstreams[0]}; the local {local} answers when nobody before it in the route does)"
    return f"  (of {upstreams[0]}; no route leads to the local {local})"


def own_command() -> str:
    """Give this program's name as it can be pasted into the same shell: with its path where the shell would not find it."""
    started = Path(sys.argv[0])
    if started.name != COMMAND:
        return COMMAND
    found = shutil.which(COMMAND)
    return COMMAND if found is not None and Path(found).resolve() == started.resolve() else shlex.quote(str(started))


def curl_snippet(api: str, key: str, model: str) -> str:
    """Give a command line that streams a chat completion."""
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "Say hello in one sentence."}]}
    return (
        f"curl -N {shlex.quote(f'{api}/v1/chat/completions')} \\\n"
        f"  -H {shlex.quote(f'Authorization: Bearer {key}')} \\\n"
        f"  -H 'Content-Type: application/json' \\\n"
        f"  -d {shlex.quote(msgspec.json.encode(body).decode())}"
    )


def python_snippet(api: str, key: str, model: str) -> str:
    """Give a program that does the same with the `openai` package."""
    return (
        "from openai import OpenAI\n"
        "\n"
        f"client = OpenAI(base_url={f'{api}/v1'!r}, api_key={key!r})\n"
        f"stream = client.chat.completions.create(model={model!r}, stream=True,\n"
        "    messages=[{'role': 'user', 'content': 'Say hello in one sentence.'}])\n"
        "for chunk in stream:\n"
        "    print(chunk.choices[0].delta.content or '' if chunk.choices else '', end='', flush=True)"
    )


class PatientConsole(Console):
    """A console whose reader may go: what is printed for a person must not end the gateway that others use."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that later flushes do not complain


class Banner:
    """Collects what there is to tell, and tells it once: when the API listens and the local model is ready, failed or not wanted."""

    def __init__(self, console: Console, configuration: Configuration, key: Secret, *, key_file: Path, version: str) -> None:
        self._console = console
        self._configuration = configuration
        self._key = key
        self._key_file = key_file
        self._version = version
        self._endpoints: Endpoints | None = None
        self._engine: EngineState | None = None
        self._told = False
        self._last_error: str | None = None

    def listening(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints
        if self._configuration.local_engine.enabled and not self._engine_settled():
            self._line(f"Tidegate {self._version} listens on {endpoints.api}; the local model is loading …")
        self._tell_when_complete()

    def engine_changed(self, state: EngineState) -> None:
        self._engine = state
        if state.phase is EnginePhase.FAILED and state.last_error is not None and state.last_error != self._last_error:
            self._last_error = state.last_error
            self._line(f"The local model does not run: {state.last_error}", style="bold red")
        self._tell_when_complete()

    def _engine_settled(self) -> bool:
        return self._engine is not None and self._engine.phase in {EnginePhase.READY, EnginePhase.FAILED}

    def _tell_when_complete(self) -> None:
        endpoints = self._endpoints
        if self._told or endpoints is None or (self._configuration.local_engine.enabled and not self._engine_settled()):
            return
        self._told = True
        model = example_model(self._configuration)
        records = self._configuration.records.directory or f"{self._configuration.state_directory}/records"
        self._line("")
        self._line(f"Tidegate {self._version} is ready", style="bold green")
        for name, value in (
            ("API", f"{endpoints.api}/v1"),
            ("console", f"{endpoints.admin}  (sign in with a key of: {own_command()} keys create --admin --name you)"),
            ("admin", f"{endpoints.admin}  (/readyz, /metrics, /admin/keys)"),
            ("key", f"{self._key.reveal()}  (kept in {self._key_file})"),
            ("model", f"{model}{model_words(model, self._configuration) or self._engine_words()}"),
            ("records", f"{records}/requests-*.jsonl; one log line per request on standard error"),
        ):
            self._line(f"  {name:<8} {value}")
        self._snippet("Try it:", curl_snippet(endpoints.api, self._key.reveal(), model))
        self._snippet("Or with the openai package (`pip install openai`):", python_snippet(endpoints.api, self._key.reveal(), model))
        self._line("Ctrl-C stops everything.\n", style="bold")

    def _engine_words(self) -> str:
        engine = self._engine
        if engine is None or engine.cold_ttft_s is None or engine.warm_ttft_s is None:
            return ""
        return f"  (local; first token after {engine.cold_ttft_s:.2f} s cold, {engine.warm_ttft_s:.2f} s warm)"

    def _snippet(self, title: str, text: str) -> None:
        self._line(f"\n{title}\n", style="bold")
        self._line(f"{text}\n")

    def _line(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style), soft_wrap=True)
