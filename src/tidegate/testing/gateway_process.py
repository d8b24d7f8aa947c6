"""Starts a real gateway as a child process for a test, waits until it is ready, and sees to it that it ends without a trace.

The gateway writes `endpoints.json` into its state directory once it listens; that file and `/readyz` are the only signs trusted.
Needs `psutil` (the `test` extra) to check that no descendant outlives the gateway.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tidegate.adapters.wall_clock import wall_clock
from tidegate.domain.principal import Limits
from tidegate.domain.units import Secret
from tidegate.mock.endpoint import Endpoint

_POLL_S = 0.02
_LOG_TAIL_BYTES = 4000  # enough for a traceback and the lines before it


class GatewayProcess:
    """`tidegate serve` on free ports, with local engine and tables of records off unless `configuration` turns them on.

    Use as a context manager.

    `configuration` is the content of `tidegate.yaml`, without ports and state directory; `command` is what to run, if not this
    interpreter's Tidegate. The environment is inherited, without provider keys and proxies. Ending the context sends SIGTERM and
    asserts that the exit code is 0 and that no child survives.
    """

    def __init__(
        self,
        configuration: Mapping[str, Any],
        *,
        state_directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
        command: tuple[str, ...] | None = None,
        ready_deadline_s: float = 30.0,
        stop_deadline_s: float = 15.0,
    ) -> None:
        self._configuration = configuration
        self._environment = environment or {}
        self._command = command or (sys.executable, "-m", "tidegate.cli.main", "serve")
        self._ready_deadline_s = ready_deadline_s
        self._stop_deadline_s = stop_deadline_s
        self._owned: tempfile.TemporaryDirectory[str] | None = None
        if state_directory is None:
            self._owned = tempfile.TemporaryDirectory(prefix="tidegate-test-")
            state_directory = Path(self._owned.name)
        self.state_directory = state_directory
        self.api_url = ""
        """Address of the API without `/v1`, once ready."""
        self.admin_url = ""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def base_url(self) -> str:
        """What an `openai` client takes as `base_url`."""
        return f"{self.api_url}/v1"

    def endpoint(self, key: Secret) -> Endpoint:
        return Endpoint(self.base_url, key)

    @property
    def pid(self) -> int:
        if self._process is None:
            raise AssertionError("the gateway is not running")
        return self._process.pid

    @property
    def configuration_path(self) -> Path:
        return self.state_directory / "tidegate.yaml"

    def log(self) -> str:
        """What the gateway wrote so far on standard output and error."""
        with contextlib.suppress(FileNotFoundError):
            return self._log_path.read_text(errors="replace")
        return ""

    def create_key(
        self,
        *,
        name: str = "test",
        tenant: str = "test",
        user: str = "test",
        limits: Limits | None = None,
        models: tuple[str, ...] = ("*",),
    ) -> Secret:
        """Make an API key; a running gateway knows it within a second, `wait_for_key` says when."""
        from tidegate.adapters.keys.store import KeyStore
        from tidegate.wiring.worker import KEYS_FILE

        store = KeyStore(self.state_directory / KEYS_FILE)
        try:
            created = store.create(name=name, tenant=tenant, user=user, now=wall_clock(), limits=limits, models=models)
        finally:
            store.close()
        return created.token

    def wait_for_key(self, key: Secret, *, deadline_s: float = 5.0) -> None:
        """Wait until the running gateway accepts `key`."""
        headers = {"authorization": f"Bearer {key.reveal()}"}
        self._wait(lambda: self._get(f"{self.api_url}/v1/models", headers=headers)[0] == http.HTTPStatus.OK, deadline_s, "accept a key")

    def metrics(self) -> str:
        """The admin port's `/metrics` page."""
        status, page = self._get(f"{self.admin_url}/metrics")
        if status != http.HTTPStatus.OK:
            raise AssertionError(f"/metrics answered {status}: {page[:200]!r}")
        return page.decode()

    def wait_for_metrics(self, condition: Callable[[str], bool], *, deadline_s: float) -> str:
        """Fetch `/metrics` until `condition(page)` holds, and give that page."""
        page = ""

        def holds() -> bool:
            nonlocal page
            page = self.metrics()
            return condition(page)

        self._wait(holds, deadline_s, "show the expected metrics")
        return page

    def start(self) -> None:
        """Start and wait until ready; a gateway that ends or dallies is reported with the end of its output."""
        if self._process is not None:
            raise AssertionError("the gateway is running already")
        fixed: dict[str, Any] = {
            "state_directory": str(self.state_directory),
            "server": {"port": 0},
            "admin": {"port": 0},
            "local_engine": {"enabled": False},
            "analytics": {"enabled": False},
        }
        self.configuration_path.write_text(json.dumps(_merged(fixed, self._configuration), indent=2))  # JSON is YAML too
        self._endpoints_path.unlink(missing_ok=True)
        self.api_url = self.admin_url = ""
        command = [*self._command, "--config", str(self.configuration_path)]
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  our own command line
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**_quiet_environment(), **self._environment},
                start_new_session=True,
            )
        try:
            self._wait(self._is_ready, self._ready_deadline_s, "become ready")
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Send SIGTERM; assert that the exit code is 0 and that nothing the gateway started is left."""
        psutil: Any = importlib.import_module("psutil")  # untyped, and only in the test extra
        process = self._process
        if process is None:
            raise AssertionError("the gateway is not running")
        try:
            descendants = psutil.Process(process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            descendants = []
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(self._stop_deadline_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the gateway did not end within {self._stop_deadline_s} s of SIGTERM{self._tail()}") from None
        self._process = None
        _, alive = psutil.wait_procs(descendants, timeout=1.0)
        left = [f"{child.pid} {child.name()}" for child in alive if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
        for child in alive:
            child.kill()
        if code != 0:
            raise AssertionError(f"the gateway ended with exit code {code}{self._tail()}")
        if left:
            raise AssertionError(f"processes outlived the gateway: {left}")

    def kill(self) -> None:
        """End the gateway and its process group at once; for a test of crashes, or after a failure."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(5.0)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._clean_up()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if self._process is not None:
                self.stop()
        finally:
            self._clean_up()

    def _clean_up(self) -> None:
        if self._owned is not None:
            self._owned.cleanup()

    @property
    def _endpoints_path(self) -> Path:
        return self.state_directory / "endpoints.json"

    @property
    def _log_path(self) -> Path:
        return self.state_directory / "gateway.log"

    def _is_ready(self) -> bool:
        if not self.api_url:
            try:
                endpoints = json.loads(self._endpoints_path.read_text())
            except (FileNotFoundError, json.JSONDecodeError):
                return False
            self.api_url, self.admin_url = endpoints["api"].rstrip("/"), endpoints["admin"].rstrip("/")
        return self._get(f"{self.api_url}/readyz")[0] == http.HTTPStatus.OK

    def _wait(self, condition: Callable[[], bool], deadline_s: float, purpose: str) -> None:
        until = time.monotonic() + deadline_s
        while not condition():
            code = self._process.poll() if self._process is not None else None
            if self._process is None or code is not None:
                raise AssertionError(f"the gateway ended with exit code {code} and did not {purpose}{self._tail()}")
            if time.monotonic() > until:
                raise TimeoutError(f"the gateway did not {purpose} within {deadline_s} s{self._tail()}")
            time.sleep(_POLL_S)

    def _get(self, url: str, *, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        """Fetch a page of the gateway; status 0 when nothing answers."""
        address = urllib.parse.urlsplit(url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=5.0)
        try:
            connection.request("GET", address.path, headers=dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (ConnectionError, TimeoutError):
            return 0, b""
        finally:
            connection.close()

    def _tail(self) -> str:
        return f"; its last output:\n{self.log()[-_LOG_TAIL_BYTES:]}"


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two trees of settings; `over` wins."""
    merged = dict(base)
    for key, value in over.items():
        mine = merged.get(key)
        merged[key] = _merged(mine, value) if isinstance(mine, Mapping) and isinstance(value, Mapping) else value
    return merged


def _quiet_environment() -> dict[str, str]:
    """Give this process's environment without what would change a gateway's behaviour: provider keys and proxies."""
    return {name: value for name, value in os.environ.items() if not name.upper().endswith(("_API_KEY", "_PROXY"))}
