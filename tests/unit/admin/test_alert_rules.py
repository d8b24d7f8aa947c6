"""The alert rules for Prometheus: they fire when they should, read metrics that exist, and say what to do."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.admin.promql import faults, metrics_in

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "prometheus"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "tidegate.rules.yaml").read_text())["groups"] for rule in group["rules"]
]
ALERTS = [rule["alert"] for rule in RULES if "alert" in rule]
_RECORDED = re.compile(r"[a-z]+:tidegate_\w+:\w+|tidegate:\w+:\w+")


@pytest.mark.parametrize("arguments", [("check", "rules", "tidegate.rules.yaml"), ("test", "rules", "tidegate.rules.test.yaml")])
def test_prometheus_finds_the_rules_right(arguments: tuple[str, ...]) -> None:
    """Each alert fires on the series that it is for, and is silent on those that are well."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed; it comes with Prometheus")
    outcome = subprocess.run([promtool, *arguments], cwd=FOLDER, capture_output=True, text=True, check=False, timeout=50)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_reads_what_there_is(rule: dict[str, Any]) -> None:
    """Metrics, labels, buckets and outcomes of the page, and series that are recorded; a rule over anything else never fires."""
    recorded = {one["record"] for one in RULES if "record" in one}
    assert [] == faults(rule["expr"])
    series = set(_RECORDED.findall(rule["expr"]))
    assert metrics_in(rule["expr"]) or series
    assert series <= recorded


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("tidegate_request_total", "no metric tidegate_request_total"),
        ('tidegate_requests_total{tenant="a"}', "tidegate_requests_total has no label tenant"),
        ('tidegate_ttft_seconds_bucket{le="0.51"}', "tidegate_ttft_seconds_bucket has no bucket 0.51"),
        ('tidegate_requests_total{outcome=~"ok|failing_.*"}', "no outcome failing_.*"),
        ("sum by (tenant) (rate(tidegate_requests_total[5m]))", "nothing has the label tenant"),
    ],
)
def test_a_rule_that_could_never_fire_is_found(expression: str, fault: str) -> None:
    """The check itself is checked."""
    assert [fault] == faults(expression)


def test_every_alert_is_tested_and_explained() -> None:
    """It has a case in which it fires and one in which it does not, and a heading in docs/alerts.md to which its annotation leads."""
    tested = yaml.safe_load((FOLDER / "tidegate.rules.test.yaml").read_text())["tests"]
    cases = [case for test in tested for case in test["alert_rule_test"]]
    assert set(ALERTS) == {case["alertname"] for case in cases if case["exp_alerts"]}
    assert set(ALERTS) == {case["alertname"] for case in cases if not case["exp_alerts"]}
    headings = re.findall(r"^### (\w+)$", (ROOT / "docs" / "alerts.md").read_text(), re.MULTILINE)
    assert headings == ALERTS
    runbooks = [rule["annotations"]["runbook"] for rule in RULES if "alert" in rule]
    assert runbooks == [f"docs/alerts.md#{alert.lower()}" for alert in ALERTS]


def test_a_node_that_is_well_has_all_that_alerts_read() -> None:
    """Silence about series that are not there would prove nothing."""
    [well] = [test for test in yaml.safe_load((FOLDER / "tidegate.rules.test.yaml").read_text())["tests"] if "is well" in test["name"]]
    assert ALERTS == [case["alertname"] for case in well["alert_rule_test"] if not case["exp_alerts"]]
    read = {name for rule in RULES for name in metrics_in(rule["expr"])}
    assert read <= {name for series in well["input_series"] for name in metrics_in(series["series"])}
