"""`tidegate audit`: the bodies of one request, or why there are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidegate.cli.main import main


def line(request_id: str, kind: str, body: str, **more: object) -> str:
    fields = {"request_id": request_id, "started_at": 1.0, "kind": kind, "policy": "redacted", "body": body, "truncated": False}
    return json.dumps({**fields, "bytes": 1234, "sha256": "abc", **more}, separators=(",", ":")) + "\n"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    records = tmp_path / "records"
    records.mkdir()
    rotated = line("req-1", "request", "what\u001b[2J?")
    (records / "audit-0.jsonl.1").write_text(rotated + line("req-2", "request", '"req-1" is named here'))
    (records / "audit-0.jsonl").write_text(rotated + line("req-1", "response", "that", truncated=True) + '"req-1" torn\n')
    return tmp_path


def test_both_bodies_of_a_request_are_shown_once(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From whichever file, in order; nothing in them reaches the terminal as a command."""
    assert 0 == main(["audit", "req-1", "--state-directory", str(state)])
    assert capsys.readouterr().out == (
        "request  redacted, 1,234 bytes, sha256 abc\nwhat\\u001b[2J?\n\nresponse  redacted, 1,234 bytes, truncated, sha256 abc\nthat\n\n"
    )


def test_programs_get_the_lines_as_they_are(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One JSON object for each body."""
    assert 0 == main(["audit", "req-2", "--json", "--state-directory", str(state)])
    assert line("req-2", "request", '"req-1" is named here') == capsys.readouterr().out


def test_of_a_request_that_is_not_there_it_says_why(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The name is masked, should it be a key."""
    assert 1 == main(["audit", "sk-abcdefghijklmnop", "--state-directory", str(state)])
    told = capsys.readouterr().err
    assert "nothing is kept of sk-**** in" in told
    assert "abcdefgh" not in told
