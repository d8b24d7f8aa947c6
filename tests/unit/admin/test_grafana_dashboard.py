"""Grafana's dashboard is the one that its program writes, and shows metrics that exist."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.admin.promql import exposed, faults, metrics_in, read_by_prometheus
from tools.grafana_dashboard import FILE, ROWS, WIDTH, dashboard, page

SHOWN: dict[str, Any] = json.loads(page())
CHARTS = [panel for panel in SHOWN["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for chart in CHARTS for target in chart["targets"]]


def _filled(expression: str) -> str:
    """Give it as Grafana sends it."""
    return expression.replace("$__rate_interval", "5m").replace("$instance", ".*").replace("$route", ".*")


def test_the_file_is_current() -> None:
    """Whoever changes a panel writes the file again: `make docs`."""
    assert FILE.read_text() == page()


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_curve_reads_what_there_is(expression: str) -> None:
    """A chart of a metric or label that was renamed stays empty, and nobody is told why."""
    assert [] == faults(_filled(expression))
    assert metrics_in(expression)


def test_prometheus_reads_every_curve(tmp_path: Path) -> None:
    """All of them, with the variables filled in."""
    assert "$" not in "".join(map(_filled, EXPRESSIONS))
    read_by_prometheus(map(_filled, EXPRESSIONS), tmp_path)


def test_curves_follow_the_variables() -> None:
    """Each is of the chosen nodes, and each of a metric by route is of the chosen routes."""
    assert ["datasource", "instance", "route"] == [variable["name"] for variable in SHOWN["templating"]["list"]]
    for expression in EXPRESSIONS:
        assert 'instance=~"$instance"' in expression
        if any("route" in exposed()[name].labels for name in metrics_in(expression)):
            assert 'route=~"$route"' in expression


def test_times_show_single_requests() -> None:
    """Time to first token, time per token, and the whole have exemplars."""
    with_exemplars = {chart["title"] for chart in CHARTS if all(target["exemplar"] for target in chart["targets"])}
    assert {"Time to first token", "Time per output token", "Duration", "Gateway overhead"} == with_exemplars


def _cells(panel: dict[str, Any]) -> Iterator[tuple[int, int]]:
    place = panel["gridPos"]
    for x in range(place["x"], place["x"] + place["w"]):
        for y in range(place["y"], place["y"] + place["h"]):
            yield x, y


def test_no_panel_covers_another() -> None:
    """Each cell of the grid belongs to one at most, none is beside it, and no two have the same number."""
    cells = [cell for panel in SHOWN["panels"] for cell in _cells(panel)]
    assert len(cells) == len(set(cells))
    assert WIDTH > max(x for x, _ in cells)
    assert len(SHOWN["panels"]) == len({panel["id"] for panel in SHOWN["panels"]}) == len(ROWS) + len(CHARTS)
    assert dashboard() == SHOWN
