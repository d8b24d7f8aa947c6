"""Alternating rounds: every subject once, then every subject again, in the other order each time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.errors import BenchmarkError
from benchmarks.processes import cpu_times, resident_mb
from benchmarks.rows import Figures, Row, median_of, ratio
from benchmarks.subjects import Subject

_PEERS = {"nginx": "nginx", "vllm-router": "router"}
"""Subjects that others are compared with, and their names in figures."""


def alternate(subjects: Sequence[Subject], rounds: int, measure: Callable[[Subject], Figures]) -> dict[str, list[Figures]]:
    """Measure every subject `rounds` times; give the figures of all rounds by subject."""
    results: dict[str, list[Figures]] = {subject.name: [] for subject in subjects}
    for number in range(rounds):
        for subject in subjects if number % 2 == 0 else reversed(subjects):
            results[subject.name].append(measure(subject))
    return results


def costing(subject: Subject, load: Callable[[Callable[[], None]], tuple[Figures, float]]) -> Figures:
    """Put load on a subject and add to its figures what that cost.

    `load` calls back when the time begins to count, and gives its figures and the number of units (requests, chunks) to divide by.
    """
    if subject.pid is None:
        return load(lambda: None)[0]
    pid = subject.pid
    began = [cpu_times(pid)]

    def begin() -> None:
        began[0] = cpu_times(pid)

    figures, units = load(begin)
    relay_s, family_s = cpu_times(pid).since(began[0])
    if not units or not family_s:
        raise BenchmarkError(f"{subject.name} served nothing in one round ({figures}). Is the machine too busy? Run it again.")
    relay_mb, family_mb = resident_mb(pid)
    cost = {"relay_cpu_us": relay_s / units * 1e6, "cpu_us": family_s / units * 1e6}
    return figures | cost | {"relay_rss_mb": relay_mb, "rss_mb": family_mb}


def summarised(measurement: str, results: dict[str, list[Figures]]) -> list[Row]:
    """Give one row per subject: medians, the least CPU of any round, all that went wrong, and CPU over each peer's."""
    rows = []
    for name, rounds in results.items():
        figures = median_of(rounds, (figure for figure in rounds[0] if figure != "wrong"))
        figures["wrong"] = sum(each["wrong"] for each in rounds)
        if "cpu_us" in rounds[0]:
            figures["cpu_us_min"] = round(min(each["cpu_us"] for each in rounds), 3)
            for peer, short in _PEERS.items():
                if peer in results and peer != name:
                    figures[f"cpu_over_{short}"] = ratio(rounds, results[peer], "cpu_us")
        rows.append(Row(measurement, name, figures, judged=name.startswith("tidegate")))
    return rows
