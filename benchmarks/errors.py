"""What a person at the terminal is told when a measurement cannot be made."""

from __future__ import annotations


class BenchmarkError(Exception):
    """A measurement that cannot be made, or whose result would be worthless; the text says what to do."""
