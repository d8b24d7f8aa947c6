"""Ask a gateway over a raw connection and keep exactly what came: nothing here forgives what a strict client would not.

Shares no code with `tidegate.http` or `tidegate.wire`, so that a mistake there cannot hide behind the same mistake here.
"""

from __future__ import annotations

import asyncio
import contextlib
from enum import StrEnum
from urllib.parse import urlsplit

import msgspec

_READ_BYTES = 65_536
_MAX_ANSWER_BYTES = 16_777_216  # no case is answered with more; a gateway that floods us has failed


class End(StrEnum):
    """How the answer ended, as HTTP sees it."""

    CLEAN = "clean"
    CUT = "cut"
    """The connection closed within the body."""
    SILENT = "silent"
    """Nothing more came until the deadline."""
    REFUSED = "refused"
    """No connection, or none that spoke HTTP."""


class Observation(msgspec.Struct, frozen=True):
    """One answer as it came. Header names are lower case; `body` is without transfer coding."""

    end: End
    status: int = 0
    headers: dict[str, str] = {}
    body: bytes = b""
    took_s: float = 0.0

    def __str__(self) -> str:
        return f"status {self.status or 'none'}, {self.end}, after {self.took_s:.2f} s: {self.body[:200]!r}"


class Target(msgspec.Struct, frozen=True):
    """Where to ask: the base URL up to and including `/v1`, and the key."""

    base_url: str
    key: str

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.base_url)
        return parts.hostname or "127.0.0.1", parts.port or (443 if parts.scheme == "https" else 80)

    def head(self, path: str, length: int) -> bytes:
        prefix = urlsplit(self.base_url).path.rstrip("/")
        host, port = self.address
        return (
            f"POST {prefix}{path} HTTP/1.1\r\nhost: {host}:{port}\r\nauthorization: Bearer {self.key}\r\n"
            f"content-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
        ).encode()


async def ask(target: Target, path: str, body: bytes, *, deadline_s: float, leave_after_s: float | None = None) -> Observation:
    """Send one request on a connection of its own; with `leave_after_s` close it after that time, whatever came."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    raw = bytearray()
    end = End.CLEAN
    host, port = target.address
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(deadline_s if leave_after_s is None else leave_after_s):
            tls = urlsplit(target.base_url).scheme == "https" or None
            reader, writer = await asyncio.open_connection(host, port, ssl=tls)
            writer.write(target.head(path, len(body)) + body)
            while len(raw) <= _MAX_ANSWER_BYTES and (piece := await reader.read(_READ_BYTES)):
                raw += piece
    except TimeoutError:
        end = End.SILENT
    except OSError:
        end = End.CUT if raw else End.REFUSED
    finally:
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    return _read(bytes(raw), end, loop.time() - begun)


def _read(raw: bytes, end: End, took_s: float) -> Observation:
    head, found, rest = raw.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if not found or not words[0].startswith("HTTP/1.") or len(words) < 2 or not words[1].isdigit():  # noqa: PLR2004  version and status
        return Observation(End.REFUSED if end is End.CLEAN else end, took_s=took_s)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    body, whole = _body(headers, rest)
    if end is End.CLEAN and not whole:
        end = End.CUT
    return Observation(end, int(words[1]), headers, body, took_s)


def _body(headers: dict[str, str], rest: bytes) -> tuple[bytes, bool]:
    """Take the transfer coding off; False when the body is not complete."""
    if headers.get("transfer-encoding", "").lower() != "chunked":
        length = headers.get("content-length")
        return rest, length is None or (length.isdecimal() and len(rest) == int(length))
    body = bytearray()
    while True:
        line, found, rest = rest.partition(b"\r\n")
        try:
            size = int(line.split(b";")[0], 16)
        except ValueError:
            return bytes(body), False
        if not found or len(rest) < size + 2:
            return bytes(body + rest[:size]), False
        body += rest[:size]
        if size == 0:
            return bytes(body), True
        rest = rest[size + 2 :]
