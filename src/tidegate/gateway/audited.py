"""An exchange whose bodies are kept: it stands between a request driver and the client's connection, and notes what passes.

Only requests of a configuration that keeps something have one. Of a stream it gathers the beginning and no more; whether it gathers at all
is decided when the response begins, by when caller and route are known, and of what is no stream at its end: once for each exchange, so
that a reload in between keeps no half of it. Nothing here waits or looks into a body.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from tidegate.domain.audit import AuditPolicy
from tidegate.domain.record import RequestRecord
from tidegate.domain.units import HeaderLines, Headers
from tidegate.flow.request_flow import RequestFlow
from tidegate.ports import AuditedBodies, Auditor, Exchange, RequestHead

if TYPE_CHECKING:
    from hashlib import _Hash

SLICE_BYTES: Final = 4_096
"""Set aside at a time: most answers need one or two."""


class AuditedExchange:
    """Implements `ports.Exchange`."""

    __slots__ = (
        "_answer",
        "_auditor",
        "_exchange",
        "_flow",
        "_hash",
        "_kept",
        "_policy",
        "_room",
        "_size",
        "_status",
        "head",
        "request_body",
    )

    def __init__(self, exchange: Exchange, flow: RequestFlow, auditor: Auditor) -> None:
        self.head: RequestHead = exchange.head
        self.request_body: bytes | None = None
        """Set by the driver, when it has it."""
        self._exchange = exchange
        self._flow = flow
        self._auditor = auditor
        self._policy: AuditPolicy | None = None
        """As it was decided; None: it was not yet."""
        self._status = 0
        self._answer: bytes | None = None
        """One that is no stream."""
        self._kept: bytearray | None = None
        """A stream's beginning."""
        self._size = 0
        self._room = 0
        """That was set aside for the stream's beginning."""
        self._hash: _Hash | None = None
        """Of a stream that is longer than what is kept of it."""

    def __repr__(self) -> str:
        return f"AuditedExchange({self._flow!r})"

    # ── ports.Exchange ────────────────────────────────────────────────────────

    def read_body(self) -> None:
        self._exchange.read_body()

    def respond(self, status: int, headers: Headers, body: bytes, lines: HeaderLines = b"") -> None:
        self._status, self._answer = status, body
        self._exchange.respond(status, headers, body, lines)

    def start(self, status: int, headers: Headers, lines: HeaderLines = b"") -> None:
        self._status = status
        subject = self._flow.subject
        if subject is not None and self._decide(subject.tenant, subject.route) is not AuditPolicy.OFF:
            self._kept = bytearray()
        self._exchange.start(status, headers, lines)

    def send(self, chunk: bytes) -> None:
        self._exchange.send(chunk)
        kept = self._kept
        if kept is not None:
            self._size = size = self._size + len(chunk)
            if size <= self._room:
                kept += chunk
            else:
                self._grow(kept, chunk)

    def finish(self) -> None:
        self._exchange.finish()

    def abort(self) -> None:
        self._exchange.abort()

    # ── for the driver ────────────────────────────────────────────────────────

    def close(self, record: RequestRecord | None) -> None:
        """Hand over what was noted; the last call. Of a request that was not read there is nothing to keep."""
        kept, self._kept = self._kept, None
        policy = AuditPolicy.OFF
        if record is not None and self.request_body is not None:
            policy = self._decide(record.tenant, record.route)
        if record is None or self.request_body is None or policy is AuditPolicy.OFF:
            self._auditor.give_back(self._room)
            return
        is_stream = kept is not None
        answer = bytes(kept) if kept is not None else self._answer
        self._auditor.keep(
            AuditedBodies(
                request_id=record.request_id,
                started_at=record.started_at,
                operation=record.operation,
                policy=policy,
                request=self.request_body,
                status=self._status,
                answer=answer,
                answer_bytes=self._size if is_stream else len(answer or b""),
                answer_sha256=self._hash.hexdigest() if self._hash is not None else "",
                is_stream=is_stream,
            ),
            set_aside=self._room,
        )

    def _decide(self, tenant: str, route: str) -> AuditPolicy:
        if self._policy is None:
            self._policy = self._auditor.policy(tenant, route)
        return self._policy

    def _grow(self, kept: bytearray, chunk: bytes) -> None:
        """Take more room for a piece; where there is none, keep what fits, and from there on only count and hash."""
        if self._hash is not None:
            self._hash.update(chunk)
            return
        more = min(max(SLICE_BYTES, self._size - self._room), self._auditor.max_body_bytes - self._room)
        if more > 0 and self._auditor.set_aside(more):
            self._room += more
        if self._size > self._room:
            self._hash = hashlib.sha256(kept)
            self._hash.update(chunk)
        kept += chunk[: self._room - len(kept)]
