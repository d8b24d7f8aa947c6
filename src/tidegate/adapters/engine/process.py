"""The engine's child process: `python -m tidegate.adapters.engine.process`.

Reads one line of JSON settings from standard input, limits its own memory, loads the model, serves llama.cpp's HTTP API on a free
loopback port and prints one line of JSON: `{"address": "http://127.0.0.1:…"}`, or `{"fault": "…"}` before it exits with `EXIT_FAULT`.

Invariants: every request needs the key of this start (only `/health` and the model list answer without); the key comes by standard
input, never by a command line that other users can read; the process ends when standard input does; llama.cpp's log goes to one file
of bounded size, never to the terminal.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Protocol

import msgspec

from tidegate.adapters.engine import lifeline
from tidegate.adapters.engine.settings import EngineSettings, find_model
from tidegate.errors import ConfigurationError, TidegateError, UpstreamUnavailable

EXIT_FAULT = 3
MAX_LOG_BYTES = 4_194_304
"""Some 40,000 lines: more than anyone reads, and at most twice this is on the disk."""
LOG_CHECK_S = 5.0
MAX_SETTINGS_BYTES = 65_536
"""A few paths and numbers."""
MAX_PROMPT_CACHE_MIB = 512
"""llama.cpp keeps the KV of ended conversations in memory; its own default, 8 GiB, is our whole address space."""
BATCH_TOKENS = 512
"""Tokens decoded at once. Also the longest text that can be embedded (mean pooling needs it in one piece). Larger batches are no
faster on a CPU, keep running streams waiting longer, and 2,048 doubles the resident memory."""
LOG_ERRORS_ONLY = 1
"""llama.cpp's level 1; level 2 writes a line per request."""


class Launch(msgspec.Struct, frozen=True):
    """The line on standard input."""

    settings: EngineSettings
    api_key: str


class Launched(msgspec.Struct, frozen=True, omit_defaults=True):
    """The line on standard output: exactly one of the two is set."""

    address: str | None = None
    fault: str | None = None
    permanent: bool = False
    """Starting again cannot help before a person changes something."""


def main() -> int:
    lifeline.tie_to_parent()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    line = sys.stdin.buffer.readline(MAX_SETTINGS_BYTES)
    if not line:  # the parent left before it said anything
        return 0
    launch = msgspec.json.decode(line, type=Launch)
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    log = BoundedLog(launch.settings.log_path)
    try:
        log.begin()
        server = start_server(launch)
    except TidegateError as error:
        answer.write(msgspec.json.encode(Launched(fault=error.message, permanent=isinstance(error, ConfigurationError))) + b"\n")
        return EXIT_FAULT
    answer.write(msgspec.json.encode(Launched(address=server.listening_address)) + b"\n")
    answer.close()
    lifeline.wait_for_parent_to_leave(sys.stdin.fileno(), every_s=LOG_CHECK_S, tick=log.rotate_if_full)
    os._exit(0)  # llama.cpp's destructors wait for running requests; nobody does any more


def start_server(launch: Launch) -> Server:
    """Load the model under the memory limit and listen; raise `ConfigurationError` or `UpstreamUnavailable`."""
    settings = launch.settings
    model = find_model(settings)
    limit = settings.memory_limit_bytes
    _limit_memory(limit)
    try:
        return _serve(settings, model, launch.api_key)
    except ImportError as error:
        raise ConfigurationError(
            f"The package xllamacpp cannot be loaded ({error}). Reinstall it with `pip install --force-reinstall xllamacpp`; "
            f"if memory is named, raise local_engine.memory_limit_bytes (now {limit}).",
            param="local_engine.enabled",
        ) from error
    except (RuntimeError, MemoryError, OSError) as error:
        raise UpstreamUnavailable(
            f"llama.cpp could not load {model} with {settings.slots} slots of {settings.context_tokens} tokens in {limit} bytes of "
            f"address space ({error}). If the log names a context, a buffer or memory, raise local_engine.memory_limit_bytes "
            "or lower slots or context_tokens; otherwise the file is damaged or of an unknown kind: download it again.",
        ) from error


class Server(Protocol):
    """What is used of `xllamacpp.Server`; it serves as long as it is referenced."""

    listening_address: str


class BoundedLog:
    """Standard output and error as a file that is moved aside at start and when it is full."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self) -> None:
        """Keep the log of the previous start as `….1`, and send both streams to a fresh file."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._path.exists():
                self._path.replace(self._path.with_name(self._path.name + ".1"))
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigurationError(
                f"The engine's log {self._path} cannot be written ({error.strerror or error}). Make the state directory writable.",
                param="state_directory",
            ) from error
        for stream in (sys.stdout.fileno(), sys.stderr.fileno()):
            os.dup2(file, stream)
        os.close(file)

    def rotate_if_full(self) -> None:
        if os.fstat(sys.stderr.fileno()).st_size > MAX_LOG_BYTES:
            self.begin()


def _limit_memory(limit: int) -> None:
    _, ceiling = resource.getrlimit(resource.RLIMIT_AS)
    if ceiling != resource.RLIM_INFINITY:
        limit = min(limit, ceiling)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _serve(settings: EngineSettings, model: Path, api_key: str) -> Server:
    os.environ["GGML_NO_BACKTRACE"] = "1"  # its crash handler starts a debugger, which a memory limit defeats noisily
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model)
    parameters.model_alias = {settings.model_name}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.api_keys = [api_key]
    parameters.n_parallel = settings.slots
    parameters.n_ctx = settings.slots * settings.context_tokens
    threads = settings.threads or _cores()
    parameters.cpuparams.n_threads = threads
    parameters.cpuparams_batch.n_threads = threads
    parameters.n_batch = parameters.n_ubatch = BATCH_TOKENS
    parameters.embedding = True
    parameters.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    parameters.cache_ram_mib = min(MAX_PROMPT_CACHE_MIB, settings.memory_limit_bytes // 8 // 1_048_576)
    parameters.use_jinja = True
    parameters.warmup = False  # the supervisor's first request is the warm-up, and is measured
    parameters.endpoint_metrics = True
    parameters.endpoint_slots = False  # it shows running prompts
    parameters.ui = False
    parameters.offline = True
    parameters.verbosity = LOG_ERRORS_ONLY
    server: Server = xllamacpp.Server(parameters)
    return server


if __name__ == "__main__":
    sys.exit(main())
