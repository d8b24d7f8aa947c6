"""What must be reached and what is aimed at, as data; and the verdict on a row."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.rows import Row

_RELATIONS: dict[str, Callable[[float, float], bool]] = {"<": operator.lt, "≤": operator.le, ">": operator.gt, "≥": operator.ge}


class Verdict(StrEnum):
    """How a figure stands to its target; the value is its mark on the page."""

    AIM = "✔ aim met"
    MUST = "✔ must met"
    MISSED = "✘ missed"
    WRONG = "✘ answers were wrong"
    MEANINGLESS = "– not meaningful here"
    NOT_MEASURED = "– not measured"


@dataclass(frozen=True)
class Bound:
    """A limit for one figure."""

    figure: str
    relation: str
    limit: float
    unit: str

    def holds(self, figures: dict[str, float]) -> bool | None:
        """Tell whether it holds; None when the figure is missing."""
        value = figures.get(self.figure)
        return None if value is None else _RELATIONS[self.relation](value, self.limit)

    def __str__(self) -> str:
        return f"{self.relation} {self.limit:g} {self.unit}"


@dataclass(frozen=True)
class Target:
    """One line of the list of targets."""

    title: str
    measurement: str
    must: Bound
    aim: Bound | None = None

    def rows(self, rows: Sequence[Row]) -> list[Row]:
        """Give the rows of ours that this target judges."""
        return [row for row in rows if row.measurement == self.measurement and row.judged]

    def verdict(self, row: Row) -> Verdict:
        """Judge one row."""
        if row.figures.get("wrong"):
            return Verdict.WRONG
        must = self.must.holds(row.figures)
        if must is None:
            return Verdict.NOT_MEASURED
        if row.note:
            return Verdict.MEANINGLESS
        if not must:
            return Verdict.MISSED
        return Verdict.AIM if self.aim is not None and self.aim.holds(row.figures) else Verdict.MUST


_ROUTER, _NGINX = "× vllm-router", "× nginx"
TARGETS = (
    Target(
        "CPU per request that is not a stream",
        "requests",
        Bound("cpu_over_vllm-router", "≤", 1.0, _ROUTER),
        Bound("cpu_over_vllm-router", "≤", 0.7, _ROUTER),
    ),
    Target(
        "CPU per streamed chunk, usage counted",
        "streams",
        Bound("cpu_over_vllm-router", "≤", 1.0, _ROUTER),
        Bound("cpu_over_nginx", "≤", 1.1, _NGINX),
    ),
    Target(
        "Added latency, p99, at half of saturation, closed loop",
        "latency_closed",
        Bound("added_p99_ms", "<", 2.0, "ms"),
        Bound("added_p99_ms", "<", 1.0, "ms"),
    ),
    Target(
        "Added latency, p99, at half of saturation, open loop",
        "latency",
        Bound("added_p99_ms", "<", 2.0, "ms"),
        Bound("added_p99_ms", "<", 1.0, "ms"),
    ),
    Target(
        "Added gap between chunks, p99, 200 streams",
        "gaps",
        Bound("added_gap_p99_ms", "<", 3.0, "ms"),
        Bound("added_gap_p99_ms", "<", 1.0, "ms"),
    ),
    Target(
        "Resident memory of a worker at rest", "memory", Bound("worker_rss_mb", "<", 90.0, "MB"), Bound("worker_rss_mb", "<", 60.0, "MB")
    ),
    Target(
        "Memory per open stream",
        "memory_streams",
        Bound("per_connection_kb", "<", 40.0, "KB"),
        Bound("per_connection_kb", "<", 20.0, "KB"),
    ),
    Target("10,000 idle connections on one worker, still open", "idle_connections", Bound("kept_ratio", "≥", 1.0, "of all")),
    Target("10,000 idle streams on one worker, all still moving", "idle_streams", Bound("kept_ratio", "≥", 1.0, "of all")),
    Target(
        "Event loop stall while 5 MB prompts are counted",
        "stall",
        Bound("largest_ms", "<", 20.0, "ms"),
        Bound("largest_ms", "<", 5.0, "ms"),
    ),
    Target("LiteLLM's CPU per request, over ours", "requests", Bound("litellm_cpu_over_this", "≥", 100.0, "×")),
    Target("Throughput, two workers over one", "workers", Bound("throughput_over_one", ">", 1.8, "×")),
)
