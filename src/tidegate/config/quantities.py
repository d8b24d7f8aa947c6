"""Numbers as people write them: `200_000`, `30s`, `500ms`, `32MiB`. Text in, number or None out."""

from __future__ import annotations

import re
from fractions import Fraction

_LONGEST = 40
"""Characters; a longer text is no quantity, and Python's own parsing of digits is quadratic."""
_WHOLE = re.compile(r"[+-]?[0-9]+(?:_[0-9]+)*")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:_[0-9]+)*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))+")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SIZE = re.compile(r"([0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?) ?(b|kb|mb|gb|tb|kib|mib|gib|tib)", re.IGNORECASE)
_SECONDS = {"ms": Fraction(1, 1000), "s": Fraction(1), "m": Fraction(60), "h": Fraction(3600), "d": Fraction(86400)}
_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def whole_number(text: str) -> int | None:
    """Read `200_000`; no fraction, no exponent."""
    return int(text) if len(text) <= _LONGEST and _WHOLE.fullmatch(text) else None


def number(text: str) -> float | None:
    """Read `1.5`, `2_000`, `1e3`; never infinite, never NaN."""
    if len(text) > _LONGEST or not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if value - value == 0 else None


def seconds(text: str) -> float | None:
    """Read `30`, `30s`, `500ms`, `1h30m` as seconds."""
    plain = number(text)
    if plain is not None or len(text) > _LONGEST or not _DURATION.fullmatch(text):
        return plain
    return float(sum(Fraction(amount) * _SECONDS[unit] for amount, unit in _DURATION_PART.findall(text)))


def size_bytes(text: str) -> int | None:
    """Read `65_536`, `64KB` (1000s) or `32MiB` (1024s) as bytes; None as well when it is not a whole number of them."""
    plain = whole_number(text)
    if plain is not None or len(text) > _LONGEST:
        return plain
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    amount = Fraction(match[1].replace("_", "")) * _BYTES[match[2].lower()]
    return int(amount) if amount.denominator == 1 else None
