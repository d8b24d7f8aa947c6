"""ClickHouse's HTTP interface over chDB, as a child process on a free loopback port: the same engine, so the same SQL, formats and errors.

For tests of what writes to a ClickHouse server and asks it questions, and of what happens when that server dies, freezes, is slow, or fails
after it kept the rows. Needs the extra `analytics`. Understands what clients send over HTTP: statements and inserts in any format, settings
and `param_` parameters in the query string, basic authentication; compression is not offered.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

Misbehaviour = Literal["refuse", "fail_after", "cut_after", "slow", "hang_after"]
"""What becomes of inserts: not done and an error; done and an error; done and the connection cut; done late; done and never answered."""

_START_S: Final = 20.0
_STOP_S: Final = 5.0
_POLL_S: Final = 0.02
_SLOW_S: Final = 3.0
_CODE: Final = re.compile(r"Code: (\d+)")
_FORMAT: Final = re.compile(r"\bFORMAT\s+([A-Za-z]+)\s*;?\s*$", re.IGNORECASE)
_TRANSPORT: Final = frozenset(
    {
        "database",
        "query",
        "query_id",
        "session_id",
        "client_protocol_version",
        "compress",
        "decompress",
        "enable_http_compression",
        "user",
        "password",
        "wait_end_of_query",
        "role",
        "quota_key",
        "buffer_size",
    }
)
_NOT_FOUND: Final = frozenset({60, 81})  # no such table, no such database


class ClickHouseServer:
    """Use as a context manager. `kill` and `start` again is a crash and a restart with the same tables, on the same port."""

    def __init__(self, directory: Path | None = None, *, user: str = "", password: str = "") -> None:
        self.port = 0
        self._user = user
        self._password = password
        self._owned: tempfile.TemporaryDirectory[str] | None = None
        if directory is None:
            self._owned = tempfile.TemporaryDirectory(prefix="tidegate-clickhouse-", ignore_cleanup_errors=True)
            directory = Path(self._owned.name)
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What `analytics.clickhouse` takes."""
        user = f"{self._user}:{self._password}@" if self._user else ""
        return f"http://{user}127.0.0.1:{self.port}/tidegate"

    def start(self) -> None:
        """Start, and wait until it answers."""
        assert self._process is None, "the server is running already"
        self.port = self.port or _free_port()
        command = [
            sys.executable,
            "-m",
            "tidegate.testing.clickhouse_server",
            "--port",
            str(self.port),
            "--directory",
            str(self._directory),
        ]
        if self._user:
            command += ["--user", f"{self._user}:{self._password}"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)  # noqa: S603  our own command line
        until = time.monotonic() + _START_S
        while self._process.poll() is None and time.monotonic() < until:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self._ask("GET", "/ping")[0] == http.HTTPStatus.OK:
                    return
            time.sleep(_POLL_S)
        self.kill()
        raise AssertionError(f"the server did not answer within {_START_S:g} s")

    def kill(self) -> None:
        """End it at once, as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(_STOP_S)
            assert process.stdin is not None
            process.stdin.close()

    def freeze(self) -> None:
        """Stop it: connections are still accepted, and what is sent lies there until it goes on."""
        assert self._process is not None, "the server is not running"
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None, "the server is not running"
        self._process.send_signal(signal.SIGCONT)

    def misbehave(self, how: Misbehaviour, *, times: int = 1) -> None:
        """Let the next inserts go wrong in this way; 0 times makes it behave again."""
        status, _ = self._ask("POST", f"/misbehave?how={how}&times={times}")
        assert status == http.HTTPStatus.OK

    def ask(self, sql: str) -> list[list[Any]]:
        """Ask in the database `tidegate`; rows as JSON has them."""
        query = urllib.parse.urlencode({"database": "tidegate", "output_format_json_quote_64bit_integers": 0})
        status, answer = self._ask("POST", f"/?{query}", f"{sql} FORMAT JSONCompact".encode())
        assert status == http.HTTPStatus.OK, answer[:500]
        rows: list[list[Any]] = json.loads(answer)["data"]
        return rows

    def forget(self) -> None:
        """Drop the database `tidegate`."""
        status, answer = self._ask("POST", "/", b"DROP DATABASE IF EXISTS tidegate SYNC")
        assert status == http.HTTPStatus.OK, answer[:500]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
        if self._owned is not None:
            self._owned.cleanup()

    def _ask(self, method: str, target: str, body: bytes = b"") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_STOP_S)
        headers = {"authorization": "Basic " + base64.b64encode(f"{self._user}:{self._password}".encode()).decode()} if self._user else {}
        try:
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


# ── the child ─────────────────────────────────────────────────────────────────


class _Engine:
    """chDB behind a lock, and how the next inserts are to go wrong."""

    def __init__(self, directory: str, user: str) -> None:
        from chdb.state.sqlitelike import Connection

        self._writing = Connection(directory)
        self._reading = Connection(directory)
        self._reading.query("SET readonly = 2")
        self._lock = threading.Lock()
        self._expected = "Basic " + base64.b64encode(user.encode()).decode() if user else ""
        self.how = ""
        self.times = 0

    def admits(self, authorization: str) -> bool:
        return not self._expected or authorization == self._expected

    def take_misbehaviour(self) -> str:
        with self._lock:
            if self.times == 0:
                return ""
            self.times -= 1
            return self.how

    def run(self, statement: bytes, rows: bytes, query: dict[str, str], output: str) -> bytes:
        """Run one statement with its settings and parameters, an insert with its rows. `RuntimeError` if it fails."""
        settings = {name: value for name, value in query.items() if name not in _TRANSPORT and not name.startswith("param_")}
        parameters = {name.removeprefix("param_"): value for name, value in query.items() if name.startswith("param_")}
        connection = self._reading if settings.pop("readonly", "0") != "0" else self._writing
        with self._lock:
            connection.query(f"USE `{query.get('database') or 'default'}`")
            for name, value in settings.items():
                connection.query(f"SET {name} = '{value.replace(chr(39), chr(39) * 2)}'")
            try:
                if rows:
                    text, _, written = statement.decode().rpartition("FORMAT")
                    with connection.send_insert(text, written.strip()) as inserting:
                        inserting.append(rows)
                        inserting.finish()
                    return b""
                found: bytes = connection.query(statement.decode(), output, params=parameters or None).bytes() or b""
                return found
            finally:
                for name in settings:
                    connection.query(f"SET {name} = DEFAULT")


class _Exchange(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: _Engine

    def do_GET(self) -> None:
        if self.path == "/ping":
            self._answer(200, b"Ok.\n")
        else:
            self.do_POST()

    def do_POST(self) -> None:
        target = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(target.query, keep_blank_values=True))
        body = self._body()
        if not self.engine.admits(self.headers.get("authorization", "")):
            self._fail(RuntimeError("Code: 516. DB::Exception: Authentication failed: password is incorrect. (AUTHENTICATION_FAILED)"))
        elif target.path == "/misbehave":
            self.engine.how, self.engine.times = query["how"], int(query["times"])
            self._answer(200, b"")
        else:
            self._statement(query, body)

    def _statement(self, query: dict[str, str], body: bytes) -> None:
        statement, rows = query.get("query", "").encode(), body
        if not statement or statement.lstrip()[:6].upper() != b"INSERT":
            statement, rows = statement + body, b""
        if not rows and statement.lstrip()[:6].upper() == b"INSERT":
            first, _, rest = statement.partition(b"\n")
            if b"FORMAT" in first:
                statement, rows = first, rest
        how = self.engine.take_misbehaviour() if rows else ""
        if how == "refuse":
            self._fail(RuntimeError("Code: 243. DB::Exception: Cannot reserve 1.00 MiB, not enough space. (NOT_ENOUGH_SPACE)"))
            return
        if how == "slow":
            time.sleep(_SLOW_S)
        written = _FORMAT.search(statement.decode(errors="replace"))
        try:
            found = self.engine.run(statement, rows, query, written[1] if written and not rows else "TabSeparated")
        except RuntimeError as error:
            self._fail(error)
            return
        if how == "cut_after":
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        elif how == "hang_after":
            threading.Event().wait()
        elif how == "fail_after":
            self._fail(RuntimeError("Code: 209. DB::Exception: Timeout exceeded while writing to a replica. (SOCKET_TIMEOUT)"))
        else:
            self._answer(200, found)

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _fail(self, error: RuntimeError) -> None:
        code = int(found[1]) if (found := _CODE.search(str(error))) else 1000
        self._answer(404 if code in _NOT_FOUND else 403 if code == 516 else 500, str(error).encode(), code=code)  # noqa: PLR2004  ClickHouse's

    def _answer(self, status: int, content: bytes, *, code: int = 0) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/octet-stream")
        self.send_header("content-length", str(len(content)))
        self.send_header("x-clickhouse-summary", "{}")
        if code:
            self.send_header("x-clickhouse-exception-code", str(code))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002  the base class's own name
        """Say nothing: a test reads what the client made of it."""


def main() -> None:
    parser = argparse.ArgumentParser(description="ClickHouse's HTTP interface over chDB, for tests.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--user", default="", help="name:password that clients must have")
    arguments = parser.parse_args()
    exchange = type("Exchange", (_Exchange,), {"engine": _Engine(arguments.directory, arguments.user)})
    server = ThreadingHTTPServer(("127.0.0.1", arguments.port), exchange)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.buffer.read()  # the test that started it holds the other end


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
