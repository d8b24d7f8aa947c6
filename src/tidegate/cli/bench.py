"""`tidegate bench`, `tidegate bench compare`, `tidegate bench regress`: a load test, two of them side by side, one against a baseline.

0: it is good. 1: an assertion failed, or something regressed. 2: an option is wrong, or the target refused the probe. 3: the run does not
count, because the client was the bottleneck. 130: interrupted; the report is of what there was.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from tidegate.cli.bench_options import JudgingChoice, LoadChoice, OutputChoice, RequestChoice, SendingChoice
from tidegate.errors import ConfigurationError
from tidegate.node.exits import Exit

_EPILOGUE = """\
Exit codes: 0 it is good; 1 an assertion failed, or something regressed; 2 an option is wrong, or the target refused the first request;
3 the run does not count, because the client was the bottleneck; 130 interrupted.\
"""
_MOST_FILE_BYTES = 268_435_456
"""Of a report: a thousand stages with all their histograms are less."""


def build_bench() -> App:
    """Declare the commands."""
    app = App(name="bench", help_epilogue=_EPILOGUE)
    app.default(bench)
    app.command(compare)
    app.command(regress)
    return app


def bench(
    url: Annotated[str, Parameter(help="The API under test, up to and including its version: `http://127.0.0.1:8080/v1`.")],
    /,
    *,
    model: Annotated[str, Parameter(help="The model that is asked.")],
    load: LoadChoice = LoadChoice(),  # noqa: B008  it is frozen
    requests: RequestChoice = RequestChoice(),  # noqa: B008  it is frozen
    sending: SendingChoice = SendingChoice(),  # noqa: B008  it is frozen
    judging: JudgingChoice = JudgingChoice(),  # noqa: B008  it is frozen
    output: OutputChoice = OutputChoice(),  # noqa: B008  it is frozen
) -> int:
    """Load an OpenAI-compatible API, count its tokens, and say honestly how it did.

    Requests are sent when due, whether or not earlier ones have ended, and latencies count from then. Progress is on standard error, the
    figures on standard output. `docs/bench.md` says what each figure means.
    """
    from tidegate.cli import bench_run

    options = bench_run.options(url, model, load=load, requests=requests, sending=sending, judging=judging, environ=os.environ)
    return bench_run.run(options, judging.assert_, output)


def compare(
    before: Annotated[Path, Parameter(help="The `report.json` of one run.")],
    after: Annotated[Path, Parameter(help="That of another.")],
    /,
    *,
    json: Annotated[bool, Parameter(help="Print the comparison as JSON.", negative="", show_default=False)] = False,
) -> int:
    """Put two reports side by side, and say which changes are more than noise. Exits with 0 whatever it finds."""
    from tidegate.bench.compare import compare as compared
    from tidegate.bench.run_report import read_report
    from tidegate.cli import bench_text

    first, second = (read_report(_content(path), str(path)) for path in (before, after))
    bench_text.print_comparison(compared(first, second), as_json=json)
    return Exit.OK


def regress(
    report: Annotated[Path, Parameter(help="The `report.json` of the run that is judged.")],
    /,
    *,
    baseline: Annotated[Path, Parameter(help="The file with what earlier runs reached; the first run makes it.")],
    tolerance: Annotated[
        tuple[str, ...],
        Parameter(help="`METRIC=PERCENT` that it may be worse, like `ttft.p99=15%`; may be repeated.", negative="", show_default=False),
    ] = (),
    accept: Annotated[bool, Parameter(help="Make this run the baseline, whatever it is like.", negative="", show_default=False)] = False,
    json: Annotated[bool, Parameter(help="Print the findings as JSON.", negative="", show_default=False)] = False,
) -> int:
    """Hold a run to a baseline that is kept in a file. Exits with 1 when it is worse by more than the tolerance and by more than noise."""
    from tidegate.bench import baseline as baselines
    from tidegate.bench.run_report import read_report
    from tidegate.cli import bench_text

    run = read_report(_content(report), str(report))
    tolerances = dict(baselines.parse_tolerance(text) for text in tolerance)
    if accept or not baseline.exists():
        _keep(baseline, baselines.baseline_json(baselines.baseline_of(run)))
        bench_text.say(f"{baseline} is now what {report} reached.")
        return Exit.OK
    found = baselines.regressions(baselines.read_baseline(_content(baseline), str(baseline)), run, tolerances)
    bench_text.print_regressions(found, as_json=json)
    if found.obstacles:
        return Exit.INVALID if not run.valid else Exit.USAGE
    return Exit.FAILED if found.regressed else Exit.OK


def _content(path: Path) -> bytes:
    """Read a file that a person named."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}. `tidegate bench --out DIR` writes reports.") from error
    if len(text) > _MOST_FILE_BYTES:
        raise ConfigurationError(f"{path} is larger than {_MOST_FILE_BYTES:,} bytes. Is this the right file?")
    return text


def _keep(path: Path, text: bytes) -> None:
    """Write a file that a person named."""
    from tidegate.bench.outputs import write_whole

    try:
        write_whole(path, text)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}. Name another file.") from error
