"""The HTML report: complete in itself, safe whatever a server says, and with everything that must be read first on top."""

from __future__ import annotations

import builtins
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from tests.unit.bench.runs import HEALTHY, LENIENT, TARGET, answer, failure, plan, planned, report, steady_report

from tidegate.bench.assertions import judge_assertion, parse_assertion
from tidegate.bench.costs import Basis
from tidegate.bench.html_report import html_report
from tidegate.bench.outcome import Judged, judge
from tidegate.bench.outputs import NO_CHARTS, Outputs, plotting_script
from tidegate.bench.plan import CurvePoint, Stage
from tidegate.bench.run_report import Report, read_report
from tidegate.bench.sample import End
from tidegate.errors import ConfigurationError

EVIL = '<img src="http://evil.example/x" onerror="alert(1)"></script>'
LOADING = {"src", "href", "data", "action", "poster", "srcset"}


class Elements(HTMLParser):
    """Collects what a browser would load, run and show."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[tuple[str, str]] = []
        self.scripts = 0
        self.policy = ""
        self.text = ""
        self._in_script = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.loads += [(tag, name) for name in values if name in LOADING or name.startswith("on")]
        self.loads += [(tag, tag) for _ in range(tag in {"link", "img", "iframe", "object", "embed"})]
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values.get("content") or ""
        self._in_script = tag in {"script", "style"}
        self.scripts += tag == "script"

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002  the parser's signature
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if not self._in_script:
            self.text += data


def parsed(page: str) -> Elements:
    elements = Elements()
    elements.feed(page)
    return elements


def html(of: Report) -> str:
    return html_report(of, plotting="/* plotting */", verdicts=[judge_assertion(parse_assertion("ttft.p99<1ms"), of)])


def costly(sample_cost: int) -> Judged:
    return judge(msgspec.structs.replace(answer(), cost_micro=sample_cost), planned(), LENIENT)


def test_nothing_is_loaded_from_anywhere() -> None:
    """No element names an address, with the real library in the page, and the page forbids the browser to."""
    plotting = plotting_script()
    assert plotting is not None
    assert not re.search("</script|<!--", plotting)
    elements = parsed(html_report(steady_report(), plotting=plotting))
    assert ([], 3) == (elements.loads, elements.scripts)
    assert elements.policy.startswith("default-src 'none';")
    assert "http" not in elements.policy


def test_what_a_server_says_stays_text() -> None:
    """Error texts, names and options are escaped, in tables and in what the script reads."""
    of = report(
        [judge(failure(end=End.HTTP_ERROR, status=500, error=EVIL), planned(scenario=EVIL), LENIENT)],
        target=msgspec.structs.replace(TARGET, model=EVIL),
        of=msgspec.structs.replace(plan(stages=(Stage(EVIL, 0.0, 5.0, 1.0), Stage("b", 5.0, 5.0, 2.0))), load=EVIL),
    )
    elements = parsed(html(of))
    assert ([], 3) == (elements.loads, elements.scripts)
    assert elements.text.count(EVIL) >= 5


def test_the_figures_of_the_script_are_json() -> None:
    """What is drawn is there, λ(t) beside what was achieved, and no tag can begin in it."""
    of = msgspec.structs.replace(steady_report(), curve=(CurvePoint(0.0, 10.0), CurvePoint(10.0, 10.0)))
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', html(of), re.DOTALL)
    assert found is not None
    charts = json.loads(found[1])
    assert "<" not in found[1]
    assert ["λ(t)", "due", "sent", "ok"] == [series["name"] for series in charts[0]["series"]]
    distributions = {chart["title"]: [series["name"] for series in chart["series"]] for chart in charts[5:]}
    assert ["from due", "from sent"] == distributions["TTFT: share of what was at most so much"]
    assert ["from due", "from sent"] == distributions["E2E: share of what was at most so much"]
    assert len(charts) == html(of).count('class="chart" id="chart-')


def test_the_rates_of_stages_are_drawn_where_there_is_no_curve() -> None:
    """Each holds until the next."""
    of = report([judge(answer(), planned(), LENIENT)], of=plan(stages=(Stage("a", 0.0, 5.0, 1.0), Stage("b", 5.0, 5.0, 2.0))))
    assert '"name":"λ(t)","x":[0.0,5.0,10.0],"y":[1.0,2.0,2.0],"mark":"step"' in html(of)


def test_a_run_that_does_not_count_says_so_before_any_figure() -> None:
    """A banner with the reasons; the same for one that was ended early."""
    stalled = report([judge(answer(), planned(), LENIENT)], health=msgspec.structs.replace(HEALTHY, loop_lag_max_s=0.5))
    page = html(msgspec.structs.replace(stalled, interrupted_s=3.0))
    assert page.index('role="alert"') < page.index("<h1>")
    text = parsed(page).text
    assert "This run does not count" in text
    assert "stood still" in text
    assert "Interrupted after 3 s" in text
    assert 'role="alert"' not in html(steady_report())


def test_every_figure_has_a_row() -> None:
    """Latencies, failures, outcomes, reasons, errors, cost, clients, assertions and options."""
    judged = [costly(100), costly(300), judge(failure(error="no route", due_at=1.0), planned(), LENIENT)]
    of = report(judged, of=plan(concurrency=2))
    of = msgspec.structs.replace(of, options={"--rate": "10"})
    text = parsed(html(of)).text
    for expected in (
        *("TTFT, from due", "TTFT, from sent", "E2E, from due", "TPOT", "E2E of failures, from sent", "closed loop"),
        *("transport", "no route", "as the upstream reports", "connections opened", "FAILED", "--rate", "prompt tokens"),
    ):
        assert expected in text
    assert of.whole.cost is not None
    by_book = msgspec.structs.replace(of.whole, cost=msgspec.structs.replace(of.whole.cost, basis=Basis.PRICE_BOOK))
    assert "price book" in parsed(html(msgspec.structs.replace(of, whole=by_book))).text
    assert "Interrupted" not in text


def test_a_report_without_an_answer_is_a_page_too() -> None:
    """Dashes, and no distributions."""
    text = parsed(html(report([]))).text
    assert "no request was sent" in text


# ── the files ─────────────────────────────────────────────────────────────────


def test_the_files_of_a_run(tmp_path: Path) -> None:
    """All three, and the report is read back the same."""
    of = steady_report()
    with Outputs(tmp_path / "a" / "b") as outputs:
        outputs.add(judge(answer(), planned(), LENIENT))
        assert ["Written to", "report.json, requests.csv, report.html"] == [
            outputs.finish(of, ())[0][:10],
            outputs.finish(of, ())[0].partition(": ")[2],
        ]
    folder = tmp_path / "a" / "b"
    assert {"report.json", "requests.csv", "report.html"} == {path.name for path in folder.iterdir()}
    assert of == read_report((folder / "report.json").read_bytes(), "report.json")
    assert 2 == len((folder / "requests.csv").read_text().splitlines())


def test_without_plotly_all_else_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a line says how to get it."""
    real = builtins.__import__

    def without_plotly(name: str, *arguments: object) -> ModuleType:
        if name.startswith("plotly"):
            raise ModuleNotFoundError(name)
        return real(name, *arguments)  # type: ignore[arg-type]  # handed on as it came

    monkeypatch.setattr(builtins, "__import__", without_plotly)
    with Outputs(tmp_path) as outputs:
        assert NO_CHARTS == outputs.finish(steady_report(), ())[1]
    assert {"report.json", "requests.csv"} == {path.name for path in tmp_path.iterdir()}


