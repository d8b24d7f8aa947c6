"""One request of the plan, from the instant it is sent to its `Sample`; tried again if the target says so and nothing has come out yet.

Invariants: every read is given its instant before a byte of it is looked at; `on_end` is called exactly once, whatever happens, and after
it the exchange holds neither timer nor call. The time-out is that of the request with all of its tries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from tidegate.bench.chunks import error_of
from tidegate.bench.plan import PlannedRequest, Target
from tidegate.bench.reading import Answer
from tidegate.bench.sample import End, Sample
from tidegate.bench.text_checks import TextCheck
from tidegate.domain.units import Headers
from tidegate.ports import CallFailure, CallFailureKind, UpstreamCall, UpstreamClient, UpstreamRequest
from tidegate.wire.headers import parse_retry_after

MAX_ERROR_BYTES: Final = 16_384
"""Of an error's body: more than is ever said."""
MAX_ERROR_CHARS: Final = 200
FIRST_PAUSE_S: Final = 0.5
"""Before a second try where the target names no time; doubled for each one after it, to at most `LONGEST_PAUSE_S`: as OpenAI's SDKs."""
LONGEST_PAUSE_S: Final = 8.0
_RETRIED_STATUSES: Final = frozenset({429, 503})
_RETRIED_FAILURES: Final = frozenset({CallFailureKind.CONNECT, CallFailureKind.DNS, CallFailureKind.TLS, CallFailureKind.RESET})
_MASK: Final = "***"


class Clocks(msgspec.Struct, frozen=True):
    """What tells the time, and what wakes one up."""

    now: Callable[[], float]
    """Seconds from the run's origin."""
    epoch_s: Callable[[], float]
    """The wall clock: some targets name a date to come back at."""
    loop: asyncio.AbstractEventLoop


