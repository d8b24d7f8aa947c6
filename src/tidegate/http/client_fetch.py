"""A whole response as one awaitable: for key sets, health checks and tokenizer calls. The data plane itself uses the callbacks."""

from __future__ import annotations

import asyncio

import msgspec

from tidegate.domain.units import Headers
from tidegate.errors import TidegateError, UpstreamTimeout, UpstreamUnavailable
from tidegate.ports import CallFailure, UpstreamCall, UpstreamClient, UpstreamRequest


class Response(msgspec.Struct, frozen=True):
    """A complete answer, whatever its status."""

    status: int
    headers: Headers
    body: bytes


class ResponseCollector:
    """Receives one call and keeps its body, at most `max_bytes` of it."""

    __slots__ = ("_body", "_body_bytes", "_headers", "_max_bytes", "_status", "done")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._status = 0
        self._headers: Headers = ()
        self._body: list[bytes] = []
        self._body_bytes = 0
        self.done: asyncio.Future[Response | TidegateError] = asyncio.get_running_loop().create_future()

    def call_connected(self) -> None: ...

    def response_started(self, status: int, headers: Headers) -> None:
        self._status, self._headers = status, headers

    def response_chunk(self, chunk: bytes) -> None:
        self._body_bytes += len(chunk)
        if self._body_bytes <= self._max_bytes:
            self._body.append(chunk)
        else:
            self._body.clear()
            self._end(
                UpstreamUnavailable(
                    f"the answer is longer than the {self._max_bytes} bytes allowed for it; check that the address is right"
                )
            )

    def response_ended(self) -> None:
        self._end(Response(self._status, self._headers, b"".join(self._body)))

    def call_failed(self, failure: CallFailure) -> None:
        self._end(UpstreamUnavailable(failure.message))

    def _end(self, outcome: Response | TidegateError) -> None:
        if not self.done.done():
            self.done.set_result(outcome)


async def fetch(client: UpstreamClient, request: UpstreamRequest, *, deadline_s: float, max_bytes: int) -> Response:
    """Send a request and give its whole response.

    `deadline_s` are seconds from now for everything. Raises `UpstreamTimeout` when they are over and `UpstreamUnavailable` when no complete
    answer of at most `max_bytes` comes; a status of 400 or above is an answer.
    """
    collector = ResponseCollector(max_bytes)
    call: UpstreamCall = client.start(request, collector)
    try:
        async with asyncio.timeout(deadline_s):
            outcome = await collector.done
    except TimeoutError:
        raise UpstreamTimeout(
            f"{request.method} {request.path} had no complete answer within {deadline_s:g} s; look whether that server is overloaded"
        ) from None
    finally:
        call.cancel()
    if isinstance(outcome, TidegateError):
        raise outcome
    return outcome
