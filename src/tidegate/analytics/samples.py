"""What machines and model servers measure about once a second: every figure is declared here once, and becomes a row here.

Rates and means are of the time since the reading before. A figure that nothing was measured for is missing; it is never 0 instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from tidegate.analytics.rows import Row, timestamp

MEMORY_BANDWIDTH: Final = "gpu.memory_bandwidth_ratio"
UTILIZATION: Final = "gpu.utilization_ratio"
MEMORY_USED: Final = "gpu.memory_used_bytes"
POWER: Final = "gpu.power_w"
TEMPERATURE: Final = "gpu.temperature_c"
SM_CLOCK: Final = "gpu.sm_clock_mhz"
MEMORY_CLOCK: Final = "gpu.memory_clock_mhz"

METRICS: Final = {
    MEMORY_BANDWIDTH: "How busy the GPU's memory was: share of the cycles that moved something where DCGM gives it, else share of the time "
    "in which memory was read or written.",
    UTILIZATION: "Share of the time in which some kernel ran.",
    MEMORY_USED: "GPU memory in use.",
    POWER: "Power drawn.",
    TEMPERATURE: "Temperature of the GPU.",
    SM_CLOCK: "Clock of its processors.",
    MEMORY_CLOCK: "Clock of its memory.",
    "vllm.requests_running": "Requests in the running batch.",
    "vllm.requests_waiting": "Requests in the queue.",
    "vllm.kv_cache_ratio": "How full the KV cache is; the fullest of several engines.",
    "vllm.prefix_cache_hit_ratio": "Of the prompt tokens looked up, those found in the prefix cache.",
    "vllm.preemptions": "Requests thrown out of the batch for lack of KV cache.",
    "vllm.requests_finished": "Requests that ended.",
    "vllm.prompt_tokens_per_s": "Prompt tokens read.",
    "vllm.generation_tokens_per_s": "Tokens made.",
    "vllm.ttft_mean_s": "Time to first token, mean of the requests that got theirs.",
    "vllm.itl_mean_s": "Gap between two tokens, mean.",
    "vllm.queue_mean_s": "Time in the queue, mean of the requests that ended.",
    "vllm.prefill_mean_s": "Time of reading the prompt, likewise.",
    "vllm.decode_mean_s": "Time of writing the answer, likewise.",
    "vllm.e2e_mean_s": "Whole time in the server, likewise.",
    "llamacpp.requests_running": "Slots at work.",
    "llamacpp.requests_waiting": "Requests put off until a slot is free.",
    "llamacpp.prompt_tokens_per_s": "Prompt tokens read.",
    "llamacpp.generation_tokens_per_s": "Tokens made.",
    "triton.requests": "Traced requests that ended; `device` is the model, in all of these.",
    "triton.queue_mean_s": "Time in the queue, mean of those.",
    "triton.compute_mean_s": "Time of computing, input and output included, likewise.",
    "triton.request_mean_s": "Whole time in the server, likewise.",
    "cpu.used_cores": "CPU time of the process in each second.",
    "cpu.memory_bytes": "Memory of the process that is resident.",
    "cpu.threads": "Threads of the process.",
}
"""Every metric by name, and what it says."""


class Sample(msgspec.Struct, frozen=True):
    """One figure. `at` is in seconds since the epoch where the source says when it measured; else it is when it was asked."""

    metric: str
    value: float
    device: str = ""
    replica: str = ""
    at: float | None = None


def sample_row(sample: Sample, *, source: str, node: str, at: float) -> Row:
    """Give its row of the table `samples`."""
    return {
        "at": timestamp(at if sample.at is None else sample.at),
        "node": node,
        "replica": sample.replica,
        "source": source,
        "metric": sample.metric,
        "device": sample.device,
        "value": sample.value,
    }


class GpuOwners:
    """Knows which replica computes on a GPU. `owners` has replicas by UUID, by `host/index`, by index (of this machine) and by host."""

    def __init__(self, owners: Mapping[str, str], *, node: str, otherwise: str = "") -> None:
        """`node` is this machine's host name; `otherwise` owns those GPUs of this machine that nobody else does."""
        self._owners = owners
        self._node = node
        self._otherwise = otherwise

    def __repr__(self) -> str:
        return f"GpuOwners({dict(self._owners)!r})"

    def sample(self, metric: str, value: float, *, index: str, uuid: str = "", host: str = "", at: float | None = None) -> Sample:
        """Make a sample of a GPU's figure. Without a host it is one of this machine."""
        is_here = host in {"", self._node}
        device = index if is_here else f"{host}/{index}"
        return Sample(metric, value, device, self._replica(index, uuid, host or self._node, is_here=is_here), at)

    def _replica(self, index: str, uuid: str, host: str, *, is_here: bool) -> str:
        for name in (uuid, f"{host}/{index}", index if is_here else "", host):
            if name in self._owners:
                return self._owners[name]
        return self._otherwise if is_here else ""


def page() -> Iterator[str]:
    """Give the lines of the table of metrics, for the page that people read."""
    yield from ("| metric | |", "|---|---|")
    yield from (f"| `{name}` | {sentence} |" for name, sentence in METRICS.items())
