"""An OTLP/HTTP receiver that decodes what it is sent, and answers as it is told to."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.trace.v1.trace_pb2 import Span

LONGEST_SILENCE_S = 20.0


class Instead(msgspec.Struct, frozen=True):
    """What one request is answered with instead of being taken. `silent` gives no answer until the receiver is closed."""

    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b""
    silent: bool = False


class Receiver:
    """Serves on a port of its own while it is entered."""

    def __init__(self, port: int = 0) -> None:
        self.instead: list[Instead] = []
        """For the next requests, one each."""
        self.requests: list[ExportTraceServiceRequest] = []
        """What was taken."""
        self.headers: list[dict[str, str]] = []
        self.tries = 0
        self.leaving = threading.Event()
        receiver = self

        class Answers(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status, headers, answer = receiver.receive(self.path, dict(self.headers.items()), body)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Answers)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/traces"

    def receive(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        self.tries += 1
        assert path == "/v1/traces"
        instead = self.instead.pop(0) if self.instead else None
        if instead is not None and instead.silent:
            self.leaving.wait(LONGEST_SILENCE_S)
        if instead is not None and instead.status != 200:
            return instead.status, instead.headers, instead.body
        if headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        self.requests.append(ExportTraceServiceRequest.FromString(body))
        self.headers.append({name.lower(): value for name, value in headers.items()})
        answer = instead.body if instead is not None else ExportTraceServiceResponse().SerializeToString()
        return 200, {"content-type": "application/x-protobuf"}, answer

    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.leaving.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def attributes_of(span: Span | Span.Event) -> dict[str, object]:
    """Give a span's attributes as plain values."""
    values: dict[str, object] = {}
    for each in span.attributes:
        kind = each.value.WhichOneof("value")
        assert kind is not None
        value = getattr(each.value, kind)
        values[each.key] = [entry.string_value for entry in value.values] if kind == "array_value" else value
    return values
