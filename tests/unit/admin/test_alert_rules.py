"""The alert rules for Prometheus: they fire when they should, read metrics that exist, and say what to do."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidegate.adapters.metrics.tally import PROMPT_BOUNDS
from tidegate.admin.metrics import METRICS, Kind

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "prometheus"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "tidegate.rules.yaml").read_text())["groups"] for rule in group["rules"]
]
ALERTS = [rule["alert"] for rule in RULES if "alert" in rule]
_METRIC = re.compile(r"(?<![\w:])tidegate_\w+")


@pytest.mark.parametrize("arguments", [("check", "rules", "tidegate.rules.yaml"), ("test", "rules", "tidegate.rules.test.yaml")])
def test_prometheus_finds_the_rules_right(arguments: tuple[str, ...]) -> None:
    """Each alert fires on the series that it is for, and is silent on those that are well."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed; it comes with Prometheus")
    outcome = subprocess.run([promtool, *arguments], cwd=FOLDER, capture_output=True, text=True, check=False, timeout=50)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_every_metric_in_a_rule_exists() -> None:
    """Under the names by which Prometheus sees them; a rule over a metric that was renamed never fires."""
    exposed = {spec.name for spec in METRICS if spec.kind is not Kind.HISTOGRAM}
    exposed |= {f"{spec.name}_{part}" for spec in METRICS if spec.kind is Kind.HISTOGRAM for part in ("bucket", "count", "sum")}
    read = {name for rule in RULES for name in _METRIC.findall(rule["expr"])}
    assert read
    assert read <= exposed


def test_the_bound_of_long_prompts_is_a_bucket() -> None:
    """A bucket that does not exist would be an empty series."""
    (bound,) = {float(bound) for rule in RULES for bound in re.findall(r'le="([^"]+)"', rule["expr"])}
    assert bound in PROMPT_BOUNDS


def test_every_alert_is_tested_and_explained() -> None:
    """It has a case in which it fires, and a heading in docs/alerts.md to which its annotation leads."""
    tested = yaml.safe_load((FOLDER / "tidegate.rules.test.yaml").read_text())["tests"]
    fires = {case["alertname"] for test in tested for case in test["alert_rule_test"] if case["exp_alerts"]}
    assert fires == set(ALERTS)
    headings = re.findall(r"^### (\w+)$", (ROOT / "docs" / "alerts.md").read_text(), re.MULTILINE)
    assert headings == ALERTS
    runbooks = [rule["annotations"]["runbook"] for rule in RULES if "alert" in rule]
    assert runbooks == [f"docs/alerts.md#{alert.lower()}" for alert in ALERTS]
