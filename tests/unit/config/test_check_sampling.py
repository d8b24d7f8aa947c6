"""Checking what is sampled, and what `tidegate explain` says of it."""

from __future__ import annotations

import pytest

from tidegate.config.check import check
from tidegate.config.environment import with_environment
from tidegate.config.explain import explain
from tidegate.config.load import Loaded, load_text
from tidegate.config.problem import Severity
from tidegate.config.schema import Configuration

UPSTREAMS = """\
local_engine: {enabled: false}
upstreams:
  gpu: {dialect: vllm, base_url: 'http://10.0.0.1:8000/v1', models: [m], replicas: [{base_url: 'http://10.0.0.2:8000/v1'}]}
  far: {dialect: openai, base_url: 'https://api.example.com/v1', models: [n]}
"""


def loaded(settings: str) -> Loaded:
    result = load_text(UPSTREAMS + settings, {})
    assert isinstance(result, Loaded), result
    return result


def problems(settings: str) -> list[tuple[Severity, int, str]]:
    found = loaded(settings)
    configuration = with_environment(found.configuration, {})
    return [
        (each.severity, each.line, each.message) for each in check(configuration, found.source, file_exists=frozenset[str]().__contains__)
    ]


@pytest.mark.parametrize(
    ("settings", "severity", "line", "message"),
    [
        ("sampling:\n  dcgm: ['gpu-7:9400']\n", Severity.ERROR, 6, "sampling.dcgm does not begin with http:// or https://"),
        ("sampling:\n  scrape: [none]\n", Severity.ERROR, 6, "there is no upstream 'none'"),
        ("sampling:\n  scrape: [far]\n", Severity.ERROR, 6, "far is of the dialect openai, whose figures are not understood"),
        ("sampling:\n  gpus: {'0': gpu/2}\n", Severity.ERROR, 6, "there is no replica 'gpu/2'"),
        ("sampling:\n  triton: [{path: t.json, replica: gpu}]\n", Severity.ERROR, 6, "there is no replica 'gpu'"),
        ("sampling:\n  dmon_file: d.txt\n", Severity.WARNING, 6, "sampling.dmon_file is not read with gpu: auto"),
        (
            "sampling:\n  gpu: off\nanalytics: {enabled: false}\n",
            Severity.WARNING,
            6,
            "nothing is sampled, since analytics.enabled is false",
        ),
    ],
)
def test_what_would_measure_nothing_is_told(settings: str, severity: Severity, line: int, message: str) -> None:
    """With its line."""
    assert [(severity, line, message)] == problems(settings)


def test_sound_settings_have_no_problems() -> None:
    """Quoted or not, an index is a name."""
    assert [] == problems(
        "sampling: {every_s: 500ms, gpu: dmon, dmon_file: d.txt, dcgm: ['http://10.0.0.1:9400/metrics'], scrape: [gpu], "
        "triton: [{path: t.json, replica: far/0}], gpus: {'0': gpu/0, GPU-1f: gpu/1, host-a: gpu/1}}\n"
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("", "samples  every 1 s: GPUs (auto), /metrics of gpu"),
        ("sampling: {gpu: 'off', scrape: [], every_s: 5s}\n", "samples  every 5 s: nothing"),
        ("sampling: {gpu: nvml, dcgm: ['http://h:9400/metrics']}\n", "every 1 s: GPUs (nvml), /metrics of gpu, http://h:9400/metrics"),
        ("sampling: {enabled: false}\n", ""),
        ("analytics: {enabled: false}\n", ""),
    ],
)
def test_what_is_sampled_is_explained(settings: str, said: str) -> None:
    """In one line, where anything is."""
    text = explain(loaded(settings).configuration)
    assert said in text
    assert bool(said) == ("samples" in text)


def test_the_local_engine_is_sampled_where_it_runs() -> None:
    """As everything of a default configuration is."""
    assert "samples  every 1 s: GPUs (auto), the local engine" in explain(Configuration())
