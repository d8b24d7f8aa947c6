"""How unevenly chunks arrive: the gap between chunks of 200 streams, and their time on the way, through Tidegate and without it."""

from __future__ import annotations

import sys

from benchmarks.machine import share_cores, usable_cores
from benchmarks.measure.rounds import alternate
from benchmarks.measure.streams import TICK_S, stream_round
from benchmarks.options import Options, run_alone
from benchmarks.rows import Row, difference, median_of
from benchmarks.subjects import Subject, stream_upstream, tidegate, workplace

_FIGURES = ("ttft_p50_ms", "ttft_p99_ms", "gap_p50_ms", "gap_p99_ms", "transit_p50_ms", "transit_p99_ms")


def measure(options: Options) -> list[Row]:
    """Measure the gap between chunks that Tidegate adds."""
    rounds, seconds = (2, 1.5) if options.quick else (5, 3.0)
    cores = share_cores(usable_cores())
    with workplace(), stream_upstream(cores, tick_s=TICK_S) as port, tidegate(options.main_variant, port, cores) as ours:
        direct = Subject("direct", port)
        results = alternate((direct, ours), rounds, lambda subject: stream_round(subject, cores, seconds=seconds))
    rows = []
    for name, every in results.items():
        figures = median_of(every, _FIGURES)
        figures["wrong"] = sum(each["wrong"] for each in every)
        rows.append(Row("gaps", name, figures, judged=name != "direct"))
    without, through = results.values()
    rows[1].figures.update({f"added_{figure}": difference(through, without, figure) for figure in _FIGURES})
    return rows


if __name__ == "__main__":
    sys.exit(run_alone(measure))
