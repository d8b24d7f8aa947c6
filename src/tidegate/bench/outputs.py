"""The files of a run: a line for each request while it goes, the reports when it is over. Nothing of a run is held for it.

A folder that cannot be written to is said before anything is sent. A report is first written beside its place: none is ever half there.
What cannot be written later, because the disk is full or the folder is gone, ends no run: its figures are printed all the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from tidegate.bench.assertions import Verdict
from tidegate.bench.html_report import html_report
from tidegate.bench.outcome import Judged
from tidegate.bench.run_report import Report, csv_heading, csv_line, report_json
from tidegate.errors import ConfigurationError

REPORT_JSON: Final = "report.json"
REQUESTS_CSV: Final = "requests.csv"
REPORT_HTML: Final = "report.html"
NO_CHARTS: Final = "report.html was not written: it needs plotly, of the extra `bench` (pip install 'tidegate[bench]')."


class Outputs:
    """The folder of one run; a context manager, by which the list of requests is closed. Without a folder nothing is written."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._requests: IO[str] | None = None
        self.trouble = ""
        """Why something of the run could not be written; empty: nothing failed."""

    def __enter__(self) -> Self:
        if self._folder is not None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._requests = (self._folder / REQUESTS_CSV).open("w", encoding="utf-8", newline="")
                self._requests.write(csv_heading())
            except OSError as error:
                raise ConfigurationError(
                    f"Nothing can be written to {self._folder}: {error.strerror}. Name another folder with --out."
                ) from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._requests is not None:
            with contextlib.suppress(OSError):  # what it still held has no room: `finish` has said so
                self._requests.close()

    def add(self, judged: Judged) -> None:
        """Write one request."""
        if self._requests is not None and not self.trouble:
            try:
                self._requests.write(csv_line(judged))
            except OSError as error:
                self._fail(error)

    def finish(self, report: Report, verdicts: Sequence[Verdict]) -> list[str]:
        """Write the reports; give what is to be told of them."""
        if self._folder is None or self._requests is None:
            return []
        written = [REPORT_JSON, REQUESTS_CSV]
        plotting = plotting_script()
        try:
            write_whole(self._folder / REPORT_JSON, report_json(report))
            if plotting is not None:
                write_whole(self._folder / REPORT_HTML, html_report(report, plotting=plotting, verdicts=verdicts).encode())
                written.append(REPORT_HTML)
            self._requests.flush()
        except OSError as error:
            self._fail(error)
        if self.trouble:
            return [self.trouble]
        told = [f"Written to {self._folder}: {', '.join(written)}"]
        return told if plotting is not None else [*told, NO_CHARTS]

    def _fail(self, error: OSError) -> None:
        self.trouble = self.trouble or f"Not all could be written to {self._folder}: {error.strerror}. Name another folder with --out."


def plotting_script() -> str | None:
    """Give plotly's JavaScript; None where the extra is not installed."""
    try:
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError:
        return None
    return str(get_plotlyjs())


def write_whole(path: Path, content: bytes) -> None:
    """Write a file beside its place, then put it there. `OSError` when that fails, and then an older one stands."""
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
