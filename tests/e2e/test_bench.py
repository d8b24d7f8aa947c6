"""`tidegate bench` as a process, against the scripted upstream: what it sends, says, writes and exits with."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.testing import ThreadedUpstream

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk-bench-canary"


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadedUpstream]:
    with ThreadedUpstream(models=("scripted",), api_key=KEY) as upstream:
        yield upstream


@pytest.fixture
def target(server: ThreadedUpstream) -> ThreadedUpstream:
    server.reset()
    return server


def environment(key: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy") and name != "OPENAI_API_KEY"}
    return kept | {"TIDEGATE_KEY": key}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "tidegate.cli.main", "bench", *arguments]


def bench(*arguments: str, folder: Path, key: str = KEY) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), cwd=folder, env=environment(key), capture_output=True, text=True, timeout=30, check=False)


def status_of(report: Path, *, otherwise: int) -> int:
    """Give the status that a run must have: 3 where this machine was too busy for it to count."""
    return 3 if json.loads(report.read_text())["invalid"] else otherwise


def test_a_run_is_sent_judged_and_written(target: ThreadedUpstream, tmp_path: Path) -> None:
    """Every request is coloured and counted; all files are there, and the key is in none of them."""
    run = bench(
        *(target.base_url, "--model", "scripted", "--load", "constant", "--rate", "40", "--length-s", "1", "--clients", "2"),
        *("--scenario", "support_chat", "--short-ratio", "0", "--out", "out", "--json", "--assert", "success>=99%", "ttft.p50<1us"),
        folder=tmp_path,
    )
    out = tmp_path / "out"
    assert status_of(out / "report.json", otherwise=1) == run.returncode, run.stderr
    assert json.loads(run.stdout) == json.loads((out / "report.json").read_text())
    assert 40 == json.loads(run.stdout)["whole"]["outcomes"]["ok"]
    assert "holds  success>=99%" in run.stderr
    assert "FAILED  ttft.p50<1us" in run.stderr
    assert 40 == len(list(csv.DictReader((out / "requests.csv").read_text().splitlines())))
    received = target.requests
    assert 41 == len(received), "the load and one probe"
    assert {"bench"} == {request.header("x-tidegate-color") for request in received}
    assert [] == [file.name for file in out.iterdir() if KEY in file.read_text()]
    assert {"report.html", "report.json", "requests.csv"} == {file.name for file in out.iterdir()}


@pytest.mark.soak
def test_a_sweep_is_one_report_of_its_steps(target: ThreadedUpstream, tmp_path: Path) -> None:
    """Here of one step, over the other endpoint, without streams: it says which rate held, and each step is a stage."""
    run = bench(
        *(target.base_url, "--model", "scripted", "--load", "sweep", "--rate", "30", "--to-rate", "30", "--length-s", "0.5"),
        *("--scenario", "support_chat", "--short-ratio", "0", "--no-probe", "--out", "out", "--endpoint", "completions", "--no-stream"),
        folder=tmp_path,
    )
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert "30/s" == report["stages"][0]["name"], run.stderr
    assert "30/s: sent" in run.stderr
    assert report["remarks"][0].startswith(("Every rate held", "No rate held", "30/s held"))
    assert {"/v1/completions"} == {request.path for request in target.requests}


def test_a_wrong_key_is_found_out_by_one_request(target: ThreadedUpstream, tmp_path: Path) -> None:
    """Said at once, with what to do, and without the key."""
    run = bench(target.base_url, "--model", "scripted", "--rate", "1000", "--scenario", "support_chat", folder=tmp_path, key="sk-wrong")
    assert 2 == run.returncode
    assert "refuses the caller (401" in run.stderr
    assert "It was taken from the variable TIDEGATE_KEY." in run.stderr
    assert "sk-wrong" not in run.stderr
    assert 1 == len(target.requests)


def test_ctrl_c_gives_a_report_of_what_there_was(target: ThreadedUpstream, tmp_path: Path) -> None:
    """Status 130, the files are written, and no client process is left."""
    arguments = (target.base_url, "--model", "scripted", "--rate", "50", "--length-s", "60", "--scenario", "support_chat", "--out", "out")
    piped = subprocess.PIPE
    process = subprocess.Popen(command(*arguments, "--no-probe"), cwd=tmp_path, env=environment(KEY), stdout=piped, stderr=piped)
    try:
        target.wait_for(lambda: len(target.requests) >= 5, 20)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert 130 == process.returncode, errors
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["interrupted_s"] < 60
    assert report["whole"]["requests"] >= 1


def test_the_first_example_of_the_page_runs(target: ThreadedUpstream, tmp_path: Path) -> None:
    """`docs/bench.md`: a run, a comparison, and a baseline, as they stand there."""
    page = (ROOT / "docs" / "bench.md").read_text()
    block = re.search(r"^```sh\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert block is not None
    lines = [shlex.split(line, comments=True) for line in block[1].splitlines()]
    assert ["tidegate", "mock", "--quiet"] == lines[0]
    for line in lines[1:]:
        words = [word.replace("http://127.0.0.1:9100/v1", target.base_url) for word in line]
        assert ["tidegate", "bench"] == words[:2]
        run = bench(*words[2:], folder=tmp_path)
        assert run.returncode in (0, status_of(tmp_path / "monday" / "report.json", otherwise=0), 2), run.stderr
        if json.loads((tmp_path / "monday" / "report.json").read_text())["invalid"]:
            break  # a machine that is too busy has no baseline
