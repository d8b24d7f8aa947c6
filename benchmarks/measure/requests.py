"""What a request that is not a stream costs: 1.7 KB in, 0.9 KB out, 64 connections (fewer for the slow), as many as each gateway takes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict

from benchmarks.content import chat_body
from benchmarks.load.wrk import Wrk
from benchmarks.machine import share_cores, usable_cores
from benchmarks.measure.rounds import alternate, costing, summarised
from benchmarks.options import Options, run_alone
from benchmarks.peers import Site, all_subjects
from benchmarks.rows import Figures, Row
from benchmarks.subjects import Subject, fixed_upstream, workplace

WARM_S = 1.0


def measure(options: Options) -> list[Row]:
    """Measure the cost of a request beside the peers'."""
    rounds, seconds = (3, 1.0) if options.quick else (6, 2.0)
    cores, body = share_cores(usable_cores()), chat_body()
    absent = dict(options.absent)
    with (
        workplace() as place,
        fixed_upstream(place, cores) as port,
        all_subjects(options, Site(place, port, cores), absent) as subjects,
    ):
        loads = {
            subject.name: Wrk(place, str(subject.port), port=subject.port, head=subject.head(body), body=body, cores=cores.load)
            for subject in subjects
        }

        def one_round(subject: Subject) -> Figures:
            def load(begin: Callable[[], None]) -> tuple[Figures, float]:
                begin()
                result = loads[subject.name].run(seconds, connections=subject.load.connections)
                figures = {name: value for name, value in asdict(result).items() if name not in {"requests", "seconds"}}
                return {"requests_per_s": result.requests / result.seconds, **figures}, result.requests

            return costing(subject, load)

        for subject in subjects:
            loads[subject.name].run(WARM_S, connections=subject.load.connections)
        return summarised("requests", alternate(subjects, rounds, one_round, absent=absent), absent)


if __name__ == "__main__":
    sys.exit(run_alone(measure))
