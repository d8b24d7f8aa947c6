"""`tidegate mock`: run the scripted upstream, say how to reach it and what it can be told, and report clients that leave."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path

import msgspec
import uvloop

from tidegate.errors import ConfigurationError
from tidegate.mock import MockSettings, ReceivedRequest, ScriptedUpstream, describe, read_settings
from tidegate.node.exits import Exit

_MOST_FILE_BYTES = 16 * 1024 * 1024
"""A thousand scripts with long texts are a tenth of it."""
_LAST_PORT = 65_535
_KEEP_REQUESTS = 2_000
"""Shown by `/mock/requests`, bodies included: what a person looks at, and little for the collector to walk in a load test."""


def mock(
    *,
    host: str,
    port: int,
    script: Path | None,
    models: tuple[str, ...],
    api_key: str | None,
    seed: int | None,
    quiet: bool = False,
    open_control: bool = False,
) -> int:
    """Serve until SIGINT or SIGTERM."""
    if not 0 <= port <= _LAST_PORT:
        raise ConfigurationError(f"There is no port {port}. Choose one up to {_LAST_PORT} with --port, or 0 for a free one.")
    settings = _settings(script)
    if models:
        settings = msgspec.structs.replace(settings, models=models)
    if seed is not None:
        settings = msgspec.structs.replace(settings, seed=seed)
    upstream = ScriptedUpstream(
        settings=settings,
        api_key=api_key,
        host=host,
        port=port,
        keep_requests=_KEEP_REQUESTS,
        control="anyone" if open_control else "loopback",
        on_departure=None if quiet else _report,
    )
    return uvloop.run(_serve(upstream, port=port, keyed=settings.api_key is not None or api_key is not None))


async def _serve(upstream: ScriptedUpstream, *, port: int, keyed: bool) -> int:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    try:
        await upstream.accept()
    except OSError as error:
        reason = error.strerror or error
        raise ConfigurationError(
            f"The scripted upstream cannot listen on port {port}: {reason}. Choose another with --port, or 0 for a free one."
        ) from error
    async with upstream:
        print(banner(upstream, keyed=keyed), flush=True)
        await stopped.wait()
    print(f"Stopped after {upstream.requests_received} requests; {upstream.departures} clients left early.")
    return Exit.OK


def banner(upstream: ScriptedUpstream, *, keyed: bool = False) -> str:
    """Say where it is and what it can be told."""
    root = upstream.base_url.removesuffix("/v1")
    models = ", ".join(msgspec.json.encode(model).decode() for model in upstream.models)
    key = "\n    api_key: ${MOCK_API_KEY}" if keyed else ""
    return f"""\
The scripted upstream listens on {upstream.base_url}

For tidegate.yaml:

upstreams:
  mock:
    dialect: vllm
    base_url: {upstream.base_url}{key}
    models: [{models}]

Tell it what to do, per call, in the last user message or in the header x-script:

  [[mock:stall@3]]  [[mock:429]]  [[mock:content_filter]]  [[mock:reset_before_headers,ok]]  [[mock:{{"first_token_s":2}}]]

or while it runs: GET {root}/mock lists scripts, faults and control endpoints; GET {root}/mock/requests what clients did.
docs/mock.md explains all of it. Ctrl-C stops it.
"""


def _settings(script: Path | None) -> MockSettings:
    if script is None:
        return MockSettings()
    try:
        with script.open("rb") as file:
            content = file.read(_MOST_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"The script {script} cannot be read: {error.strerror}. Give the path of a YAML or JSON file.") from error
    if len(content) > _MOST_FILE_BYTES:
        raise ConfigurationError(f"The script {script} is larger than {_MOST_FILE_BYTES:,} bytes. Is this the right file?")
    settings = read_settings(content.decode("utf-8-sig", "replace"))
    if isinstance(settings, list):
        raise ConfigurationError(f"The script cannot be followed; docs/mock.md explains each key.\n{describe(settings, str(script))}")
    return settings


def _report(request: ReceivedRequest) -> None:
    with contextlib.suppress(BrokenPipeError):  # whoever read our lines has gone; the server goes on
        sys.stdout.write(f"{request.departure()}\n")
        sys.stdout.flush()
