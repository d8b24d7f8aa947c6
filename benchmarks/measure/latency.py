"""What Tidegate adds to the latency of a request at half of the rate that it saturates at: open loop, from when each request was due."""

from __future__ import annotations

import sys

from benchmarks.content import chat_body
from benchmarks.load.wrk import Wrk
from benchmarks.machine import Cores, share_cores, usable_cores
from benchmarks.measure.rounds import alternate
from benchmarks.options import Options, run_alone
from benchmarks.processes import LoadProcess
from benchmarks.rows import Figures, Row, difference, median_of
from benchmarks.subjects import Subject, fixed_upstream, tidegate, workplace

CONNECTIONS = 64
_FIGURES = ("p50_ms", "p99_ms", "sent_late_p99_ms")


def measure(options: Options) -> list[Row]:
    """Measure the latency that Tidegate adds at half of saturation."""
    rounds, seconds = (2, 1.5) if options.quick else (6, 3.0)
    cores, body = share_cores(usable_cores()), chat_body()
    with workplace() as place, fixed_upstream(place, cores) as port, tidegate(options.main_variant, port, cores) as ours:
        load = Wrk(place, "saturation", port=ours.port, head=ours.head(body), body=body, cores=cores.load)
        load.run(1.0, connections=CONNECTIONS)
        saturated = load.run(seconds, connections=CONNECTIONS)
        saturation = saturated.requests / saturated.seconds
        results = alternate(
            (Subject("direct", port), ours), rounds, lambda subject: paced_round(subject, cores, rate_per_s=saturation / 2, seconds=seconds)
        )
    rows = []
    for name, every in results.items():
        figures = median_of(every, _FIGURES) | {"wrong": sum(each["wrong"] for each in every), "rate_per_s": round(saturation / 2)}
        rows.append(Row("latency", name, figures, judged=name != "direct"))
    without, through = results.values()
    rows[1].figures.update({f"added_{figure}": difference(through, without, figure) for figure in ("p50_ms", "p99_ms")})
    return rows


def paced_round(subject: Subject, cores: Cores, *, rate_per_s: float, seconds: float) -> Figures:
    """Send requests at a fixed rate; give their latencies."""
    body = chat_body()
    pace = {"rate_per_s": rate_per_s, "seconds": seconds, "connections": CONNECTIONS}
    task = {"port": subject.port, "before": (subject.head(body) + body.before).decode(), "after": body.after.decode(), **pace}
    with LoadProcess("paced_client", cores.load, task) as client:
        return client.hear()


if __name__ == "__main__":
    sys.exit(run_alone(measure))
