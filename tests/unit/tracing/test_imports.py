"""What is installed for tracing costs nobody anything who does not trace."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["tidegate.node.worker", "tidegate.node.recorder", "tidegate.node.supervisor"])
def test_without_tracing_nothing_of_it_is_imported(module: str) -> None:
    """Neither OpenTelemetry nor what it needs."""
    code = f"import sys, {module}; print([name for name in sys.modules if name.split('.')[0] in ('opentelemetry', 'requests', 'google')])"
    assert "[]" == subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=30.0).stdout.strip()
