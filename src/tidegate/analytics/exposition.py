"""Pages in Prometheus' text format: reads the figures of model servers and of DCGM's exporter out of them.

Only the lines that matter are parsed: a page of vLLM has hundreds of histogram buckets that nobody here reads. Invariants: an increase is
never negative, for a counter that fell was begun anew by a restarted server; no mean without something that it is of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from math import isfinite
from typing import Final, assert_never

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from tidegate.analytics.samples import (
    MEMORY_BANDWIDTH,
    MEMORY_CLOCK,
    MEMORY_USED,
    POWER,
    SM_CLOCK,
    TEMPERATURE,
    UTILIZATION,
    GpuOwners,
    Sample,
)

MAX_GPUS: Final = 256
"""On one page: some racks' worth. More is no page of an exporter."""
_MIB: Final = 1_048_576


class ServerKind(StrEnum):
    """Whose page it is; also what the samples' `source` says."""

    VLLM = "vllm"
    LLAMACPP = "llamacpp"


class Reading(msgspec.Struct, frozen=True):
    name: str
    labels: Mapping[str, str]
    value: float


def read_page(text: str, prefix: str) -> list[Reading]:
    """Give the figures whose names begin with `prefix`, without buckets. `ValueError` when it is no such page."""
    lines = [line for line in text.splitlines() if line.startswith(prefix) and "_bucket{" not in line and "_created" not in line]
    families = text_string_to_metric_families("\n".join((*lines, "")))
    samples = (sample for family in families for sample in family.samples)
    return [Reading(sample.name, sample.labels, float(sample.value)) for sample in samples if isfinite(sample.value)]


# ── model servers ─────────────────────────────────────────────────────────────


class _Level(msgspec.Struct, frozen=True):
    """What stands on the page. `names`: the first that is there counts; others are of other versions."""

    metric: str
    names: tuple[str, ...]
    combine: Callable[[Iterable[float]], float] = sum
    """Several engines, or models, to one figure."""


class _Increase(msgspec.Struct, frozen=True):
    metric: str
    names: tuple[str, ...]
    per_second: bool = False


class _Ratio(msgspec.Struct, frozen=True):
    """An increase in parts of another."""

    metric: str
    upper: tuple[str, ...]
    lower: tuple[str, ...]


def _mean(metric: str, *histograms: str) -> _Ratio:
    return _Ratio(metric, tuple(f"{name}_sum" for name in histograms), tuple(f"{name}_count" for name in histograms))


