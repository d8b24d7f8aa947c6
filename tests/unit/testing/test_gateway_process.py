"""`GatewayProcess` waits for readiness, tells why a gateway did not start, and finds what it leaves behind."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tidegate.testing import Endpoint, GatewayProcess

STAND_IN = """
import http.server, json, pathlib, signal, subprocess, sys
mode, _, path = sys.argv[1:]
configuration = json.loads(pathlib.Path(path).read_text())
state = pathlib.Path(configuration["state_directory"])
class Page(http.server.BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        Page.asked += 1
        body = b"tidegate_requests_in_flight 0"
        self.send_response(503 if self.path == "/readyz" and Page.asked < 3 else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *parts): pass
if mode == "fails":
    print("tidegate.yaml line 3: unknown key", file=sys.stderr)
    sys.exit(2)
server = http.server.HTTPServer(("127.0.0.1", 0), Page)
address = f"http://127.0.0.1:{server.server_port}"
if mode != "silent":
    (state / "endpoints.json").write_text(json.dumps({"api": address + "/", "admin": address}))
if mode == "orphan":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"], start_new_session=True)
def stop(*_): sys.exit(3 if mode == "grumpy" else 0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if mode == "stubborn" else stop)
server.serve_forever()
"""


def stand_in(tmp_path: Path, mode: str, **settings: Any) -> GatewayProcess:
    """A process that behaves like a gateway of a given character."""
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    state = tmp_path / "state"
    state.mkdir()
    return GatewayProcess(settings.pop("configuration", {}), state_directory=state, command=(sys.executable, str(script), mode), **settings)


def test_a_ready_gateway_has_addresses_and_ends_cleanly(tmp_path: Path) -> None:
    """It is ready when `/readyz` says so, its settings are merged over the kit's own, and it ends with 0."""
    gateway = stand_in(tmp_path, "good", configuration={"server": {"workers": 2}})
    with gateway:
        assert gateway.base_url == f"{gateway.api_url}/v1"
        assert not gateway.api_url.endswith("/")
        assert "in_flight 0" in gateway.wait_for_metrics(lambda page: "in_flight" in page, deadline_s=1.0)
        assert gateway.pid > 0
    written = json.loads(gateway.configuration_path.read_text())
    assert written["server"] == {"port": 0, "workers": 2}
    assert written["local_engine"] == {"enabled": False}


def test_provider_keys_and_proxies_are_not_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own keys and proxies change no test; what the test itself sets arrives."""
    monkeypatch.setenv("OPENROUTER_API_KEY", "canary")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    tell = "import os; print(sorted(set(os.environ) & {'OPENROUTER_API_KEY', 'https_proxy', 'DASHSCOPE_API_KEY', 'PATH'}))"
    gateway = GatewayProcess(
        {}, state_directory=tmp_path, command=(sys.executable, "-c", tell), environment={"DASHSCOPE_API_KEY": "set by the test"}
    )
    with pytest.raises(AssertionError, match="did not become ready"):
        gateway.start()
    assert gateway.log() == "['DASHSCOPE_API_KEY', 'PATH']\n"


def test_a_gateway_can_be_started_again(tmp_path: Path) -> None:
    """After a stop, or a crash, the same object starts a new process and finds the new address."""
    gateway = stand_in(tmp_path, "good")
    gateway.start()
    first = gateway.pid
    gateway.kill()
    gateway.start()
    assert gateway.pid != first
    assert gateway.metrics()
    gateway.stop()


def test_a_gateway_that_ends_at_once_is_reported_with_its_output(tmp_path: Path) -> None:
    """The last lines it wrote are in the failure."""
    with pytest.raises(AssertionError, match=r"exit code 2 and did not become ready(?s:.*)unknown key"):
        stand_in(tmp_path, "fails").start()


def test_a_gateway_that_never_gets_ready_is_ended(tmp_path: Path) -> None:
    """After the deadline the process is killed and the failure says what it did not do."""
    gateway = stand_in(tmp_path, "silent", ready_deadline_s=0.3)
    with pytest.raises(TimeoutError, match="did not become ready within"):
        gateway.start()
    with pytest.raises(AssertionError, match="not running"):
        gateway.stop()


@pytest.mark.parametrize(
    ("mode", "complaint"),
    [("grumpy", "exit code 3"), ("orphan", "outlived the gateway"), ("stubborn", "did not end within")],
)
def test_a_gateway_that_ends_badly_fails_the_test(tmp_path: Path, mode: str, complaint: str) -> None:
    """A wrong exit code, a surviving child and a deaf process are each found."""
    gateway = stand_in(tmp_path, mode, stop_deadline_s=0.5)
    gateway.start()
    with pytest.raises(AssertionError, match=complaint):
        gateway.stop()


def test_a_temporary_state_directory_goes_away() -> None:
    """Without a directory of its own, nothing is left on disk, even when the start fails."""
    gateway = GatewayProcess({}, command=(sys.executable, "-c", "raise SystemExit(2)"))
    with pytest.raises(AssertionError, match="exit code 2"), gateway:
        pass
    assert not gateway.state_directory.exists()


def test_an_endpoint_does_not_show_its_key(tmp_path: Path) -> None:
    """The key is masked in the representation and present in the headers."""
    key = stand_in(tmp_path, "good").create_key(name="k")
    endpoint = Endpoint("http://127.0.0.1:1/v1", key)
    assert key.reveal() not in repr(endpoint)
    assert endpoint.headers == {"authorization": f"Bearer {key.reveal()}"}
