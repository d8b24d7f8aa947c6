"""Reads header lines back into fields."""

from __future__ import annotations

from tidegate.domain.units import HeaderLines, Headers


def fields_of(lines: HeaderLines) -> Headers:
    """Give the fields that whole lines say, names and values as they are."""
    fields = []
    for line in lines.split(b"\r\n")[:-1]:
        name, _, value = line.partition(b": ")
        fields.append((name, value))
    return tuple(fields)
