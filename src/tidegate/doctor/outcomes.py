"""What each outcome of a request means for the person who looks at it: a sentence, what to do, and the command that shows more."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from tidegate.domain.outcome import Outcome


class Ending(msgspec.Struct, frozen=True):
    """`fix` is empty where nothing is wrong."""

    sentence: str
    fix: str
    command: str


_BY_REPLICA: Final = "tidegate query errors --by replica"
_ERRORS: Final = "tidegate query errors"
_LIMITED: Final = 'tidegate doctor --symptom "429 although below the limit"'

OUTCOMES: Final[Mapping[Outcome, Ending]] = MappingProxyType(
    {
        Outcome.OK: Ending("It was answered.", "", ""),
        Outcome.TRUNCATED: Ending(
            "The answer was cut at a length limit.",
            "Raise max_completion_tokens in the client, which bounds thought, too.",
            'tidegate doctor --symptom "broken json"',
        ),
        Outcome.CONTENT_FILTER: Ending(
            "The provider withheld the answer: 200 without a text.",
            "Read finish_reason in the client, and have the prompt looked at.",
            "tidegate query content-filter --by feature",
        ),
        Outcome.MODEL_ERROR: Ending(
            "The model server answered 200 and said in the body that generation failed.",
            "Look at that server's log at that time.",
            "tidegate query errors --by model",
        ),
        Outcome.CLIENT_CANCELLED: Ending(
            "The client left before the end.",
            "If it did not mean to: look at its own deadline, and at the idle timeout of proxies between; streams.heartbeat_s helps.",
            'tidegate doctor --symptom "stream cut"',
        ),
        Outcome.SERVED_FROM_CACHE: Ending("It was answered out of the gateway's own cache.", "", "tidegate query cache --by route"),
        Outcome.DEGRADED: Ending(
            "No model could answer: the client got a prepared answer.", "Mend the targets of its route; the attempts say why.", _BY_REPLICA
        ),
        Outcome.REJECTED_INVALID: Ending("The request itself was refused as wrong.", "Correct it in the client.", _ERRORS),
        Outcome.REJECTED_UNAUTHENTICATED: Ending("It came without a usable key.", "", "tidegate keys list --all"),
        Outcome.REJECTED_FORBIDDEN: Ending("Its key is good, and may not do this.", "", "tidegate keys list"),
        Outcome.REJECTED_OVERLOAD: Ending(
            "The gateway was full, and refused it before any work.",
            "Raise server.max_buffered_bytes or workers, or send smaller bodies.",
            'tidegate doctor --symptom "everything slow at peak"',
        ),
        Outcome.REJECTED_RATE_LIMIT: Ending(
            "A limit of tokens, requests or concurrency was used up.", "Wait as Retry-After says, or raise that limit.", _LIMITED
        ),
        Outcome.REJECTED_BUDGET: Ending(
            "The money of the period was spent.", "Raise that budget, or wait for the period's end.", "tidegate usage"
        ),
        Outcome.REJECTED_NO_REPLICA: Ending(
            "No replica could be used at that moment.", "See what took them out: breakers, health checks, or a person.", "tidegate doctor"
        ),
        Outcome.REJECTED_UPSTREAM: Ending(
            "The upstream judged the request itself to be wrong.",
            "Its words say what; the model may lack a parameter.",
            "tidegate query errors --by model",
        ),
        Outcome.FAILED_UPSTREAM: Ending("Every attempt failed at the model server.", "The attempts say how.", _BY_REPLICA),
        Outcome.FAILED_TIMEOUT: Ending(
            "A clock ran out before an answer was there.",
            "See where the time went: a queue wants replicas, a long answer a longer clock (timeouts).",
            'tidegate doctor --symptom "everything slow at peak"',
        ),
        Outcome.FAILED_MID_STREAM: Ending(
            "The stream broke after it had begun, so it could not be tried again.",
            "Look at that server's log; clients can come back for the rest with X-Tidegate-Resumable: 1, while the gateway has it.",
            'tidegate doctor --symptom "stream ends without done"',
        ),
        Outcome.FAILED_INTERNAL: Ending(
            "A fault of Tidegate.", "Please report it with the log lines of this request id.", "tidegate version"
        ),
    }
)
