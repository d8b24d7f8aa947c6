"""Answers in OpenAI's shapes: reading an upstream's, writing the gateway's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tidegate.domain.error_object import encode_error
from tidegate.domain.outcome import FinishReason
from tidegate.domain.record import ServerTimes
from tidegate.domain.request import Operation
from tidegate.domain.upstream import FailureScope, UpstreamFailure
from tidegate.domain.usage import Usage
from tidegate.errors import TidegateError
from tidegate.ports import TokenCount
from tidegate.wire import lenient
from tidegate.wire.dialects import Dialect, classify_error_object
from tidegate.wire.glances import ANSWER

MAX_IDENTITY_CHARS: Final = 256
"""Longest id or model name taken over from an upstream into records."""

_RANK: Final[dict[str, int]] = {
    FinishReason.STOP: 0,
    FinishReason.TOOL_CALLS: 2,
    FinishReason.FUNCTION_CALL: 2,
    FinishReason.LENGTH: 3,
    FinishReason.CONTENT_FILTER: 4,
    FinishReason.ERROR: 5,
}
_RANK_OF_UNKNOWN: Final = 1
_GENERATION_FAILED: Final = FinishReason.ERROR.value
_EMBEDDING: Final = Operation.EMBEDDING


class AnswerFacts(msgspec.Struct, frozen=True):
    """What decisions need of a complete, non-streamed answer with a 2xx status."""

    usage: Usage | None = None
    finish_reason: str | None = None
    failure: UpstreamFailure | None = None
    response_id: str | None = None
    response_model: str | None = None
    server_times: ServerTimes | None = None


def most_telling(known: str | None, seen: str | None) -> str | None:
    """Merge the finish reasons of several choices: error > content_filter > length > tool_calls > unknown > stop."""
    if not seen:
        return known
    if known is None or _rank(seen) > _rank(known):
        return seen[:MAX_IDENTITY_CHARS]
    return known


def _rank(reason: str) -> int:
    return _RANK.get(reason, _RANK_OF_UNKNOWN)


def identity(value: object) -> str | None:
    """Give an id or model name, bounded; None when it is no string."""
    name = lenient.text(value)
    return name[:MAX_IDENTITY_CHARS] if name else None


def read_answer(operation: Operation, body: bytes, dialect: Dialect) -> AnswerFacts:
    """Read a complete 2xx body. An error inside it, or no answer in it, is a failure."""
    try:
        head = ANSWER.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return _read_unusual(operation, body, dialect)
    has_answer = head.choices is not None if operation is not _EMBEDDING else bool(bytes(head.has_vectors))
    if has_answer and not head.error:  # nearly all: what else makes an answer a failure is looked for in those without one
        finish_reason: str | None = None
        for choice in head.choices or ():
            finish_reason = most_telling(finish_reason, lenient.text(choice.finish_reason))
        return AnswerFacts(
            lenient.read_usage(head.usage),
            finish_reason,
            generation_failed() if finish_reason == _GENERATION_FAILED else None,
            identity(head.id),
            identity(head.model),
            lenient.read_timings(head.timings) if head.timings is not None else None,
        )
    fields = {"error": head.error, "code": head.code, "message": head.message}
    if has_answer:
        fields["choices"] = True
    reasons = [choice.finish_reason for choice in head.choices or ()]
    return _answer(dialect, fields, reasons=reasons, usage=head.usage, response_id=head.id, model=head.model)


def _read_unusual(operation: Operation, body: bytes, dialect: Dialect) -> AnswerFacts:
    """Read what the typed decoder refused: lone surrogates, `NaN`, members of odd types, or no JSON at all."""
    decoded = lenient.decode(body)
    if not isinstance(decoded, dict):
        what = "an empty body" if not body.strip() else "something that is not a JSON object"
        return AnswerFacts(failure=unreadable(f"The upstream answered with {what} ({len(body)} bytes) where a JSON answer was due."))
    choices = decoded.get("choices")
    reasons = [lenient.member(choice, "finish_reason") for choice in choices] if isinstance(choices, list) else []
    fields: dict[str, object] = {name: decoded.get(name) for name in ("error", "code", "message")}
    if isinstance(decoded.get("data" if operation is Operation.EMBEDDING else "choices"), list):
        fields["choices"] = True
    return _answer(dialect, fields, reasons=reasons, usage=decoded.get("usage"), response_id=decoded.get("id"), model=decoded.get("model"))


def _answer(
    dialect: Dialect, fields: dict[str, object], *, reasons: list[object], usage: object, response_id: object, model: object
) -> AnswerFacts:
    finish_reason: str | None = None
    for reason in reasons:
        finish_reason = most_telling(finish_reason, lenient.text(reason))
    failure: UpstreamFailure | None = None
    error = lenient.in_band_error({name: value for name, value in fields.items() if value is not None})
    if error is not None:
        failure = classify_error_object(dialect, error)
    elif finish_reason == _GENERATION_FAILED:
        failure = generation_failed()
    elif "choices" not in fields:
        failure = unreadable("The upstream's answer has status 200 and neither an answer nor an error in it.")
    return AnswerFacts(
        usage=lenient.read_usage(usage),
        finish_reason=finish_reason,
        failure=failure,
        response_id=identity(response_id),
        response_model=identity(model),
    )


def unreadable(message: str) -> UpstreamFailure:
    """Make the failure of an answer that cannot be understood: another replica may do better."""
    return UpstreamFailure(scope=FailureScope.REPLICA, retryable=True, message=message)


def generation_failed() -> UpstreamFailure:
    """Make the failure of an answer that ends with `finish_reason: "error"` and gives no reason."""
    return unreadable('The model server ended the answer with finish_reason "error" and gave no reason.')


# ── what the gateway itself says ───────────────────────────────────────────────


def encode_error_event(error: TidegateError) -> bytes:
    """Write the error as one in-band event, after which the response ends without `[DONE]`."""
    return b"data: %b\n\n" % encode_error(error)


def models_list(names: Iterable[str], created: int) -> bytes:
    """Write the answer of `GET /v1/models`; `created` is in seconds since the epoch."""
    return msgspec.json.encode({"object": "list", "data": [_model(name, created) for name in names]})


def model_object(name: str, created: int) -> bytes:
    """Write the answer of `GET /v1/models/{name}`."""
    return msgspec.json.encode(_model(name, created))


def _model(name: str, created: int) -> dict[str, object]:
    return {"id": name, "object": "model", "created": created, "owned_by": "tidegate"}


def token_count_answer(count: TokenCount, max_model_len: int | None) -> bytes:
    """Write the answer of `POST /tokenize` in vLLM's shape, plus which tokenizer counted and whether exactly."""
    return msgspec.json.encode(
        {
            "count": count.prompt_tokens,
            "max_model_len": max_model_len,
            "tokens": count.tokens,
            "token_strs": None,
            "tokenizer": count.tokenizer,
            "exact": count.exact,
        }
    )
