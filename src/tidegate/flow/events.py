"""What a driver tells a flow. Past facts; those of an attempt carry its number."""

from __future__ import annotations

import msgspec

from tidegate.domain.principal import Principal
from tidegate.domain.record import ServerTimes
from tidegate.domain.units import ReplicaId
from tidegate.domain.upstream import UpstreamFailure
from tidegate.domain.usage import Usage
from tidegate.errors import TidegateError
from tidegate.ports import TokenCount


class Authenticated(msgspec.Struct, frozen=True):
    principal: Principal


class AuthenticationRefused(msgspec.Struct, frozen=True):
    error: TidegateError


class BodyReceived(msgspec.Struct, frozen=True):
    body: bytes


class BodyRefused(msgspec.Struct, frozen=True):
    error: TidegateError


class TokensCounted(msgspec.Struct, frozen=True):
    """`count` None: the counter could not answer in time."""

    count: TokenCount | None


class LeaseAnswered(msgspec.Struct, frozen=True, gc=False):
    """The store of the shared limits was asked, or did not answer in time."""


class AttemptEvent(msgspec.Struct, frozen=True):
    """What happened to an attempt; its number tells late news of an earlier one apart."""

    attempt: int


class OutputStarted(AttemptEvent, frozen=True):
    """The first non-empty output of a stream came."""


class OutputReached(AttemptEvent, frozen=True):
    """A stream has come to `Progress.extend_at`: its output has used up what is held for it."""


class AttemptCompleted(AttemptEvent, frozen=True):
    """The answer is complete and well formed."""

    usage: Usage | None
    finish_reason: str | None
    output_bytes: int = 0
    """Size of a whole answer, the evidence of last resort when it carries no usage."""
    server_times: ServerTimes | None = None


class AttemptFailed(AttemptEvent, frozen=True):
    failure: UpstreamFailure
    usage: Usage | None = None


class ReplicaLost(msgspec.Struct, frozen=True):
    """A health check found a replica dead: an attempt that waits for its first output there need not wait any longer."""

    replica: ReplicaId
    reason: str


class ClientLeft(msgspec.Struct, frozen=True, gc=False):
    """The client closed its connection, or stopped reading for too long."""


class DrainExpired(msgspec.Struct, frozen=True, gc=False):
    """The process must end and this request is still running."""


class DriverFailed(msgspec.Struct, frozen=True, gc=False):
    """A fault of Tidegate in the driver: the request cannot go on."""


CallEvent = OutputStarted | OutputReached | AttemptCompleted | AttemptFailed
RequestEvent = (
    Authenticated
    | AuthenticationRefused
    | BodyReceived
    | BodyRefused
    | TokensCounted
    | LeaseAnswered
    | ReplicaLost
    | ClientLeft
    | DrainExpired
    | DriverFailed
)
Event = CallEvent | RequestEvent
