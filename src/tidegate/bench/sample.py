"""What a client process saw of one request, and of itself.

Instants are seconds from the run's origin on the machine's monotonic clock, taken when bytes were read, before anything is parsed. None: it
did not happen.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=10**12)]
"""Of requests and measurements: a report that is read may say anything, and no sum of these overflows."""
Spread = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
"""A standard deviation, which is squared."""


class End(StrEnum):
    """How the exchange ended, whatever was in it."""

    COMPLETE = "complete"
    """The answer came to its proper end: the whole body, and of a stream `[DONE]` or a finish reason."""
    TRANSPORT = "transport"
    """No connection, or it broke, or what came was not HTTP."""
    TIMEOUT = "timeout"
    HTTP_ERROR = "http_error"
    """A status other than 2xx."""
    STREAM_ERROR = "stream_error"
    """An error within an answer of status 200: an `error` member or event, or the finish reason `error`."""
    TRUNCATED = "truncated"
    """A stream that ended without `[DONE]` and without a finish reason, or a body that is not a whole answer."""
    NOT_SENT = "not_sent"
    """The run was ended first."""


class Sample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One request as it went."""

    index: int
    due_at: float
    sent_at: float
    """When the (first) try was handed to the socket; latencies "from sent" run from here."""
    end: End
    ended_at: float
    """When the last byte was read, or the failure known."""
    connected_at: float | None = None
    headers_at: float | None = None
    """Of the try that counted, as everything below."""
    first_event_at: float | None = None
    first_reasoning_at: float | None = None
    first_content_at: float | None = None
    """First non-empty content, text or tool-call argument; a chunk with only a role is none."""
    last_output_at: float | None = None
    usage_at: float | None = None
    status: int = 0
    finish_reason: str = ""
    error: str = ""
    """At most 200 characters, without the key."""
    output_chunks: int = 0
    longest_gap_s: float = 0.0
    """Between two reads that brought output."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    """As the server reports; None: it did not. A chunk is never counted as a token."""
    reasoning_tokens: int | None = None
    cost_micro: int | None = None
    """As the upstream reports it (`usage.cost`), in millionths of its currency."""
    response_bytes: int = 0
    text_faults: tuple[str, ...] = ()
    """What is wrong with the text: `invalid_json`, `schema_mismatch`, `pattern_missing`."""
    tries: int = 1
    """Of ours."""
    upstream_tries: int | None = None
    """Attempts that the server says it made."""
    queue_s: float | None = None
    """Waiting before the model began, as the server says."""
    server_s: float | None = None
    """Time within the server, as it says."""
    client: int = 0
    """The process that sent it."""

    @property
    def first_output_at(self) -> float | None:
        """Give the first non-empty output of any kind."""
        marks = [at for at in (self.first_reasoning_at, self.first_content_at) if at is not None]
        return min(marks, default=None)


class Buckets(msgspec.Struct, frozen=True):
    """A histogram on its way between processes: counts by bucket index (see `bench.histogram`)."""

    counts: dict[int, Count]
    total: Count
    sum: float
    sum_of_squares: float
    least: float
    most: float


class ClientHealth(msgspec.Struct, frozen=True):
    """How well one client process kept up with its own schedule."""

    client: int
    loop_lag_p99_s: float
    """How late a timer of the event loop came, asked every 10 ms."""
    loop_lag_max_s: float
    cpu_ratio: float
    """CPU time over the run's time, 1 is a whole core."""
    cap_reached: int
    """Requests that had to wait for others to end, because `max_in_flight` were under way."""
    connections_opened: int


class ClientReport(msgspec.Struct, frozen=True):
    """The last word of a client process."""

    health: ClientHealth
    chunk_gaps: dict[int, Buckets]
    """By stage: seconds between two reads that brought output, of requests that ended whole."""
    token_gaps: dict[int, Buckets]
    """The same, each gap divided by the tokens that it brought: completion tokens over chunks of its request."""
