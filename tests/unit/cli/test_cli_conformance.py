"""`tidegate conformance`: what it refuses to run, what it says it left out, and how a scripted upstream that is gone shows."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tidegate.cli.main import main
from tidegate.testing import ThreadedUpstream

LEAVING = "leave-mid-stream"


def closed_port() -> int:
    """Give a port at which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def stranger() -> Iterator[str]:
    """Give the address of a server that knows no path and answers with a page."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("url", ["127.0.0.1:8080/v1", "ftp://127.0.0.1/v1", "http:///v1", "http://127.0.0.1:http/v1"])
def test_an_address_without_scheme_host_or_port_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The gateway's address: the message repeats it and shows a right one."""
    assert main(["conformance", "--url", url]) == 2
    said = capsys.readouterr().err
    assert f'"{url}" is not an address' in said
    assert "http://127.0.0.1:8080/v1" in said


@pytest.mark.parametrize("url", ["127.0.0.1:9100", "https://127.0.0.1:9100", "localhost"])
def test_the_scripted_upstreams_address_is_judged_too(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`tidegate mock` speaks plain HTTP, and nothing is asked before its address is known to be one."""
    assert main(["conformance", "--url", "http://127.0.0.1:8080/v1", "--mock-url", url]) == 2
    assert f'--mock-url "{url}" is not an address' in capsys.readouterr().err


def test_a_run_of_no_case_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """When all chosen cases need the scripted upstream, nothing held: the command says what they need."""
    assert main(["conformance", "--url", "http://127.0.0.1:8080/v1", "--only", "leave-*"]) == 2
    said = capsys.readouterr()
    assert "Nothing to run" in said.err
    assert LEAVING in said.err
    assert "--mock-url" in said.err
    assert said.out == ""


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_what_was_left_out_is_told_beside_the_results(form: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """In both forms on the error stream, so that `--json` stays JSON; the cases that ran hold."""
    with ThreadedUpstream() as upstream:
        assert main(["conformance", "--url", upstream.base_url, "--key", "k", "--only", "comments", "--only", LEAVING, *form]) == 0
    said = capsys.readouterr()
    assert "1 cases were left out: they need --mock-url" in said.err
    assert "left out" not in said.out
    assert not form or {"comments"} == {row["case"] for row in json.loads(said.out)}


@pytest.mark.parametrize("answers", [False, True])
def test_a_scripted_upstream_that_cannot_be_asked_is_a_complaint(answers: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing listens there, or what answers does not tell: the case did not hold, and the run goes on to its results."""
    with ThreadedUpstream() as upstream, stranger() as there:
        url = there if answers else f"http://127.0.0.1:{closed_port()}"
        only = ("--only", LEAVING, "--only", "comments")
        status = main(["conformance", "--url", upstream.base_url, "--key", "k", "--mock-url", url, *only, "--json"])
    assert status == 1
    complaints = {(row["case"], row["way"]): row["complaint"] for row in json.loads(capsys.readouterr().out)}
    assert complaints["comments", "chat stream"] is None
    for way in ("chat stream", "completion stream"):
        assert f"at {url} " in complaints[LEAVING, way]


def test_a_gateway_that_is_not_there_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """And not as hundreds of cases that failed."""
    url = f"http://127.0.0.1:{closed_port()}/v1"
    assert main(["conformance", "--url", url, "--key", "k"]) == 2
    said = capsys.readouterr()
    assert f"{url} gives no answer" in said.err
    assert said.out == ""


def test_a_key_that_does_not_work_is_told_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It is asked again for a while, since the key may have been made just now."""
    monkeypatch.setattr("tidegate.cli.conformance._KEY_WORKS_WITHIN_S", 0.3)
    with ThreadedUpstream(api_key="sesame") as upstream:
        assert main(["conformance", "--url", upstream.base_url, "--key", "wrong"]) == 2
        assert len(upstream.requests) > 1
    assert f"{upstream.base_url} refuses the key (status 401)" in capsys.readouterr().err
