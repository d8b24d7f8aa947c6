"""`/metrics` as vLLM words it: gauges from the engine model, counters and histograms of what was served.

Without an engine what is being answered counts as running, and nothing waits.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

import msgspec

from tidegate.mock.engine import EngineStatistics
from tidegate.mock.playback import Work
from tidegate.mock.received import ReceivedRequest

_TTFT_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_ITL_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_E2E_S = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0)
_REASONS = ("stop", "length", "abort", "error")


class _Histogram:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def lines(self, name: str, labels: str) -> list[str]:
        running = list(accumulate(self._counts))
        bounds = [*(str(bound) for bound in self._bounds), "+Inf"]
        buckets = [f'{name}_bucket{{{labels},le="{bound}"}} {count}' for bound, count in zip(bounds, running, strict=True)]
        return [f"# TYPE {name} histogram", *buckets, f"{name}_sum{{{labels}}} {self._sum:.9g}", f"{name}_count{{{labels}}} {running[-1]}"]


class VllmMetrics:
    """Counts what was served since the start."""

    def __init__(self) -> None:
        self._prompt_tokens = 0
        self._output_tokens = 0
        self._cached_tokens = 0
        self._finished = dict.fromkeys(_REASONS, 0)
        self._ttft = _Histogram(_TTFT_S)
        self._itl = _Histogram(_ITL_S)
        self._e2e = _Histogram(_E2E_S)

    def count(self, request: ReceivedRequest, work: Work) -> None:
        """Take a call that has ended. The mean gap of its tokens counts once for each gap."""
        self._prompt_tokens += work.prompt_tokens
        self._output_tokens += request.tokens_sent
        self._cached_tokens += work.cached_tokens
        ended_at = request.answered_at
        if request.client_left_at is not None:
            reason, ended_at = "abort", request.client_left_at
        elif request.fault:
            reason = "error"
        else:
            reason = work.finish if work.finish in self._finished else "stop"
        self._finished[reason] += 1
        first_at, last_at = request.first_token_at, request.last_token_at
        if first_at is not None and last_at is not None:
            self._ttft.observe(first_at - request.received_at)
            if request.tokens_sent > 1 and last_at > first_at:
                gaps = request.tokens_sent - 1
                self._itl.observe((last_at - first_at) / gaps, gaps)
        if ended_at is not None:
            self._e2e.observe(ended_at - request.received_at)

    def render(self, model: str, engine: EngineStatistics) -> str:
        """Write the page."""
        labels = f'engine="0",model_name={msgspec.json.encode(model).decode()}'
        gauges = {
            "vllm:num_requests_running": engine.running,
            "vllm:num_requests_waiting": engine.waiting,
            "vllm:kv_cache_usage_perc": round(engine.kv_usage_ratio, 6),
        }
        counters = {
            "vllm:prompt_tokens": self._prompt_tokens,
            "vllm:generation_tokens": self._output_tokens,
            "vllm:prefix_cache_queries": self._prompt_tokens,
            "vllm:prefix_cache_hits": self._cached_tokens,
            "vllm:num_preemptions": 0,
        }
        lines: list[str] = []
        for name, gauge in gauges.items():
            lines += [f"# TYPE {name} gauge", f"{name}{{{labels}}} {gauge}"]
        for name, counter in counters.items():
            lines += [f"# TYPE {name}_total counter", f"{name}_total{{{labels}}} {counter}"]
        lines.append("# TYPE vllm:request_success_total counter")
        lines += [f'vllm:request_success_total{{{labels},finished_reason="{reason}"}} {self._finished[reason]}' for reason in _REASONS]
        lines += self._ttft.lines("vllm:time_to_first_token_seconds", labels)
        lines += self._itl.lines("vllm:inter_token_latency_seconds", labels)
        lines += self._e2e.lines("vllm:e2e_request_latency_seconds", labels)
        return "\n".join(lines) + "\n"
