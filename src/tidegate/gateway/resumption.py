"""A client that returns for its stream: authenticate it, find the stream, subscribe it; or pass it on to the worker that has the stream.

No flow runs for it, nothing is asked of an upstream and nothing is charged: the request that began the stream is still the one that pays.
It leaves a record of its own, written by the worker that holds the stream, or by this one when it refuses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from tidegate.domain.error_object import encode_error
from tidegate.domain.outcome import Outcome
from tidegate.domain.principal import Principal
from tidegate.domain.record import RequestRecord
from tidegate.domain.units import Headers
from tidegate.errors import InternalError, StreamNotFound, StreamTailLost, TidegateError
from tidegate.flow.facts import RequestFacts
from tidegate.flow.outcomes import outcome_of_refusal
from tidegate.gateway.owned_tasks import OwnedTasks
from tidegate.gateway.peer_relay import PeerRelay
from tidegate.gateway.resumable import ResumableStream, ResumableStreams
from tidegate.gateway.services import Services
from tidegate.gateway.verification import verify
from tidegate.ports import Exchange, UpstreamClient
from tidegate.wire.event_ids import ResumePoint
from tidegate.wire.headers import refusal_headers

_log = logging.getLogger("tidegate.gateway")


class ResumptionOwner(Protocol):
    """What a returning client needs of its gateway."""

    tasks: OwnedTasks
    clock: Callable[[], float]
    streams: ResumableStreams

    def peer(self, worker: int) -> UpstreamClient | None:
        """Reach another worker of this node; None when there is none of that number."""


class Resumption:
    """Implements `ports.ExchangeReceiver`, and `Subscriber` once it has found its stream."""

    def __init__(
        self,
        owner: ResumptionOwner,
        exchange: Exchange,
        point: ResumePoint,
        facts: RequestFacts,
        services: Services,
        traceparent: bytes,
    ) -> None:
        self.exchange = exchange
        self.paused = False
        self._owner = owner
        self._point = point
        self._facts = facts
        self._services = services
        self._own_headers: Headers = ((b"x-request-id", facts.request_id.encode()), (b"traceparent", traceparent))
        self._received_at = owner.clock()
        self._principal: Principal | None = None
        self._stream: ResumableStream | None = None
        self._relay: PeerRelay | None = None
        self._over = False

    def __repr__(self) -> str:
        return f"Resumption({self._facts.request_id}, {self._point})"

    def begin(self) -> None:
        verdict = self._services.authenticator.known(self._facts.credential, now=self._received_at)
        if verdict is None:
            self._owner.tasks.start(self._verify())
        else:
            self._judged(verdict)

    # ── ports.ExchangeReceiver ────────────────────────────────────────────────

    def body_received(self, body: bytes) -> None:
        """Whatever it is, often the original request: what is wanted is in the header."""
        del body
        if self._point.worker == self._owner.streams.worker:
            self._subscribe()
        else:
            self._pass_on()

    def body_refused(self, error: TidegateError) -> None:
        self.refuse(error)

    def client_left(self) -> None:
        if self._relay is not None:
            self._relay.cancel()
            return
        if self._stream is not None:
            self._stream.left(self)
        self._end(Outcome.CLIENT_CANCELLED, 200 if self._stream is not None else 0, None)

    def write_paused(self) -> None:
        self.paused = True
        if self._relay is not None:
            self._relay.pause()
        elif self._stream is not None:
            self._stream.pause(self)

    def write_resumed(self) -> None:
        self.paused = False
        if self._relay is not None:
            self._relay.resume()
        elif self._stream is not None:
            self._stream.resume(self)

    # ── gateway.resumable.Subscriber ──────────────────────────────────────────

    def displaced(self) -> None:
        self.exchange.abort()
        self._end(Outcome.CLIENT_CANCELLED, 200, None)

    def served(self) -> None:
        self._end(Outcome.OK, 200, None)

    # ── the steps ─────────────────────────────────────────────────────────────

    async def _verify(self) -> None:
        try:
            verdict = await verify(self._services.authenticator, self._facts.credential, now=self._received_at)
        except Exception:  # noqa: BLE001  the outermost frame of the task: the client gets no detail, the log does
            _log.exception("resumption.crashed request_id=%s", self._facts.request_id)
            verdict = InternalError("A fault of the gateway ended this request. Come back for the stream again.")
        self._judged(verdict)

    def _judged(self, verdict: Principal | TidegateError) -> None:
        if self._over:
            return
        if isinstance(verdict, TidegateError):
            self.refuse(verdict)
        else:
            self._principal = verdict
            self.exchange.read_body()

    def _subscribe(self) -> None:
        assert self._principal is not None, "the body is read after the verdict"
        streams, number = self._owner.streams, self._point.number
        stream = streams.find(self._point.stream_id)
        if stream is None or not stream.is_of(self._principal, self.exchange.head.path) or not stream.has_event(number):
            streams.missed += 1
            self.refuse(_not_found(self._point, self._services.streams.resume_window_s))
        elif not stream.keeps_after(number):
            streams.missed += 1
            self.refuse(
                StreamTailLost(
                    f"The stream goes on, but what followed event {number} is no longer kept. "
                    "Send the original request again, without last-event-id, and return sooner after a break."
                )
            )
        else:
            streams.resumed += 1
            self._stream = stream
            stream.subscribe(self, number, self._own_headers)

    def _pass_on(self) -> None:
        peer = self._owner.peer(self._point.worker)
        if peer is None:
            self._owner.streams.missed += 1
            self.refuse(_not_found(self._point, self._services.streams.resume_window_s))
        else:
            silence_s = self._services.streams.peer_silence_s
            self._relay = PeerRelay(self, peer, asyncio.get_running_loop().call_later, silence_s=silence_s)

    def refuse(self, error: TidegateError) -> None:
        """Answer with an error, and record that."""
        if self._over:
            return
        self._relay = None
        self.exchange.respond(error.status, (*self._own_headers, *refusal_headers(error)), encode_error(error))
        self._end(outcome_of_refusal(error), error.status, error)

    def _end(self, outcome: Outcome, status: int, error: TidegateError | None) -> None:
        """Leave the one record."""
        if self._over:
            return
        self._over = True
        self._stream = None
        facts, principal = self._facts, self._principal
        self._services.recorder.record(
            RequestRecord(
                request_id=facts.request_id,
                started_at=facts.started_at,
                operation=facts.operation,
                outcome=outcome,
                status=status,
                duration_s=self._owner.clock() - self._received_at,
                key_id=principal.key_id if principal is not None else "",
                tenant=principal.tenant if principal is not None else "",
                user=principal.user if principal is not None else "",
                tier=principal.tier if principal is not None else "",
                stream=True,
                error_code=error.code if error is not None else None,
                cause=error.message if error is not None else None,
                color=facts.color,
                trace_id=facts.trace_id,
                span_id=facts.span_id,
                parent_span_id=facts.parent_span_id,
                sampled=facts.sampled,
                client_retry=facts.client_retry,
                resumed=True,
            )
        )


def _not_found(point: ResumePoint, window_s: float) -> StreamNotFound:
    """One text for all causes: whether another's stream exists is nobody's business."""
    return StreamNotFound(
        f"There is no stream {point.stream_id} that this key could resume here. A stream waits {window_s:g} s for its client. "
        "Send the original request again, without last-event-id."
    )
