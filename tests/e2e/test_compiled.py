"""The compiled form of the request path behaves as the pure one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.soak
def test_the_end_to_end_suite_passes_compiled(tmp_path: Path) -> None:
    """What `make up` runs where there is a compiler passes the tests that the pure form passes."""
    target = tmp_path / "compiled"
    outcome = subprocess.run([sys.executable, "tools/compile_hot_modules.py", str(target)], cwd=ROOT, check=False, timeout=600)
    if outcome.returncode == 3:
        pytest.skip("no C compiler here")
    assert outcome.returncode == 0
    assert list(target.rglob("request_flow.*.so"))
    suite = [sys.executable, "-m", "pytest", "tests/e2e", "-q", "-m", "not soak"]
    environment = os.environ | {"PYTHONPATH": str(target)}
    assert subprocess.run(suite, cwd=ROOT, env=environment, check=False, timeout=900).returncode == 0
