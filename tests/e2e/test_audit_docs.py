"""The example of docs/audit.md runs as it is pasted, and what is kept of it is what the page says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tidegate.config.load import Loaded, load_text
from tidegate.testing import GatewayProcess, ThreadedUpstream

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")


def example(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the example is for curl")
def test_the_example_is_kept_as_the_page_says(tmp_path: Path) -> None:
    """The request as metadata, redacted and full, with the page's own pattern."""
    expected = json.loads(example("json"))
    kept: dict[str, object] = {}
    with ThreadedUpstream(models=("qwen3.6-plus",)) as upstream:
        there = {"dialect": "openai", "base_url": upstream.base_url, "models": ["qwen3.6-plus"], "health": {"enabled": False}}
        audit = {
            "rules": [{"tenant": policy, "policy": policy} for policy in expected],
            "patterns": [{"name": "staff", "pattern": r"E-\d{6}"}],
        }
        with GatewayProcess({"upstreams": {"there": there}, "audit": audit}) as gateway:
            for policy in expected:
                key = gateway.create_key(tenant=policy)
                gateway.wait_for_key(key)
                environment = os.environ | {"TIDEGATE_URL": gateway.api_url, "TIDEGATE_KEY": key.reveal(), "no_proxy": "127.0.0.1"}
                subprocess.run(["/bin/sh", "-ec", example("sh")], env=environment, cwd=tmp_path, check=True, timeout=30)
            file = gateway.state_directory / "records" / "audit-0.jsonl"
            deadline = time.monotonic() + 10.0
            while not file.exists() or len(file.read_text().splitlines()) < 2 * len(expected):
                assert time.monotonic() < deadline, "the bodies are not written"
                time.sleep(0.02)
            for line in map(json.loads, file.read_text().splitlines()):
                if line["kind"] == "request":
                    kept[line["policy"]] = json.loads(line["body"])
    for policy in ("redacted", "full"):
        kept[policy] = kept[policy]["messages"][0]["content"]  # type: ignore[index]
    assert expected == kept


def test_the_configuration_is_one() -> None:
    """It loads, with the page's pattern and rules."""
    loaded = load_text(example("yaml"), {})
    assert isinstance(loaded, Loaded), loaded
    assert 2 == len(loaded.configuration.audit.rules)
    assert (r"E-\d{6}", "staff") == (loaded.configuration.audit.patterns[0].pattern, loaded.configuration.audit.patterns[0].name)
