"""What a streamed chunk costs: 200 streams (fewer for the slow) of 100 chunks, 50 chunks a second each, usage counted by ours."""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks.content import chat_body
from benchmarks.machine import Cores, share_cores, usable_cores
from benchmarks.measure.rounds import alternate, costing, summarised
from benchmarks.options import Options, run_alone
from benchmarks.peers import Site, all_subjects
from benchmarks.processes import LoadProcess
from benchmarks.rows import Figures, Row
from benchmarks.subjects import Subject, stream_upstream, workplace

CHUNKS = 100
TICK_S = 0.02
SETTLE_S = 0.7
"""Opening 200 streams at once costs more than keeping them; this is not measured."""


def measure(options: Options) -> list[Row]:
    """Measure the cost of a streamed chunk beside the peers'."""
    rounds, seconds = (2, 1.5) if options.quick else (8, 3.0)
    cores = share_cores(usable_cores())
    absent = dict(options.absent)
    with (
        workplace() as place,
        stream_upstream(cores, tick_s=TICK_S) as port,
        all_subjects(options, Site(place, port, cores, streams=True), absent) as subjects,
    ):
        results = alternate(subjects, rounds, lambda subject: stream_round(subject, cores, seconds=seconds), absent=absent)
        return summarised("streams", results, absent)


def stream_round(subject: Subject, cores: Cores, *, seconds: float) -> Figures:
    """Keep the streams open for a while; give what they saw and what they cost."""
    body = chat_body(stream=True)
    head = subject.head(body).decode()
    shape = {"streams": subject.load.streams, "chunks": CHUNKS, "settle_s": SETTLE_S, "seconds": seconds}
    task = {"port": subject.port, "before": head + body.before.decode(), "after": body.after.decode(), **shape}

    def load(begin: Callable[[], None]) -> tuple[Figures, float]:
        with LoadProcess("sse_client", cores.load, task) as client:
            client.hear()
            begin()
            figures = client.hear()
        return figures, figures.pop("chunks")

    return costing(subject, load)


if __name__ == "__main__":
    sys.exit(run_alone(measure))
