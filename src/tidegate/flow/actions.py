"""What a flow asks its driver to do. Imperatives; a driver performs them in order."""

from __future__ import annotations

from typing import Literal

import msgspec

from tidegate.domain.record import RequestRecord
from tidegate.domain.units import ModelName, ReplicaId, Secret, TenantId
from tidegate.domain.usage import Usage
from tidegate.errors import TidegateError


class Authenticate(msgspec.Struct, frozen=True, gc=False):
    """Find out who calls; answer with `Authenticated` or `AuthenticationRefused`."""

    credential: Secret


class ReadBody(msgspec.Struct, frozen=True, gc=False):
    """Accept the request body; answer with `BodyReceived` or `BodyRefused`."""


class CountTokens(msgspec.Struct, frozen=True, gc=False):
    """Count the prompt exactly; answer with `TokensCounted`."""


class AwaitLease(msgspec.Struct, frozen=True, gc=False):
    """Wait for the next exchange with the store of the shared limits; answer with `LeaseAnswered`, in time or not."""

    deadline_s: float
    """How long at most."""


class HoldCost(msgspec.Struct, frozen=True, gc=False):
    """Enter in the books what the request may come to cost, in place of what was entered before. Its record ends it."""

    tenant: TenantId
    cost_micro: int


class StartAttempt(msgspec.Struct, frozen=True):
    """Send `body` to a replica. `attempt` counts from 1; events of other attempts than the current one are ignored."""

    attempt: int
    replica: ReplicaId
    model: ModelName
    body: bytes


class CancelAttempt(msgspec.Struct, frozen=True, gc=False):
    """Close the attempt's connection now."""

    attempt: int


class Detach(msgspec.Struct, frozen=True, gc=False):
    """The client is gone: read the attempt to its end and send nothing more to anybody."""

    attempt: int


class Relay(msgspec.Struct, frozen=True, gc=False):
    """The commit point of a stream: send the head, what was held back, and from now on every chunk as it comes.

    It may come before the upstream has answered (`commit_after_s`): then the head is one of the gateway's own.
    """

    attempt: int
    degraded: str | None = None


class Reply(msgspec.Struct, frozen=True, gc=False):
    """Send the attempt's complete answer to the client."""

    attempt: int
    degraded: str | None = None


class EndStream(msgspec.Struct, frozen=True, gc=False):
    """The relayed stream is complete: end the client's response."""


class Answer(msgspec.Struct, frozen=True):
    """Send a body that the gateway itself made, with status 200: JSON, or, if `stream`, all events of a stream."""

    body: bytes
    degraded: str | None = None
    """The value of `X-Tidegate-Degraded`, for an answer that stands in for the model's."""
    stream: bool = False


class SendError(msgspec.Struct, frozen=True):
    """Nothing was sent yet: answer with this error."""

    error: TidegateError


class InterruptStream(msgspec.Struct, frozen=True):
    """Part of a stream is out: send the error as an in-band event, then end the response without `[DONE]`."""

    error: TidegateError


class TruncateStream(msgspec.Struct, frozen=True, gc=False):
    """A limit has nothing left for a stream, whose attempt was cancelled: finish every open choice with `length`, end with `[DONE]`."""

    reason: Literal["token_limit", "budget"]
    rule: str
    usage: Usage
    """For a client that asked for it."""


class Finish(msgspec.Struct, frozen=True):
    """The last action of every flow."""

    record: RequestRecord


Action = (
    Authenticate
    | ReadBody
    | CountTokens
    | AwaitLease
    | HoldCost
    | StartAttempt
    | CancelAttempt
    | Detach
    | Relay
    | Reply
    | EndStream
    | Answer
    | SendError
    | InterruptStream
    | TruncateStream
    | Finish
)
