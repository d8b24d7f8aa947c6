"""Turns the configuration's `local_engine` section into what the engine is started with."""

from __future__ import annotations

from tidegate.adapters.engine.settings import EngineSettings
from tidegate.config.schema import Configuration


def engine_settings(configuration: Configuration) -> EngineSettings:
    section = configuration.local_engine
    return EngineSettings(
        state_directory=configuration.state_directory,
        model_path=section.model_path,
        model_name=section.model_name,
        slots=section.slots,
        context_tokens=section.context_tokens,
        threads=section.threads,
        memory_limit_bytes=section.memory_limit_bytes,
    )
