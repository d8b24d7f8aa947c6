"""One attempt on one replica: bytes from the upstream become events of the flow, and bytes for the client.

A stream is held back until the commit point, usually its first output, so that a failure before that can be retried unseen; after it each
chunk goes through the codec and out, without an event, unless its output has used up what is held for it. A whole answer is held until it
is complete. A detached attempt, whose client is gone, is read to its end for the sake of its usage: nothing of a stream is sent or held any
more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tidegate.domain.record import ServerTimes
from tidegate.domain.request import ParsedRequest
from tidegate.domain.units import Headers
from tidegate.domain.upstream import UpstreamFailure
from tidegate.flow.actions import TruncateStream
from tidegate.flow.call_flow import CallFlow
from tidegate.flow.events import AttemptCompleted, AttemptFailed, OutputReached, OutputStarted
from tidegate.flow.faults import answer_too_large, from_call_failure, not_a_stream, stream_cut, stream_never_began
from tidegate.gateway.services import Services, UpstreamEndpoint
from tidegate.ports import CallFailure, UpstreamCall
from tidegate.wire.dialects import classify, first_byte_time
from tidegate.wire.openai import read_answer
from tidegate.wire.stream import StreamCodec

if TYPE_CHECKING:
    from tidegate.gateway.request_driver import RequestDriver

_ERROR_BODY_BYTES = 65_536  # an upstream's error text is read up to here; the rest is not looked at
_LONGEST_ID = 128  # bytes of an upstream's request id kept in a record
_AFTER_DONE_S = 0.25  # a body that does not end this long after [DONE] is cut: the answer is complete


class Attempt:
    """Implements `ports.CallReceiver` for one attempt."""

    __slots__ = (
        "_call_flow",
        "_endpoint",
        "_held",
        "_held_bytes",
        "_largest_answer",
        "_largest_held",
        "_now",
        "_owner",
        "_progress",
        "_relay",
        "_request",
        "_wall_clock",
        "call",
        "codec",
        "committed",
        "ended",
        "flowing",
        "headers",
        "number",
        "started_at",
        "status",
    )

    def __init__(
        self, owner: RequestDriver, number: int, request: ParsedRequest, endpoint: UpstreamEndpoint, call_flow: CallFlow, services: Services
    ) -> None:
        # Compiled, attributes lie in this order; those that each chunk needs come first, so that they share a line of the cache.
        self.codec: StreamCodec | None = None
        self._progress = call_flow.progress
        self._now = owner.now
        self._relay = owner.relay
        self.flowing = False
        """Committed, and output has come: chunks cause no events any more."""
        self.ended = False
        self.committed = False
        """The response has begun: what comes goes to the client."""
        self.number = number
        self.call: UpstreamCall | None = None
        self.status = 0
        self.headers: Headers = ()
        self.started_at = self._now()
        self._owner = owner
        self._request = request
        self._endpoint = endpoint
        self._call_flow = call_flow
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._largest_answer = services.largest_answer_bytes
        self._largest_held = services.held_stream_bytes
        self._wall_clock = services.wall_clock

    @property
    def held(self) -> bytes:
        """What came and was not sent yet: a whole answer, or a stream's beginning."""
        return self._held[0] if len(self._held) == 1 else b"".join(self._held)

    def commit(self) -> bytes:
        """Begin to relay; give what was held back."""
        self.committed = True
        self.flowing = self.codec is not None and self.codec.output_started
        held = self.held
        self._held = []
        return held

    def detach(self) -> None:
        """The client is gone: read on, for the usage. A stream is thrown away; a whole answer is still held, since its usage is in it."""
        self._relay = _throw_away
        if self._request.stream:
            self.commit()

    def interpose(self) -> None:
        """Something of the gateway's own goes to the client between two events."""
        if self.codec is not None:
            self.codec.interpose()

    def truncation(self, action: TruncateStream) -> bytes:
        """Give what ends the stream well, whose attempt was cancelled."""
        assert self.codec is not None, "only output can be more than is held for it"
        return self.codec.truncate(action.usage, reason=action.reason, rule=action.rule)

    def cancel(self) -> None:
        self.ended = True
        if self.call is not None:
            self.call.cancel()

    # ── ports.CallReceiver ────────────────────────────────────────────────────

    def call_connected(self) -> None:
        self._call_flow.note_connected(self.number, now=self._now())

    def response_started(self, status: int, headers: Headers) -> None:
        self.status, self.headers = status, headers
        if _is_success(status) and self._request.stream and _is_event_stream(headers):
            self.codec = StreamCodec(
                operation=self._request.operation, dialect=self._endpoint.dialect, hide_usage=not self._request.wants_usage
            )
        self._call_flow.note_response(self.number, status, self._upstream_request_id(), now=self._now())

    def response_chunk(self, chunk: bytes) -> None:
        codec = self.codec
        if self.ended:
            return
        if codec is None:
            self._hold(chunk)
            return
        try:
            out = codec.feed(chunk)
            progress = self._progress
            progress.at = self._now()
            progress.chunks = chunks = codec.chunks
            progress.text_bytes = text_bytes = codec.text_bytes
            if self.flowing:
                self._after_output(codec, out)
            else:
                self._before_output(codec, out)
            if chunks >= progress.extend_at or text_bytes >= progress.extend_at_bytes:
                self._more_than_held(codec)
            if codec.done and not self.ended:
                self._owner.after(_AFTER_DONE_S, self)
        except Exception as fault:  # noqa: BLE001  the driver's outermost frame for what an upstream does
            self._owner.crashed(fault)

    def response_ended(self) -> None:
        self._guard(self._on_end)

    def call_failed(self, failure: CallFailure) -> None:
        self._guard(lambda: self._on_failure(failure))

    def after_done(self) -> None:
        """The grace for a clean end after `[DONE]` is over."""
        self._guard(self._on_grace_over)

    def _guard(self, step: Callable[[], None]) -> None:
        """Run a step unless all is over; a fault of ours ends the request instead of leaving it to its clocks."""
        if self.ended:
            return
        try:
            step()
        except Exception as fault:  # noqa: BLE001  the driver's outermost frame for what an upstream does
            self._owner.crashed(fault)

    def _on_end(self) -> None:
        codec = self.codec
        if codec is not None:
            self._end_stream(codec)
        elif not _is_success(self.status):
            self._fail(self._refusal())
        else:
            self._end_answer()

    def _on_failure(self, failure: CallFailure) -> None:
        if self.codec is not None and self.codec.done:
            self._complete_stream(self.codec)
        else:
            self._fail(from_call_failure(failure))

    def _on_grace_over(self) -> None:
        if self.codec is not None:
            call = self.call
            self._complete_stream(self.codec)
            if call is not None:
                call.cancel()

    # ── streams ───────────────────────────────────────────────────────────────

    def _after_output(self, codec: StreamCodec, out: bytes) -> None:
        if out:
            self._relay(out)  # also what came before an error in the same piece
        if codec.failure is not None:
            self._fail(replace(codec.failure, in_band=True))

    def _before_output(self, codec: StreamCodec, out: bytes) -> None:
        if out and self.committed:
            self._relay(out)
        elif out:
            self._held.append(out)
            self._held_bytes += len(out)
        if codec.failure is not None:
            self._fail(replace(codec.failure, in_band=True))
            return
        if codec.output_started:
            self.flowing = self.committed
            self._owner.attempt_event(OutputStarted(self.number))
        elif self._held_bytes > self._largest_held:
            self._fail(stream_never_began(self._held_bytes))

    def _more_than_held(self, codec: StreamCodec) -> None:
        """Ask for more. Of an answer that is finished no more will come, and what it has used is settled as it is."""
        if not self.ended and not codec.complete:
            self._owner.attempt_event(OutputReached(self.number))

    def _end_stream(self, codec: StreamCodec) -> None:
        rest = codec.end()
        self._progress.chunks = codec.chunks
        self._progress.text_bytes = codec.text_bytes
        if self.flowing:
            self._after_output(codec, rest)
        else:
            self._before_output(codec, rest)
        if self.ended:
            return
        if codec.complete:
            self._complete_stream(codec)
        else:
            self._fail(stream_cut())

    def _complete_stream(self, codec: StreamCodec) -> None:
        self.ended = True
        if not self.committed:
            self._owner.attempt_event(OutputStarted(self.number))
        self._owner.attempt_event(AttemptCompleted(self.number, codec.usage, codec.finish_reason, 0, self._times_of(codec)))

    def _times_of(self, codec: StreamCodec) -> ServerTimes | None:
        wanted = self._endpoint.dialect.first_byte_time_header
        return codec.server_times if wanted is None else codec.server_times or first_byte_time(wanted, self.headers)

    # ── whole answers ─────────────────────────────────────────────────────────

    def _hold(self, chunk: bytes) -> None:
        bound = self._largest_answer if _is_success(self.status) else _ERROR_BODY_BYTES
        self._held_bytes += len(chunk)
        if self._held_bytes <= bound:
            self._held.append(chunk)
        elif _is_success(self.status):
            self._fail(answer_too_large(bound))
        else:
            self._fail(self._refusal())

    def _upstream_request_id(self) -> str | None:
        wanted = self._endpoint.dialect.request_id_header
        for name, value in self.headers:
            if name == wanted:
                return value[:_LONGEST_ID].decode("ascii", "replace")
        return None

    def _refusal(self) -> UpstreamFailure:
        return classify(self._endpoint.dialect, self.status, self.headers, self.held, now_epoch_s=self._wall_clock())

    def _end_answer(self) -> None:
        body = self.held
        answer = read_answer(self._request.operation, body, self._endpoint.dialect)
        if answer.failure is not None:
            self._fail(replace(answer.failure, in_band=True))
        elif self._request.stream:
            self._fail(not_a_stream())
        else:
            self.ended = True
            self._owner.attempt_event(AttemptCompleted(self.number, answer.usage, answer.finish_reason, len(body), answer.server_times))

    def _fail(self, failure: UpstreamFailure) -> None:
        self.ended = True
        usage = self.codec.usage if self.codec is not None else None
        if self.call is not None:
            self.call.cancel()
        self._owner.attempt_event(AttemptFailed(self.number, failure, usage))


def _throw_away(chunk: bytes) -> None:
    """Relay to a client that is gone."""


def _is_success(status: int) -> bool:
    return 200 <= status < 300  # noqa: PLR2004  RFC 9110, 15.3


def _is_event_stream(headers: Headers) -> bool:
    return any(name == b"content-type" and value.lower().startswith(b"text/event-stream") for name, value in headers)