def test_a_folder_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    """Before anything is sent."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="--out"), Outputs(tmp_path / "file"):
        pass


def test_without_a_folder_nothing_is_written() -> None:
    """And nothing is told."""
    with Outputs(None) as outputs:
        outputs.add(judge(answer(), planned(), LENIENT))
        assert [] == outputs.finish(steady_report(), ())


def test_a_folder_that_goes_away_ends_no_run(tmp_path: Path) -> None:
    """What could not be written is told, and nothing half written is left."""
    (tmp_path / "report.html").mkdir()
    with Outputs(tmp_path) as outputs:
        outputs.add(judge(answer(), planned(), LENIENT))
        [told] = outputs.finish(steady_report(), ())
    assert told == outputs.trouble
    assert f"Not all could be written to {tmp_path}" in told
    assert {"report.json", "requests.csv", "report.html"} == {path.name for path in tmp_path.iterdir()}


def test_a_full_disk_ends_no_run(tmp_path: Path) -> None:
    """Requests are dropped from the list, once told; closing it does not fail either."""
    (tmp_path / "requests.csv").symlink_to("/dev/full")
    with Outputs(tmp_path) as outputs:
        for _ in range(500):
            outputs.add(judge(answer(), planned(), LENIENT))
        [told] = outputs.finish(steady_report(), ())
    assert "No space left" in told
