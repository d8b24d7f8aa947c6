"""A request that the scripted upstream received, and what became of it."""

from __future__ import annotations

import time
from typing import Any

import msgspec


class ReceivedRequest:
    """A request and what became of it. Instants are `time.monotonic()` seconds."""

    __slots__ = (
        "_headers",
        "answered_at",
        "body",
        "client_left_at",
        "connection",
        "fault",
        "first_token_at",
        "last_token_at",
        "local",
        "method",
        "model",
        "number",
        "path",
        "pieces",
        "pieces_sent",
        "query",
        "received_at",
        "reused",
        "script",
        "status",
        "tokens_sent",
    )

    def __init__(
        self, *, method: str, url: bytes, headers: list[tuple[bytes, bytes]], body: bytes, connection: int, reused: bool, local: bool
    ) -> None:
        path, _, query = url.decode("ascii", "replace").partition("?")
        self.method = method
        self.path = path
        self.query = query
        self._headers = headers
        self.body = body
        self.connection = connection
        """Number of the connection it came on, from 1."""
        self.reused = reused
        """It was not the first request of its connection."""
        self.local = local
        """The client is on this machine."""
        self.received_at = time.monotonic()
        self.number = 0
        """In order of arrival, from 1."""
        self.model = ""
        self.script = ""
        """Which script it got: its name, or where it came from."""
        self.fault = ""
        self.status = 0
        self.pieces = 0
        """Of the answer, if it had been sent to its end."""
        self.pieces_sent = 0
        self.tokens_sent = 0
        self.first_token_at: float | None = None
        self.last_token_at: float | None = None
        self.answered_at: float | None = None
        """When the answer had been sent to its end, faults included."""
        self.client_left_at: float | None = None
        """When the client closed the connection before the answer's end."""

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Names in lower case."""
        return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in self._headers)

    def header(self, name: str) -> str | None:
        wanted = name.encode("latin-1")
        return next((value.decode("latin-1") for key, value in self._headers if key == wanted), None)

    @property
    def json(self) -> dict[str, Any]:
        return msgspec.json.decode(self.body, type=dict[str, Any])

    @property
    def client_left_after_s(self) -> float | None:
        return None if self.client_left_at is None else self.client_left_at - self.received_at

    def sent(self, tokens: int) -> None:
        """Count a piece that has been written."""
        self.pieces_sent += 1
        if tokens:
            self.tokens_sent += tokens
            self.last_token_at = now = time.monotonic()
            if self.first_token_at is None:
                self.first_token_at = now

    def report(self, started_at: float) -> dict[str, object]:
        """Give what `/mock/requests` shows; instants as seconds since the start."""

        def after(instant: float | None) -> float | None:
            return None if instant is None else round(instant - self.received_at, 6)

        return {
            "number": self.number,
            "method": self.method,
            "path": self.path,
            "model": self.model,
            "script": self.script,
            "fault": self.fault or None,
            "status": self.status,
            "connection": self.connection,
            "reused": self.reused,
            "body_bytes": len(self.body),
            "received_at_s": round(self.received_at - started_at, 6),
            "pieces": self.pieces,
            "pieces_sent": self.pieces_sent,
            "tokens_sent": self.tokens_sent,
            "first_token_after_s": after(self.first_token_at),
            "answered_after_s": after(self.answered_at),
            "client_left_after_s": after(self.client_left_at),
            "ended": "client_left" if self.client_left_at is not None else "answered" if self.answered_at is not None else "open",
        }

    def departure(self) -> str:
        """Say in one line when the client went away."""
        script = f" script={self.script}" if self.script else ""
        return (
            f"client left  #{self.number} {self.method} {self.path} model={self.model or '-'}{script}  "
            f"after {self.pieces_sent} of {self.pieces} pieces, {self.client_left_after_s or 0.0:.3f} s after the request"
        )

    def __repr__(self) -> str:
        end = "answered" if self.answered_at is not None else "open"
        if self.client_left_at is not None:
            end = f"client left after {self.client_left_after_s:.3f} s"
        return f"<{self.method} {self.path} on connection {self.connection}, {self.pieces_sent} pieces, {end}>"
