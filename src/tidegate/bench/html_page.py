"""A page that is complete in itself: style, script and figures are in the one file, and its policy forbids the browser to load more.

Invariants: every text is escaped where it enters the page (`escape`, `table`), and what the script reads is JSON in which no tag can begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from html import escape

import msgspec


class Mark(StrEnum):
    """How a series is drawn."""

    LINE = "line"
    STEP = "step"
    """A value that holds until the next one: a rate that was asked for."""
    BAR = "bar"


class Series(msgspec.Struct, frozen=True):
    """One line, or the bars of one colour. None in `y` is a gap."""

    name: str
    x: tuple[float | str, ...]
    y: tuple[float | None, ...]
    mark: Mark = Mark.LINE
    dashed: bool = False
    bad: bool = False
    """In the colour of failures."""


class Chart(msgspec.Struct, frozen=True):
    """What is drawn in one frame. Bars stand on each other where `stacked`, else before each other."""

    title: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    log_x: bool = False
    stacked: bool = False


_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
)

_STYLE = """
:root { color-scheme: light dark;
  --ink: #1b1f24; --quiet: #59636e; --paper: #ffffff; --card: #f6f8fa; --line: #d1d9e0; --bad: #b3261e; --bad-paper: #fdecea; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --quiet: #9198a1; --paper: #0d1117; --card: #161b22; --line: #3d444d; --bad: #ff8a80; --bad-paper: #3a1513; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem;
  background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: .5rem 0 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .4rem 0; overflow-wrap: anywhere; }
.quiet { color: var(--quiet); }
.banner { border: 2px solid var(--bad); background: var(--bad-paper); color: var(--bad); }
.banner { border-radius: 6px; padding: .6rem 1rem; margin: 0 0 1rem; }
.banner ul { margin: .3rem 0; padding-left: 1.2rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .6rem; margin: 1rem 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .5rem .8rem; }
.tile b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
th { color: var(--quiet); font-weight: 600; }
.words td:not(:first-child) { white-space: normal; text-align: left; vertical-align: top; overflow-wrap: anywhere; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 32rem), 1fr)); gap: 1rem; }
figure { margin: 0; min-width: 0; overflow: hidden; border: 1px solid var(--line); border-radius: 6px; }
figcaption { padding: .5rem .8rem 0; font-weight: 600; font-size: .9rem; }
.chart { height: 19rem; }
"""

_SCRIPT = """
const charts = JSON.parse(document.getElementById("figures").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const colours = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#999999"];
function draw() {
  const ink = dark.matches ? "#e6edf3" : "#1b1f24", grid = dark.matches ? "#3d444d" : "#d1d9e0";
  charts.forEach((chart, number) => {
    const traces = chart.series.map(one => ({
      name: one.name, x: one.x, y: one.y, type: one.mark === "bar" ? "bar" : "scatter", mode: "lines",
      line: {shape: one.mark === "step" ? "hv" : "linear", dash: one.dashed ? "dot" : "solid", width: 2},
      marker: one.bad ? {color: "#d55e00"} : {}, opacity: one.mark === "bar" && !chart.stacked ? 0.7 : 1}));
    const axis = {gridcolor: grid, zerolinecolor: grid, linecolor: grid, automargin: true};
    Plotly.react("chart-" + number, traces, {
      colorway: dark.matches ? ["#4da3d9", ...colours.slice(1)] : colours, font: {color: ink, size: 12},
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", barmode: chart.stacked ? "stack" : "overlay", bargap: 0.02,
      margin: {l: 48, r: 16, t: 10, b: 40}, legend: {orientation: "h", y: -0.28, yanchor: "top"}, hovermode: "x unified", showlegend: true,
      xaxis: {...axis, title: {text: chart.x_title}, type: chart.log_x ? "log" : "-"},
      yaxis: {...axis, title: {text: chart.y_title}, rangemode: "tozero"}},
      {responsive: true, displayModeBar: false});
  });
}
dark.addEventListener("change", draw);
draw();
"""


def page(title: str, body: str, charts: Sequence[Chart], *, plotting: str) -> str:
    """Put a page together. `plotting` is the plotting library itself; `body` is HTML, in which `places` says where the charts are."""
    figures = msgspec.json.encode(charts).decode().replace("<", "\\u003c")
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
{body}
<script type="application/json" id="figures">{figures}</script>
<script>{plotting}</script>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def places(charts: Sequence[Chart], *, first: int = 0) -> str:
    """Give the frames of charts, which are numbered from `first` on."""
    frames = "".join(
        f'<figure><figcaption>{escape(chart.title)}</figcaption><div class="chart" id="chart-{number}"></div></figure>'
        for number, chart in enumerate(charts, start=first)
    )
    return f'<div class="charts">{frames}</div>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, words: bool = False) -> str:
    """Give a table that scrolls by itself where the page is narrow; `words`: its cells are text, which may be broken."""
    header = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    kind = ' class="words"' if words else ""
    first = f"<thead><tr>{header}</tr></thead>" if head else ""
    return f'<div class="wide"><table{kind}>{first}<tbody>{lines}</tbody></table></div>'


def tiles(figures: Sequence[tuple[str, str]]) -> str:
    """Give the few figures that are looked at first: what each is, and its value."""
    return (
        '<div class="tiles">'
        + "".join(f'<div class="tile">{escape(name)}<b>{escape(value)}</b></div>' for name, value in figures)
        + "</div>"
    )


def banner(title: str, reasons: Sequence[str]) -> str:
    """Give what must be read before any figure."""
    lines = "".join(f"<li>{escape(reason)}</li>" for reason in reasons)
    return f'<div class="banner" role="alert"><strong>{escape(title)}</strong>' + (f"<ul>{lines}</ul>" if lines else "") + "</div>"
