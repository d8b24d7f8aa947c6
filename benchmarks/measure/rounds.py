"""Alternating rounds: every subject once, then every subject again, in the other order each time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import psutil

from benchmarks.errors import BenchmarkError
from benchmarks.install import NGINX, PEER_NAMES
from benchmarks.processes import cpu_times, resident_mb
from benchmarks.rows import Figures, Row, median_of, ratio
from benchmarks.subjects import Subject


def alternate(
    subjects: Sequence[Subject], rounds: int, measure: Callable[[Subject], Figures], *, absent: dict[str, str] | None = None
) -> dict[str, list[Figures]]:
    """Measure every subject `rounds` times; give the figures of all rounds by subject.

    With `absent`, a peer that fails is told there and left out, and the others go on; without, and for ours, a failure ends it all.
    """
    results: dict[str, list[Figures]] = {subject.name: [] for subject in subjects}
    for number in range(rounds):
        for subject in subjects if number % 2 == 0 else reversed(subjects):
            if subject.name not in results:
                continue
            try:
                results[subject.name].append(measure(subject))
            except (BenchmarkError, psutil.NoSuchProcess) as problem:
                if absent is None or subject.ours:
                    raise
                absent[subject.name] = str(problem)
                del results[subject.name]
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


def summarised(measurement: str, results: dict[str, list[Figures]], absent: Mapping[str, str]) -> list[Row]:
    """Give one row per subject: medians, the least CPU of any round, all that went wrong; CPU over nginx's, and ours over each peer's."""
    rows = []
    for name, rounds in results.items():
        figures = median_of(rounds, (figure for figure in rounds[0] if figure != "wrong"))
        figures["wrong"] = sum(each["wrong"] for each in rounds)
        figures["cpu_us_min"] = round(min(each["cpu_us"] for each in rounds), 3)
        ours = name.startswith("tidegate")
        for peer in PEER_NAMES if ours else (NGINX,):
            if peer in results and peer != name:
                figures[f"cpu_over_{peer}"] = ratio(rounds, results[peer], "cpu_us")
        if ours and "litellm" in results:
            figures["litellm_cpu_over_this"] = ratio(results["litellm"], rounds, "cpu_us")
        rows.append(Row(measurement, name, figures, judged=ours))
    return rows + not_measured(measurement, absent)


def not_measured(measurement: str, absent: Mapping[str, str]) -> list[Row]:
    """Give the rows of the peers that are missing, which say why."""
    return [Row(measurement, name, {}, f"not measured: {' '.join(why.split())}") for name, why in absent.items()]
