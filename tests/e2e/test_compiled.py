"""The compiled form of the request path behaves as the pure one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_LOWERED = """
import sys
from tidegate.domain.request import BodyChanges, Operation, ParsedRequest
from tidegate.wire.dialects import DIALECTS
from tidegate.wire.openai_request import rewrite_body
request = ParsedRequest(Operation.CHAT, "m", b'{"model":"m","messages":[],"max_tokens":2000}')
body = rewrite_body(request, model="m", dialect=DIALECTS["vllm"], ask_usage=False, changes=BodyChanges(1400, 0.1))
sys.stdout.buffer.write(body)
"""
"""Numbers must stay of their kind: a declared `float` would send 1400.0, which strict servers refuse."""


@pytest.mark.soak
def test_the_end_to_end_suite_passes_compiled(tmp_path: Path) -> None:
    """What `make up` runs where there is a compiler passes the tests that the pure form passes."""
    target = tmp_path / "compiled"
    outcome = subprocess.run([sys.executable, "tools/compile_hot_modules.py", str(target)], cwd=ROOT, check=False, timeout=600)
    if outcome.returncode == 3:
        pytest.skip("no C compiler here")
    assert outcome.returncode == 0
    assert list(target.rglob("request_flow.*.so"))
    environment = os.environ | {"PYTHONPATH": str(target)}
    lowered = [sys.executable, "-c", _LOWERED]
    assert b'{"model":"m","messages":[],"max_tokens":1400,"temperature":0.1}' == subprocess.check_output(
        lowered, env=environment, timeout=60
    )
    suite = [sys.executable, "-m", "pytest", "tests/e2e", "-q", "-m", "not soak"]
    assert subprocess.run(suite, cwd=ROOT, env=environment, check=False, timeout=900).returncode == 0
