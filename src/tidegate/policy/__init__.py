"""Decisions: (facts, now) -> value. Nothing here does I/O, reads a clock, logs, or raises for an expected refusal."""
