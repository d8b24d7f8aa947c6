"""A client that goes away ends the upstream's work within 250 ms, whatever it asked for and however far it got."""

from __future__ import annotations

import json
import socket
import struct
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest

from tidegate.testing import (
    Endpoint,
    Fault,
    GatewayProcess,
    ReceivedRequest,
    Script,
    ThreadedUpstream,
    hang_before_first_token,
    hang_before_headers,
    stall_after,
)

LEAVE_WITHIN_S = 0.25
BODIES: dict[str, dict[str, object]] = {
    "/chat/completions": {"model": "scripted", "messages": [{"role": "user", "content": "x"}]},
    "/completions": {"model": "scripted", "prompt": "x"},
    "/embeddings": {"model": "scripted", "input": "x"},
}
CASES = [
    pytest.param(path, stream, fault, id=f"{path[1:]}-{'stream' if stream else 'whole'}-{fault.kind}")
    for path in BODIES
    for stream in ([False, True] if path != "/embeddings" else [False])
    for fault in (hang_before_headers(), hang_before_first_token(), stall_after(3))
]


def connect(endpoint: Endpoint, path: str, body: dict[str, object]) -> socket.socket:
    """Send a request and give its connection."""
    address = urllib.parse.urlsplit(endpoint.base_url)
    payload = json.dumps(body).encode()
    fields = "".join(f"{name}: {value}\r\n" for name, value in endpoint.headers.items())
    connection = socket.create_connection((address.hostname, address.port or 80), timeout=5.0)
    head = f"POST /v1{path} HTTP/1.1\r\nhost: {address.netloc}\r\ncontent-length: {len(payload)}\r\n{fields}\r\n"
    connection.sendall(head.encode() + payload)
    return connection


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize(("path", "stream", "fault"), CASES)
def test_the_upstream_sees_the_client_leave(
    through: Endpoint, upstream: ThreadedUpstream, path: str, *, stream: bool, fault: Fault, reset: bool
) -> None:
    """Closed or reset, before the headers, before the first token or in the middle, streamed or whole."""
    upstream.script(Script(fault=fault))
    with connect(through, path, BODIES[path] | {"stream": True} if stream else BODIES[path]) as connection:
        upstream.wait_for(lambda: any(request.method == "POST" for request in upstream.requests), 2.0)
        (request,) = [received for received in upstream.requests if received.method == "POST"]
        if stream and fault == stall_after(3):
            received = b""
            while b"Hello" not in received:
                received += connection.recv(65536)
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    left_at = time.monotonic()
    upstream.wait_for(lambda: request.client_left_at is not None, 2.0)
    assert request.client_left_at is not None
    assert request.client_left_at - left_at <= LEAVE_WITHIN_S


# ── upstreams whose calls are not cancelled ───────────────────────────────────

DRAIN_S = 1.0
KEPT = [
    pytest.param("/chat/completions", True, id="chat-stream"),
    pytest.param("/chat/completions", False, id="chat-whole"),
    pytest.param("/completions", True, id="completions-stream"),
    pytest.param("/completions", False, id="completions-whole"),
    pytest.param("/embeddings", False, id="embeddings-whole"),
]


@pytest.fixture(scope="module")
def keeping(upstream_server: ThreadedUpstream) -> Iterator[tuple[GatewayProcess, Endpoint]]:
    """A gateway whose upstreams are drained (`scripted`) and detached (`second`)."""
    key = upstream_server.endpoint.api_key.reveal()
    there: dict[str, object] = {"dialect": "openai", "base_url": upstream_server.base_url, "api_key": key, "health": {"enabled": False}}
    upstreams = {
        "drained": there | {"models": ["scripted"], "on_client_leave": "drain", "drain_s": DRAIN_S},
        "detached": there | {"models": ["second"], "on_client_leave": "detach"},
    }
    with GatewayProcess({"upstreams": upstreams}) as process:
        token = process.create_key()
        process.wait_for_key(token)
        yield process, process.endpoint(token)


def leave(endpoint: Endpoint, upstream: ThreadedUpstream, path: str, body: dict[str, object]) -> ReceivedRequest:
    """Send a request, wait until the upstream has it (and a stream has begun), and go away; give what the upstream received."""
    with connect(endpoint, path, body) as connection:
        upstream.wait_for(lambda: any(request.method == "POST" for request in upstream.requests), 2.0)
        (request,) = [received for received in upstream.requests if received.method == "POST"]
        received = b""
        while body.get("stream") and b"Hello" not in received:
            received += connection.recv(65536)
    return request


def record_of(process: GatewayProcess, request: ReceivedRequest) -> dict[str, Any]:
    """Wait for the record of a request that the upstream received."""
    request_id, deadline = request.header("x-request-id"), time.monotonic() + 5.0
    while time.monotonic() < deadline:
        files = (process.state_directory / "records").glob("*.jsonl")
        lines = [line for file in files for line in file.read_text().rpartition("\n")[0].splitlines()]  # the last may be half written
        for record in map(json.loads, lines):
            if record["request_id"] == request_id:
                found: dict[str, Any] = record
                return found
        time.sleep(0.02)
    raise TimeoutError(f"no record of {request_id}")


@pytest.mark.parametrize("model", ["scripted", "second"], ids=["drain", "detach"])
@pytest.mark.parametrize(("path", "stream"), KEPT)
def test_a_kept_call_ends_by_itself_and_its_usage_is_known(
    keeping: tuple[GatewayProcess, Endpoint], upstream: ThreadedUpstream, path: str, model: str, *, stream: bool
) -> None:
    """The upstream does not see the client leave, and what it reports at the end is what is recorded."""
    process, endpoint = keeping
    upstream.set_default(Script(first_token_s=0.2, per_token_s=0.02))
    request = leave(endpoint, upstream, path, BODIES[path] | {"model": model} | ({"stream": True} if stream else {}))
    record = record_of(process, request)
    assert (record["outcome"], record["evidence"]) == ("client_cancelled", "reported")
    assert record["usage"]["prompt_tokens"] > 0
    assert request.client_left_at is None


@pytest.mark.parametrize(("path", "stream"), KEPT)
def test_a_drained_call_is_ended_when_its_time_is_up(
    keeping: tuple[GatewayProcess, Endpoint], upstream: ThreadedUpstream, path: str, *, stream: bool
) -> None:
    """An upstream that says nothing any more is not waited for beyond `drain_s`."""
    process, endpoint = keeping
    upstream.set_default(Script(fault=stall_after(3) if stream else hang_before_headers()))
    left_at = time.monotonic()
    request = leave(endpoint, upstream, path, BODIES[path] | ({"stream": True} if stream else {}))
    upstream.wait_for(lambda: request.client_left_at is not None, DRAIN_S + 2.0)
    assert request.client_left_at is not None
    assert DRAIN_S <= request.client_left_at - left_at <= DRAIN_S + 1.0
    assert record_of(process, request)["outcome"] == "client_cancelled"
