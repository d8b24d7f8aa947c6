"""What a second worker brings: requests per second of two over one. Means little where the load has no core of its own."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import replace

from benchmarks.content import chat_body
from benchmarks.load.wrk import Wrk
from benchmarks.machine import MIN_CORES_FOR_TWO_WORKERS, share_cores, usable_cores
from benchmarks.measure.rounds import alternate, costing
from benchmarks.options import Options, run_alone
from benchmarks.rows import Figures, Row, median_of, ratio
from benchmarks.subjects import Subject, fixed_upstream, tidegate, workplace

CONNECTIONS = 128
MAX_LOAD_THREADS = 4


def measure(options: Options) -> list[Row]:
    """Measure the throughput of two workers over one."""
    rounds, seconds = (2, 1.0) if options.quick else (4, 2.0)
    machine, body = usable_cores(), chat_body()
    cores = share_cores(machine, gateway=2)
    note = "" if len(machine) >= MIN_CORES_FOR_TWO_WORKERS else "not meaningful: the load shares the second worker's core"
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(workplace())
        port = stack.enter_context(fixed_upstream(place, cores))
        subjects = [
            replace(
                stack.enter_context(tidegate(options.main_variant, port, cores, workers=count)), name=f"{count} worker{'s' * (count > 1)}"
            )
            for count in (1, 2)
        ]
        threads = min(MAX_LOAD_THREADS, len(cores.load))
        loads = {
            subject.name: Wrk(
                place, str(subject.port), port=subject.port, head=subject.head(body), body=body, cores=cores.load, threads=threads
            )
            for subject in subjects
        }

        def one_round(subject: Subject) -> Figures:
            def load(begin: Callable[[], None]) -> tuple[Figures, float]:
                begin()
                result = loads[subject.name].run(seconds, connections=CONNECTIONS)
                return {"requests_per_s": result.requests / result.seconds, "wrong": result.wrong}, result.requests

            return costing(subject, load)

        for subject in subjects:
            loads[subject.name].run(1.0, connections=CONNECTIONS)
        results = alternate(subjects, rounds, one_round)
    one, two = results.values()
    rows = [Row("workers", name, median_of(every, every[0]), note, judged=name == "2 workers") for name, every in results.items()]
    rows[1].figures["throughput_over_one"] = ratio(two, one, "requests_per_s")
    rows[1].figures["cpu_over_one"] = ratio(two, one, "cpu_us")
    return rows


if __name__ == "__main__":
    sys.exit(run_alone(measure))
