"""What each gateway adds to the latency of a request at a fixed rate: open loop, from when each request was due.

The rate is half of what ours saturates at, the same for all that can hold it; one that cannot gets half of what itself saturates at.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.content import chat_body
from benchmarks.load.wrk import Wrk
from benchmarks.machine import Cores, share_cores, undisturbed, usable_cores
from benchmarks.measure.rounds import alternate, not_measured
from benchmarks.options import Options, run_alone
from benchmarks.peers import Site, all_subjects
from benchmarks.processes import LoadProcess
from benchmarks.rows import Figures, Row, difference, median_of
from benchmarks.subjects import Subject, fixed_upstream, workplace

CONNECTIONS = 64
HOLDS = 0.8
"""A gateway holds a rate up to this part of its saturation, which a second of closed loop tells."""
_FIGURES = ("p50_ms", "p99_ms", "sent_late_p99_ms", "requests")


def measure(options: Options) -> list[Row]:
    """Measure the latency that each gateway adds at a fixed rate."""
    rounds, seconds = (2, 1.5) if options.quick else (8, 3.0)
    cores, absent = share_cores(usable_cores()), dict(options.absent)
    main = replace(options, variants=(options.main_variant,))
    with (
        workplace() as place,
        fixed_upstream(place, cores, before=undisturbed()) as port,
        all_subjects(main, Site(place, port, cores), absent) as subjects,
    ):
        rates = _rates({subject.name: _saturation(subject, place, cores) for subject in subjects}, first=subjects[0].name)
        direct = {rate: Subject(f"direct, {rate:,} /s", port) for rate in dict.fromkeys(rates.values())}
        asked = rates | {subject.name: rate for rate, subject in direct.items()}
        results = alternate(
            (*direct.values(), *subjects),
            rounds,
            lambda subject: paced_round(subject, cores, rate_per_s=asked[subject.name], seconds=seconds),
            absent=absent,
        )
    rows = []
    for name, every in results.items():
        figures = median_of(every, _FIGURES) | {"wrong": sum(each["wrong"] for each in every), "rate_per_s": asked[name]}
        bare = results.get(direct[asked[name]].name)
        if name in rates and bare is not None:
            figures |= {f"added_{figure}": difference(every, bare, figure) for figure in ("p50_ms", "p99_ms")}
        rows.append(Row("latency", name, figures, judged=name == subjects[0].name))
    return rows + not_measured("latency", absent)


def _saturation(subject: Subject, place: Path, cores: Cores) -> float:
    """Give the requests per second that a subject takes; the first second warms it."""
    body = chat_body()
    load = Wrk(place, f"saturation-{subject.port}", port=subject.port, head=subject.head(body), body=body, cores=cores.load)
    load.run(1.0, connections=subject.load.connections)
    saturated = load.run(1.0, connections=subject.load.connections)
    return max(1.0, saturated.requests / saturated.seconds)


def _rates(saturation: dict[str, float], *, first: str) -> dict[str, int]:
    """Give the rate of each: half of the first one's saturation, or of its own where it could not hold that."""
    common = round(saturation[first] / 2)
    return {name: common if common <= HOLDS * limit else max(1, round(limit / 2)) for name, limit in saturation.items()}


def paced_round(subject: Subject, cores: Cores, *, rate_per_s: float, seconds: float) -> Figures:
    """Send requests at a fixed rate; give their latencies."""
    body = chat_body()
    pace = {"rate_per_s": rate_per_s, "seconds": seconds, "connections": CONNECTIONS}
    task = {"port": subject.port, "before": (subject.head(body) + body.before).decode(), "after": body.after.decode(), **pace}
    with LoadProcess("paced_client", cores.load, task, before=undisturbed()) as client:
        return client.hear()


if __name__ == "__main__":
    sys.exit(run_alone(measure))
