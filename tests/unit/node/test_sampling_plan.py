"""What a node samples, out of its configuration and the state of its engine."""

from __future__ import annotations

import importlib.util
import shutil

import pytest

from tidegate.adapters.engine.settings import EnginePhase, EngineState
from tidegate.adapters.samplers.plan import (
    DcgmSource,
    DmonSource,
    NvmlSource,
    ProcessSource,
    SamplingPlan,
    ServerSource,
    Source,
    TritonSource,
)
from tidegate.analytics.exposition import ServerKind
from tidegate.config.load import Loaded, load_text
from tidegate.domain.units import Secret
from tidegate.node.sampling_plan import sampling_plan

UPSTREAMS = """\
upstreams:
  gpu:
    dialect: vllm
    base_url: http://10.0.0.1:8000/v1
    api_key: k
    replicas: [{base_url: 'http://127.0.0.1:8000/serve/v1'}]
  cpp: {dialect: llamacpp, base_url: 'http://10.0.0.3:8080'}
  far: {dialect: openai, base_url: 'https://api.example.com/v1'}
"""
KEY = ((b"authorization", b"Bearer k"),)


def plan(settings: str, engine: EngineState | None = None) -> SamplingPlan:
    loaded = load_text(UPSTREAMS + settings, {})
    assert isinstance(loaded, Loaded), loaded
    return sampling_plan(loaded.configuration, engine)


def test_every_vllm_is_asked_beside_its_base_url() -> None:
    """With the key that it is called with; GPUs of this machine are of the one replica that runs here."""
    servers = [each for each in plan("").sources if isinstance(each, ServerSource)]
    assert [
        ServerSource(ServerKind.VLLM, "gpu/0", "http://10.0.0.1:8000/metrics", KEY),
        ServerSource(ServerKind.VLLM, "gpu/1", "http://127.0.0.1:8000/serve/metrics", KEY),
    ] == servers
    assert "gpu/1" == plan("").gpus_otherwise


def test_what_is_named_is_sampled() -> None:
    """And nothing besides."""
    settings = (
        "sampling: {gpu: 'off', scrape: [cpp], dcgm: ['http://h:9400/metrics'], triton: [{path: t, replica: far/0}], "
        "every_s: 2s, gpus: {GPU-1: gpu/0}}\n"
    )
    sources = (
        DcgmSource("http://h:9400/metrics"),
        ServerSource(ServerKind.LLAMACPP, "cpp/0", "http://10.0.0.3:8080/metrics"),
        TritonSource("t", "far/0"),
    )
    assert SamplingPlan(2.0, {"GPU-1": "gpu/0"}, "", sources) == plan(settings)
    assert SamplingPlan() == plan("sampling: {enabled: false}\n")


def test_the_engine_is_sampled_as_it_runs_now() -> None:
    """Its process as soon as there is one, its page as soon as it listens."""
    off = "sampling: {gpu: 'off', scrape: []}\n"
    starting = EngineState(phase=EnginePhase.STARTING, pid=7)
    ready = EngineState(phase=EnginePhase.READY, pid=7, base_url="http://127.0.0.1:999/v1", api_key=Secret("k"))
    page = ServerSource(ServerKind.LLAMACPP, "local/0", "http://127.0.0.1:999/metrics", KEY)
    assert () == plan(off).sources == plan(off, EngineState(phase=EnginePhase.STOPPED)).sources
    assert (ProcessSource(7, "local/0"),) == plan(off, starting).sources
    assert (ProcessSource(7, "local/0"), page) == plan(off, ready).sources
    assert () == plan(off.replace("}", ", local_engine: false}"), ready).sources


@pytest.mark.parametrize(
    ("gpu", "has_package", "has_command", "expected"),
    [
        ("auto", True, True, [NvmlSource(is_expected=False)]),
        ("auto", False, True, [DmonSource(None, is_expected=False)]),
        ("auto", False, False, []),
        ("nvml", False, False, [NvmlSource(is_expected=True)]),
        ("dmon, dmon_file: d", True, True, [DmonSource("d", is_expected=True)]),
        ("'off'", True, True, []),
    ],
)
def test_gpus_are_asked_as_it_can_be_done(
    gpu: str, has_package: bool, has_command: bool, expected: list[Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the driver first."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object() if has_package else None)
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/x" if has_command else None)
    assert tuple(expected) == plan(f"sampling: {{gpu: {gpu}, scrape: []}}\n").sources