_Figure = _Level | _Increase | _Ratio
_FIGURES: Final[Mapping[ServerKind, Sequence[_Figure]]] = {
    ServerKind.VLLM: (
        _Level("vllm.requests_running", ("vllm:num_requests_running",)),
        _Level("vllm.requests_waiting", ("vllm:num_requests_waiting",)),
        _Level("vllm.kv_cache_ratio", ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"), max),
        _Ratio(
            "vllm.prefix_cache_hit_ratio",
            ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
            ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
        ),
        _Increase("vllm.preemptions", ("vllm:num_preemptions_total",)),
        _Increase("vllm.requests_finished", ("vllm:request_success_total",)),
        _Increase("vllm.prompt_tokens_per_s", ("vllm:prompt_tokens_total",), per_second=True),
        _Increase("vllm.generation_tokens_per_s", ("vllm:generation_tokens_total",), per_second=True),
        _mean("vllm.ttft_mean_s", "vllm:time_to_first_token_seconds"),
        _mean("vllm.itl_mean_s", "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
        _mean("vllm.queue_mean_s", "vllm:request_queue_time_seconds"),
        _mean("vllm.prefill_mean_s", "vllm:request_prefill_time_seconds"),
        _mean("vllm.decode_mean_s", "vllm:request_decode_time_seconds"),
        _mean("vllm.e2e_mean_s", "vllm:e2e_request_latency_seconds"),
    ),
    ServerKind.LLAMACPP: (
        _Level("llamacpp.requests_running", ("llamacpp:requests_processing",)),
        _Level("llamacpp.requests_waiting", ("llamacpp:requests_deferred",)),
        _Increase("llamacpp.prompt_tokens_per_s", ("llamacpp:prompt_tokens_total",), per_second=True),
        _Increase("llamacpp.generation_tokens_per_s", ("llamacpp:tokens_predicted_total",), per_second=True),
    ),
}


class ModelServerPages:
    """The pages of one model server, one after the other."""

    def __init__(self, kind: ServerKind, *, replica: str, longest_s: float) -> None:
        """What was counted over more than `longest_s` is not told: it is of no second in particular."""
        self._kind = kind
        self._replica = replica
        self._longest_s = longest_s
        self._before: dict[str, float] = {}
        self._before_at: float | None = None

    def take(self, text: str, *, now: float) -> list[Sample]:
        """Give what this page says, and what it says beside the one before. `ValueError` when it is no page of this kind of server."""
        values: dict[str, list[float]] = {}
        for reading in read_page(text, f"{self._kind}:"):
            values.setdefault(reading.name, []).append(reading.value)
        if not values:
            raise ValueError(f"there is no metric on it that begins with {self._kind}:")
        totals = {name: sum(each) for name, each in values.items()}
        elapsed_s = now - self._before_at if self._before_at is not None else 0.0
        if not 0.0 < elapsed_s <= self._longest_s:
            self._before, elapsed_s = {}, 0.0
        figures = ((each.metric, self._figure(each, values, totals, elapsed_s)) for each in _FIGURES[self._kind])
        samples = [Sample(metric, value, replica=self._replica) for metric, value in figures if value is not None]
        self._before, self._before_at = totals, now
        return samples

    def _figure(self, figure: _Figure, values: Mapping[str, list[float]], totals: Mapping[str, float], elapsed_s: float) -> float | None:
        match figure:
            case _Level():
                name = next((name for name in figure.names if name in values), None)
                return figure.combine(values[name]) if name is not None else None
            case _Increase():
                more = self._increase(figure.names, totals)
                return more if more is None or not figure.per_second else more / elapsed_s
            case _Ratio():
                upper, lower = self._increase(figure.upper, totals), self._increase(figure.lower, totals)
                return upper / lower if upper is not None and lower else None
            case _:
                assert_never(figure)

    def _increase(self, names: Sequence[str], totals: Mapping[str, float]) -> float | None:
        name = next((name for name in names if name in totals and name in self._before), None)
        more = totals[name] - self._before[name] if name is not None else -1.0
        return more if more >= 0.0 else None


# ── DCGM ──────────────────────────────────────────────────────────────────────

_DCGM: Final = {
    "DCGM_FI_PROF_DRAM_ACTIVE": (MEMORY_BANDWIDTH, 1.0),
    "DCGM_FI_DEV_MEM_COPY_UTIL": (MEMORY_BANDWIDTH, 0.01),
    "DCGM_FI_DEV_GPU_UTIL": (UTILIZATION, 0.01),
    "DCGM_FI_DEV_FB_USED": (MEMORY_USED, float(_MIB)),
    "DCGM_FI_DEV_POWER_USAGE": (POWER, 1.0),
    "DCGM_FI_DEV_GPU_TEMP": (TEMPERATURE, 1.0),
    "DCGM_FI_DEV_SM_CLOCK": (SM_CLOCK, 1.0),
    "DCGM_FI_DEV_MEM_CLOCK": (MEMORY_CLOCK, 1.0),
}
"""Fields of its default list, and how much one of theirs is of ours. Of two for one figure the upper is the better one."""


def dcgm_samples(text: str, owners: GpuOwners) -> list[Sample]:
    """Read a page of DCGM's exporter. `ValueError` when it is none."""
    found: dict[tuple[str, str, str], Sample] = {}
    readings = sorted((each for each in read_page(text, "DCGM_FI_") if each.name in _DCGM), key=lambda each: list(_DCGM).index(each.name))
    for reading in readings:
        metric, factor = _DCGM[reading.name]
        index, uuid, host = reading.labels.get("gpu", ""), reading.labels.get("UUID", ""), reading.labels.get("Hostname", "")
        part = reading.labels.get("GPU_I_ID", "")
        key = (metric, host, f"{index}:{part}" if part else index)
        if key not in found and len(found) < MAX_GPUS * len(_DCGM):
            found[key] = owners.sample(metric, reading.value * factor, index=key[2], uuid=uuid, host=host)
    if not found:
        raise ValueError("there is no metric on it that begins with DCGM_FI_DEV")
    return list(found.values())
