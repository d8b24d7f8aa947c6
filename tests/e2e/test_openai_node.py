"""The official `openai` package for Node works unchanged: the stories are in node/sdk.test.mjs, the scripts here."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest

from tidegate.testing import Endpoint, Script, ThreadedUpstream, ToolCall, error_event_after, hang_before_headers, split_every

FOLDER = pathlib.Path(__file__).parent / "node"
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="node is not installed; the suite for the openai npm package needs it"),
    pytest.mark.skipif(not (FOLDER / "node_modules" / "openai").is_dir(), reason="run `npm ci` in tests/e2e/node first"),
]


def test_the_node_sdk(endpoint: Endpoint, upstream: ThreadedUpstream) -> None:
    """Every story of the Node suite passes, against the upstream itself and through the gateway."""
    upstream.scripts["say-tools"] = Script(tool_calls=(ToolCall(name="weather", arguments='{"city":"杭州"}', id="call_7", piece_chars=3),))
    upstream.scripts["say-long"] = Script(pieces=("潮水", "🌊👩‍👩‍👧‍👦", " end"), split=split_every(3))
    upstream.scripts["cut"] = Script(fault=error_event_after(3))
    upstream.scripts["hanging"] = Script(fault=hang_before_headers())
    upstream.scripts["limited"] = Script(status=429, headers=(("retry-after", "2"),))
    environment = {
        "PATH": os.environ["PATH"],
        "TIDEGATE_BASE_URL": endpoint.base_url,
        "TIDEGATE_API_KEY": endpoint.api_key.reveal(),
        "TIDEGATE_DIRECT": "1" if endpoint == upstream.endpoint else "",
    }
    suite = subprocess.run(
        [NODE or "node", "--test", "--test-reporter=spec", "sdk.test.mjs"],
        cwd=FOLDER,
        env=environment,
        capture_output=True,
        text=True,
        timeout=45.0,
        check=False,
    )
    assert suite.returncode == 0, suite.stdout[-6000:] + suite.stderr[-2000:]
    assert "pass 0" not in suite.stdout, suite.stdout
