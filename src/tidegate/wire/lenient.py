"""Read upstreams' JSON as generously as their clients do, and take figures out of it without trusting any type.

Python servers write what strict JSON forbids: `NaN` in logprobs, one emoji as two lone surrogates in two chunks. The strict and fast
decoder comes first; what it refuses gets a second reading by the standard library, and only what that refuses too is malformed.
"""

from __future__ import annotations

import json
import math
from enum import Enum
from typing import Final

import msgspec

from tidegate.domain.record import ServerTimes
from tidegate.domain.usage import Usage


class Malformed(Enum):
    """The one value that no JSON text means."""

    MALFORMED = "malformed"


MALFORMED = Malformed.MALFORMED

_ANY = msgspec.json.Decoder()
_MAX_EXACT_DIGITS = 18
MAX_COUNT: Final = 2**31 - 1
"""The largest count believed: above any context, and far below what sums, message encoders and databases cannot hold."""

_DAY_MS: Final = 86_400_000


def decode(text: bytes) -> object:
    """Decode JSON; `MALFORMED` when it is none, or nested beyond all reason."""
    try:
        return _ANY.decode(text)
    except RecursionError:
        return MALFORMED
    except msgspec.DecodeError:
        try:
            return json.loads(text.decode("utf-8", "replace"), parse_int=_whole_number)
        except (ValueError, RecursionError):
            return MALFORMED


def _whole_number(digits: str) -> int | float:
    """Keep the interpreter's limit on digits from making a huge number an error."""
    return int(digits) if len(digits) <= _MAX_EXACT_DIGITS else float(digits)


def count(value: object) -> int:
    """Read a token count: a number >= 0, at most `MAX_COUNT`; anything else counts as 0."""
    if isinstance(value, bool):
        return 0
    if isinstance(value, int):
        return min(max(0, value), MAX_COUNT)
    if isinstance(value, float) and math.isfinite(value):
        return int(min(max(0.0, value), MAX_COUNT))
    return 0


def member(value: object, name: str) -> object:
    """Read a member of what may not be an object."""
    return value.get(name) if isinstance(value, dict) else None


def text(value: object) -> str | None:
    """Give a non-empty string, or None."""
    return value if isinstance(value, str) and value else None


def read_usage(value: object) -> Usage | None:
    """Lift an OpenAI `usage` object, details included; None when it is not an object with figures in it, and where a figure cannot be true:
    then the gateway's own estimate is the better evidence."""
    if not isinstance(value, dict) or not ("prompt_tokens" in value or "completion_tokens" in value or "total_tokens" in value):
        return None
    if not (_is_believable(value.get("prompt_tokens")) and _is_believable(value.get("completion_tokens"))):
        return None
    prompt = count(value.get("prompt_tokens"))
    completion = count(value.get("completion_tokens"))
    if not prompt and not completion:
        prompt = count(value.get("total_tokens"))
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=count(member(value.get("prompt_tokens_details"), "cached_tokens")),
        reasoning_tokens=count(member(value.get("completion_tokens_details"), "reasoning_tokens")),
        cache_write_tokens=_cache_writes(value),
    )


def _is_believable(figure: object) -> bool:
    """Say whether a figure is absent or a number of tokens that some answer may have."""
    return figure is None or (isinstance(figure, int | float) and not isinstance(figure, bool) and 0 <= figure <= MAX_COUNT)


def read_timings(value: object) -> ServerTimes | None:
    """Lift the `timings` that llama.cpp's server adds to an answer (milliseconds); None when there are none in it."""
    prefill_s, decode_s = milliseconds(member(value, "prompt_ms")), milliseconds(member(value, "predicted_ms"))
    return None if prefill_s is None and decode_s is None else ServerTimes(prefill_s=prefill_s, decode_s=decode_s)


def milliseconds(value: object) -> float | None:
    """Read a duration in milliseconds, as seconds; None for what is none, or longer than a day."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _DAY_MS:
        return None
    return value / 1e3


def _cache_writes(usage: dict[str, object]) -> int:
    """Find the tokens put into a provider's cache: OpenRouter's name for them, or Anthropic's, which DashScope has among the details."""
    details = usage.get("prompt_tokens_details")
    written = count(member(details, "cache_write_tokens")) or count(member(details, "cache_creation_input_tokens"))
    return written or count(usage.get("cache_creation_input_tokens"))


def in_band_error(value: object, *, named_error: bool = False) -> object:
    """Find the error in a body or event that came with status 200; None when it carries none.

    It is a truthy `error`, as OpenAI's SDKs see it; or, where no choices are, an object that is itself an error (`code` and `message`, as
    DashScope's and older vLLM's), or anything at all in an event named `error`.
    """
    if not isinstance(value, dict):
        return value if named_error else None
    error = value.get("error")
    if error:
        return error
    if "choices" in value or "data" in value:
        return None
    return value if named_error or (text(value.get("message")) and "code" in value) else None
