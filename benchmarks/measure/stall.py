"""How long the event loop stands still while a 5 MB prompt is counted: health checks every 2 ms, from when each was due.

The key's limit is so near that the cheap bound on the prompt will not do and the exact count is asked for, which `/metrics` must confirm.
The gateway runs on all cores: the counting process is meant to have another than the worker. The same probe with nothing going on tells
what the machine itself takes.
"""

from __future__ import annotations

import re
import sys
import time
from http import HTTPStatus

from benchmarks.content import PATH, long_body
from benchmarks.errors import BenchmarkError
from benchmarks.machine import Cores, share_cores, undisturbed, usable_cores
from benchmarks.options import Options, run_alone
from benchmarks.processes import LoadProcess, post
from benchmarks.rows import Figures, Row
from benchmarks.subjects import Subject, fixed_upstream, tidegate, workplace

PROMPT_BYTES = 5_000_000
TOKENS_PER_MINUTE = 30_000_000
"""Six times the prompt's bound: under the eight from which the bound is enough, and room for all prompts of the measurement."""
PROBE_PER_S = 500.0
PROBE_CONNECTIONS = 16
PAUSE_S = 0.2
"""From the beginning of a slice to its prompt: the probe process is starting meanwhile."""
PROMPT_S = 1.2
"""One slice of the probe: more than a prompt takes to be sent, counted and answered."""


def measure(options: Options) -> list[Row]:
    """Measure the longest standstill of the event loop while a long prompt is counted."""
    prompts = 3 if options.quick else 6
    cores = share_cores(usable_cores())
    limit = TOKENS_PER_MINUTE
    with (
        workplace() as place,
        fixed_upstream(place, cores) as upstream,
        tidegate(options.main_variant, upstream, cores, tokens_per_minute=limit, pin=False) as ours,
    ):
        with _probe(ours, cores, seconds=prompts * PROMPT_S) as probe:
            quiet: Figures = probe.hear()
        before = _counted(ours)
        with _probe(ours, cores, seconds=prompts * PROMPT_S) as probe:
            _send_prompts(ours, prompts)
            busy: Figures = probe.hear()
        counted = _counted(ours) - before
    if counted < prompts:
        raise BenchmarkError(f"Of {prompts} long prompts only {counted:.0f} were counted exactly, so the standstill was not measured.")
    names = ("p50_ms", "p99_ms", "slice_worst_ms", "largest_ms", "wrong")
    rows = [
        Row("stall", f"{ours.name}, {state}", {name: figures[name] for name in names}, judged=state == "counting")
        for state, figures in (("at rest", quiet), ("counting", busy))
    ]
    rows[1].figures["prompts_counted"] = counted
    return rows


def _probe(ours: Subject, cores: Cores, *, seconds: float) -> LoadProcess:
    """Ask `/livez` at a fixed rate; enough connections that one slow answer does not keep the others waiting."""
    request = "GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    pace = {"rate_per_s": PROBE_PER_S, "seconds": seconds, "connections": PROBE_CONNECTIONS, "slice_s": PROMPT_S}
    task = {"port": ours.port, "before": request, "after": "", **pace}
    return LoadProcess("paced_client", cores.load, task, before=undisturbed())


def _send_prompts(ours: Subject, count: int) -> None:
    """Send the long prompts, one in each slice of the probe, none equal to another."""
    body = long_body(PROMPT_BYTES)
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number * PROMPT_S + PAUSE_S - time.monotonic()))
        status, answer = post(ours.port, PATH, ours.headers, body.numbered(number))
        if status != HTTPStatus.OK:
            raise BenchmarkError(f"A prompt of {body.size} bytes was answered with {status}: {answer[:300]!r}")


def _counted(ours: Subject) -> float:
    """Give the number of prompts that were counted with the tokenizer, and not guessed after all."""
    page = ours.metrics()
    return _total(page, "tidegate_prompt_counts_total") - _total(page, "tidegate_prompt_count_fallbacks_total")


def _total(page: str, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", page, re.MULTILINE)
    if found is None:
        raise BenchmarkError(f"/metrics has no {name}; was the metric renamed?")
    return float(found[1])


if __name__ == "__main__":
    sys.exit(run_alone(measure))
