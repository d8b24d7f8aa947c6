"""Reads of an expression of Prometheus what it needs: metrics, their labels, and the values these are asked for."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from tidegate.adapters.metrics import tally
from tidegate.admin.metrics import METRICS, Kind, MetricSpec
from tidegate.domain.outcome import Outcome

TARGET = {"instance", "job"}
"""Labels that Prometheus adds."""
_SELECTOR = re.compile(r"(?<![\w:])(tidegate_\w+)\s*(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_GROUPING = re.compile(r"\b(?:by|without)\s*\(([^)]*)\)")
_BOUNDS = {
    "tidegate_prompt_tokens": tally.PROMPT_BOUNDS,
    "tidegate_output_input_ratio": tally.RATIO_BOUNDS,
    "tidegate_request_duration_seconds": tally.DURATION_BOUNDS,
    "tidegate_ttft_seconds": tally.TTFT_BOUNDS,
    "tidegate_tpot_seconds": tally.TPOT_BOUNDS,
    "tidegate_gateway_overhead_seconds": tally.OVERHEAD_BOUNDS,
}


def exposed() -> dict[str, MetricSpec]:
    """Give each metric under the names by which Prometheus sees it."""
    names: dict[str, MetricSpec] = {}
    for spec in METRICS:
        parts = ("_bucket", "_count", "_sum") if spec.kind is Kind.HISTOGRAM else ("",)
        names |= {spec.name + part: spec for part in parts}
    return names


def metrics_in(expression: str) -> set[str]:
    return {match[1] for match in _SELECTOR.finditer(expression)}


def faults(expression: str) -> list[str]:
    """Say what of an expression is not on the page: it would be empty for ever, and never told."""
    known = exposed()
    found = []
    labels = set(TARGET)
    for name, matchers in _SELECTOR.findall(expression):
        if name not in known:
            found.append(f"no metric {name}")
            continue
        own = set(known[name].labels) | ({"le"} if name.endswith("_bucket") else set()) | TARGET
        labels |= own
        for label, operator, value in _MATCHER.findall(matchers):
            if label not in own:
                found.append(f"{name} has no label {label}")
            elif label == "le" and value not in {repr(bound) for bound in _BOUNDS[known[name].name]}:
                found.append(f"{name} has no bucket {value}")
            elif label == "outcome":
                parts = value.split("|") if "~" in operator else [value]
                found += [f"no outcome {part}" for part in parts if not any(re.fullmatch(part, outcome) for outcome in Outcome)]
    grouped = {label.strip() for group in _GROUPING.findall(expression) for label in group.split(",")} - {""}
    if metrics_in(expression):  # recorded series have the labels of what they were made of
        found += [f"nothing has the label {label}" for label in sorted(grouped - labels)]
    return found


def read_by_prometheus(expressions: Iterable[str], folder: Path) -> None:
    """Have Prometheus itself read them."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed; it comes with Prometheus")
    rules = [{"record": f"read:{number}", "expr": expression} for number, expression in enumerate(expressions)]
    assert rules
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "read", "rules": rules}]}))
    command = [promtool, "check", "rules", "--lint=none", "rules.yaml"]
    outcome = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=50)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