class Exchange:
    """Satisfies `ports.CallReceiver`."""

    __slots__ = (
        "_call",
        "_check",
        "_client",
        "_clocks",
        "_connected_at",
        "_due_at",
        "_error_body",
        "_headers",
        "_headers_at",
        "_number",
        "_on_end",
        "_request",
        "_sent_at",
        "_status",
        "_target",
        "_timer",
        "_tries",
        "_waker",
        "answer",
        "planned",
    )

    def __init__(
        self,
        planned: PlannedRequest,
        target: Target,
        *,
        check: TextCheck,
        client: UpstreamClient,
        clocks: Clocks,
        on_end: Callable[[Exchange, Sample], None],
        number: int = 0,
    ) -> None:
        """`number` is that of the client process."""
        self.planned = planned
        self._target = target
        self._check = check
        self._client = client
        self._clocks = clocks
        self._on_end = on_end
        self._number = number
        self._call: UpstreamCall | None = None
        self._request: UpstreamRequest | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waker: asyncio.TimerHandle | None = None
        self._tries = 0
        self._due_at = self._sent_at = 0.0
        self._forget()

    def _forget(self) -> None:
        """Begin a try as if there had been none."""
        self.answer: Answer | None = None
        self._status = 0
        self._headers: Headers = ()
        self._error_body = b""
        self._connected_at: float | None = None
        self._headers_at: float | None = None

    def begin(self, request: UpstreamRequest, *, due_at: float) -> None:
        """Send it now."""
        self._request = request
        self._due_at = due_at
        self._timer = self._clocks.loop.call_later(self._target.timeout_s, self._timed_out)
        self._sent_at = self._clocks.now()
        self._try()

    def cancel(self) -> None:
        """End it because the run ends."""
        self._finish(End.NOT_SENT, "the run was ended first")

    def _try(self) -> None:
        assert self._request is not None
        self._waker = None
        self._tries += 1
        self._call = self._client.start(self._request, self)

    # ── from the call ────────────────────────────────────────────────────────

    def call_connected(self) -> None:
        self._connected_at = self._clocks.now()

    def response_started(self, status: int, headers: Headers) -> None:
        self._headers_at = self._clocks.now()
        self._status = status
        if 200 <= status < 300:  # noqa: PLR2004  RFC 9110, 15.3
            self.answer = Answer(headers, asked_stream=self._target.stream, keeps_text=self._check.is_needed)
        else:
            self._headers = headers

    def response_chunk(self, chunk: bytes) -> None:
        at = self._clocks.now()
        answer = self.answer
        if answer is not None:
            answer.feed(chunk, at)
        elif len(self._error_body) < MAX_ERROR_BYTES:
            self._error_body += chunk[:MAX_ERROR_BYTES]

    def response_ended(self) -> None:
        self._call = None
        now = self._clocks.now()
        answer = self.answer
        if answer is None:
            if self._status in _RETRIED_STATUSES and self._again(parse_retry_after(self._headers, self._clocks.epoch_s())):
                return
            self._finish(End.HTTP_ERROR, error_of(self._error_body), at=now)
            return
        answer.end(now)
        if answer.failed:
            self._finish(End.STREAM_ERROR, answer.error, at=now)
        elif answer.is_complete:
            self._finish(End.COMPLETE, "", at=now)
        else:
            self._finish(End.TRUNCATED, "the answer ended before its end", at=now)

    def call_failed(self, failure: CallFailure) -> None:
        self._call = None
        answer = self.answer
        if answer is not None and answer.failed:
            self._finish(End.STREAM_ERROR, answer.error)
        else:
            has_output = answer is not None and answer.last_output_at is not None
            if has_output or failure.kind not in _RETRIED_FAILURES or not self._again(None):
                self._finish(End.TRANSPORT, failure.message)

    # ── the end ──────────────────────────────────────────────────────────────

    def _again(self, wish_s: float | None) -> bool:
        """Try once more after a pause, unless there are no tries or no time left."""
        if self._tries > self._target.retries:
            return False
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (self._tries - 1)) if wish_s is None else wish_s
        if self._clocks.now() + pause_s >= self._sent_at + self._target.timeout_s:
            return False
        self._forget()
        self._waker = self._clocks.loop.call_later(pause_s, self._try)
        return True

    def _timed_out(self) -> None:
        answer = self.answer
        if answer is not None and answer.failed:
            self._finish(End.STREAM_ERROR, answer.error)
        else:
            self._finish(End.TIMEOUT, f"not over after {self._target.timeout_s:g} s")

    def _finish(self, end: End, error: str, *, at: float | None = None) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
        for timer in (self._timer, self._waker):
            if timer is not None:
                timer.cancel()
        self._timer = self._waker = None
        on_end, self._on_end = self._on_end, _over
        on_end(self, self._sample(end, error, self._clocks.now() if at is None else at))

    def _sample(self, end: End, error: str, ended_at: float) -> Sample:
        key = self._target.key
        answer = self.answer
        marks = Sample(
            index=self.planned.index,
            due_at=self._due_at,
            sent_at=self._sent_at,
            end=end,
            ended_at=ended_at,
            connected_at=self._connected_at,
            headers_at=self._headers_at,
            status=self._status,
            error=_plain(error.replace(key, _MASK) if key else error),
            tries=self._tries,
            client=self._number,
        )
        return marks if answer is None else _with_answer(marks, answer, self._check)


def _with_answer(marks: Sample, answer: Answer, check: TextCheck) -> Sample:
    """Add what was read."""
    return msgspec.structs.replace(
        marks,
        first_event_at=answer.first_event_at,
        first_reasoning_at=answer.first_reasoning_at,
        first_content_at=answer.first_content_at,
        last_output_at=answer.last_output_at,
        usage_at=answer.usage_at,
        finish_reason=_plain(answer.finish_reason),
        output_chunks=answer.output_chunks,
        longest_gap_s=answer.longest_gap_s,
        prompt_tokens=answer.prompt_tokens,
        cached_tokens=answer.cached_tokens,
        completion_tokens=answer.completion_tokens,
        reasoning_tokens=answer.reasoning_tokens,
        cost_micro=answer.cost_micro,
        response_bytes=answer.response_bytes,
        text_faults=check.faults(answer.text) if check.is_needed and marks.end is End.COMPLETE else (),
        upstream_tries=answer.upstream_tries,
        queue_s=answer.queue_s,
        server_s=answer.server_s,
    )


def _plain(text: str) -> str:
    """Give what a server says as one line that can steer no terminal and that every encoder takes."""
    line = " ".join(text[: 2 * MAX_ERROR_CHARS].split())[:MAX_ERROR_CHARS]
    return line if line.isprintable() else "".join(character if character.isprintable() else "?" for character in line)


def _over(exchange: Exchange, sample: Sample) -> None:
    raise AssertionError(f"{exchange.planned} has ended twice: {sample}")
