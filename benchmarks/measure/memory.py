"""What a worker and each peer hold at rest and per open stream; and whether ours holds ten thousand idle connections or streams."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil

from benchmarks.content import Body, chat_body
from benchmarks.errors import BenchmarkError
from benchmarks.load.wrk import Wrk
from benchmarks.machine import Cores, share_cores, usable_cores
from benchmarks.measure.rounds import not_measured
from benchmarks.options import Options, run_alone
from benchmarks.peers import Site, peer
from benchmarks.processes import LoadProcess, family
from benchmarks.rows import Figures, Row
from benchmarks.subjects import FULL_LOAD, Subject, fixed_upstream, stream_upstream, tidegate, workplace

MANY = 10_000
SPARE_FILES = 400
"""What a worker has open besides connections, and some more."""
SLOW_TICK_S = 2.0
HOLD_S = 5.0
"""Longer than two ticks, so that every stream must have moved."""


def measure(options: Options) -> list[Row]:
    """Measure the memory of a worker and of each peer, and what a worker holds open."""
    cores = share_cores(usable_cores())
    many_streams = min(MANY, (options.file_limit - SPARE_FILES) // 2)
    many_idle = min(MANY, options.file_limit - SPARE_FILES)
    hold_s = SLOW_TICK_S * 1.5 if options.quick else HOLD_S
    variant = options.main_variant
    rows = []
    with workplace() as place, fixed_upstream(place, cores) as port, tidegate(variant, port, cores) as ours:
        rows.append(Row("memory", ours.name, _at_rest(ours, place, cores), judged=True))
        rows.append(Row("idle_connections", ours.name, _hold(ours, cores, many_idle, stream=False, hold_s=hold_s), judged=True))
    for measurement, count in (("memory_streams", FULL_LOAD.held_streams), ("idle_streams", many_streams)):
        with stream_upstream(cores, tick_s=SLOW_TICK_S) as port, tidegate(variant, port, cores) as ours:
            rows.append(Row(measurement, ours.name, _hold(ours, cores, count, stream=True, hold_s=hold_s), judged=True))
    for name, command in options.peers.items():
        rows += _of_peer(name, command, cores, hold_s)
    return rows + [row for measurement in ("memory", "memory_streams") for row in not_measured(measurement, options.absent)]


def _of_peer(name: str, command: Path, cores: Cores, hold_s: float) -> list[Row]:
    """Measure a peer at rest and with open streams; what fails is told in its row."""
    rows = []
    for measurement in ("memory", "memory_streams"):
        stream = measurement == "memory_streams"
        with workplace() as place, stream_upstream(cores, tick_s=SLOW_TICK_S) if stream else fixed_upstream(place, cores) as port:
            try:
                with peer(name, command, Site(place, port, cores, streams=stream)) as subject:
                    count = subject.load.held_streams
                    figures = _hold(subject, cores, count, stream=True, hold_s=hold_s) if stream else _at_rest(subject, place, cores)
                    rows.append(Row(measurement, name, figures))
            except (BenchmarkError, OSError, psutil.NoSuchProcess) as problem:
                rows += not_measured(measurement, {name: str(problem)})
    return rows


def _at_rest(subject: Subject, place: Path, cores: Cores) -> Figures:
    body = chat_body()
    figures = {"worker_rss_mb": _worker_mb(subject)}
    Wrk(place, "warm", port=subject.port, head=subject.head(body), body=body, cores=cores.load).run(
        2.0, connections=subject.load.connections
    )
    figures["worker_rss_after_load_mb"] = _worker_mb(subject)
    figures["node_rss_mb"] = round(sum(process.memory_info().rss for process in family(_pid(subject))) / 1e6, 1)
    return figures


def _hold(subject: Subject, cores: Cores, count: int, *, stream: bool, hold_s: float) -> Figures:
    """Open many connections, each with a stream that runs or a request that is answered; see what is left after a while."""
    before_mb = _worker_mb(subject)
    body = chat_body(stream=True)
    request = (_stream_parts(subject, body)) if stream else ("GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", "")
    with LoadProcess(
        "hold_client", cores.load, {"port": subject.port, "before": request[0], "after": request[1], "connections": count}
    ) as client:
        opened = client.hear()["opened"]
        time.sleep(hold_s)  # what is measured is that nothing happens for so long
        client.tell("count")
        after = client.hear()
        held_mb = _worker_mb(subject)
    figures = {"wanted": count, "opened": opened, "open_after_hold": after["open"], "hold_s": hold_s}
    if stream:
        figures["moving_after_hold"] = after["heard"]
    figures["kept_ratio"] = (after["heard"] if stream else after["open"]) / count
    return figures | {"worker_rss_mb": held_mb, "per_connection_kb": round((held_mb - before_mb) * 1000 / max(1, opened), 2)}


def _stream_parts(subject: Subject, body: Body) -> tuple[str, str]:
    return subject.head(body).decode() + body.before.decode(), body.after.decode()


def _pid(subject: Subject) -> int:
    assert subject.pid is not None, "Tidegate is a process"
    return subject.pid


def _worker_mb(subject: Subject) -> float:
    """Give the resident memory of the one process that relays: our worker; a peer's last child (nginx), or its only process."""
    processes: list[psutil.Process] = family(_pid(subject))
    workers = [process for process in processes if "tidegate.node.worker" in process.cmdline()] if subject.ours else processes[-1:]
    if len(workers) != 1:
        raise BenchmarkError(f"{subject.name} has {len(workers)} processes named tidegate.node.worker; one was expected.")
    resident: int = workers[0].memory_info().rss
    return round(resident / 1e6, 1)


if __name__ == "__main__":
    sys.exit(run_alone(measure))
