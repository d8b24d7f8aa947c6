"""A client that goes away ends the upstream's work within 250 ms, whatever it asked for and however far it got."""

from __future__ import annotations

import json
import socket
import struct
import time
import urllib.parse

import pytest

from tidegate.testing import Endpoint, Fault, Script, ThreadedUpstream, hang_before_first_token, hang_before_headers, stall_after

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
