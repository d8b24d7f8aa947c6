"""What each gateway adds to the latency of a request at half of what ours saturates at, in two ways.

Closed loop: so few connections, each with one request at a time, that ours answers about half as much as with all of them. Open loop:
requests are due at fixed times, whatever was answered, and latency runs from then; so a wait counts for all who would have come meanwhile.
The rate of the open loop is the same for all that can hold it; one that cannot gets half of what itself saturates at.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.content import chat_body
from benchmarks.load.wrk import Wrk
from benchmarks.machine import Cores, share_cores, undisturbed, usable_cores
from benchmarks.measure.rounds import alternate, not_measured
from benchmarks.options import Options, run_alone
from benchmarks.peers import Site, all_subjects
from benchmarks.processes import LoadProcess, paused
from benchmarks.rows import Figures, Row, difference, median_of
from benchmarks.subjects import Subject, fixed_upstream, workplace

CONNECTIONS = 64
HOLDS = 0.8
"""A gateway holds a rate up to this part of its saturation, which a second of closed loop tells."""
FEW = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Connections of the closed loop: the first of these with which ours reaches half of its saturation."""


def measure(options: Options) -> list[Row]:
    """Measure the latency that each gateway adds."""
    rounds, seconds = (2, 1.5) if options.quick else (8, 3.0)
    cores, absent = share_cores(usable_cores()), dict(options.absent)
    main = replace(options, variants=(options.main_variant,))
    with (
        workplace() as place,
        fixed_upstream(place, cores, before=undisturbed()) as port,
        all_subjects(main, Site(place, port, cores), absent) as subjects,
    ):
        loops = {subject.name: _loop(subject, place, cores) for subject in subjects}
        saturation = {subject.name: _saturation(subject, loops[subject.name]) for subject in subjects}
        few = _few(loops[subjects[0].name], saturation[subjects[0].name])
        rates = _rates(saturation, first=subjects[0].name)
        bare = Subject("direct", port)
        loops[bare.name] = _loop(bare, place, cores)
        direct = {rate: Subject(f"direct, {rate:,} /s", port) for rate in dict.fromkeys(rates.values())}
        pids = [subject.pid for subject in subjects if subject.pid is not None]
        asked = rates | {subject.name: rate for rate, subject in direct.items()}
        closed = alternate(
            (bare, *subjects), rounds, _by_itself(pids, lambda each: _closed_round(loops[each.name], few, seconds)), absent=absent
        )
        opened = alternate(
            (*direct.values(), *(subject for subject in subjects if subject.name in closed)),
            rounds,
            _by_itself(pids, lambda each: paced_round(each, cores, rate_per_s=asked[each.name], seconds=seconds)),
            absent=absent,
        )
    without = {name: direct[rates[name]].name for name in rates}
    rows = _rows("latency_closed", closed, dict.fromkeys(rates, bare.name), ("requests_per_s",), ours=subjects[0].name)
    rows += _rows("latency", opened, without, ("sent_late_p99_ms", "requests"), ours=subjects[0].name)
    for row in rows:
        row.figures.update({"connections": few} if row.measurement == "latency_closed" else {"rate_per_s": asked[row.subject]})
    return rows + not_measured("latency", absent)


def _by_itself(pids: Sequence[int], one_round: Callable[[Subject], Figures]) -> Callable[[Subject], Figures]:
    """Make of a round one in which all other gateways stand still."""

    def alone(subject: Subject) -> Figures:
        with paused(pid for pid in pids if pid != subject.pid):
            return one_round(subject)

    return alone


def _rows(
    measurement: str, results: Mapping[str, list[Figures]], without: Mapping[str, str], more: tuple[str, ...], *, ours: str
) -> list[Row]:
    """Give a row for each subject: its medians, and what it adds to those of the upstream itself, whose name is in `without`."""
    rows = []
    for name, every in results.items():
        figures = median_of(every, ("p50_ms", "p99_ms", *more)) | {"wrong": sum(each["wrong"] for each in every)}
        if name in without:
            figures |= {f"added_{figure}": difference(every, results[without[name]], figure) for figure in ("p50_ms", "p99_ms")}
        rows.append(Row(measurement, name, figures, judged=name == ours))
    return rows


def _loop(subject: Subject, place: Path, cores: Cores) -> Wrk:
    body = chat_body()
    name = f"latency-{subject.port}"
    return Wrk(place, name, port=subject.port, head=subject.head(body), body=body, cores=cores.load)


def _saturation(subject: Subject, loop: Wrk) -> float:
    """Give the requests per second that a subject takes; the first second warms it."""
    loop.run(1.0, connections=subject.load.connections)
    saturated = loop.run(1.0, connections=subject.load.connections)
    return max(1.0, saturated.requests / saturated.seconds)


def _few(loop: Wrk, saturation: float) -> int:
    """Give the connections with which a closed loop is at half of saturation, or a little above."""
    for connections in FEW:
        answered = loop.run(1.0, connections=connections)
        if answered.requests / answered.seconds >= saturation / 2:
            return connections
    return CONNECTIONS


def _rates(saturation: dict[str, float], *, first: str) -> dict[str, int]:
    """Give the rate of each: half of the first one's saturation, or of its own where it could not hold that."""
    common = round(saturation[first] / 2)
    return {name: common if common <= HOLDS * limit else max(1, round(limit / 2)) for name, limit in saturation.items()}


def _closed_round(loop: Wrk, connections: int, seconds: float) -> Figures:
    answered = loop.run(seconds, connections=connections)
    return {
        "p50_ms": answered.p50_ms,
        "p99_ms": answered.p99_ms,
        "requests_per_s": answered.requests / answered.seconds,
        "wrong": answered.wrong,
    }


def paced_round(subject: Subject, cores: Cores, *, rate_per_s: float, seconds: float) -> Figures:
    """Send requests at a fixed rate; give their latencies."""
    body = chat_body()
    pace = {"rate_per_s": rate_per_s, "seconds": seconds, "connections": CONNECTIONS}
    task = {"port": subject.port, "before": (subject.head(body) + body.before).decode(), "after": body.after.decode(), **pace}
    with LoadProcess("paced_client", cores.load, task, before=undisturbed()) as client:
        return client.hear()


if __name__ == "__main__":
    sys.exit(run_alone(measure))
