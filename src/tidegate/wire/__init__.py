"""Bytes <-> domain: incremental, indifferent to how bytes are split, no I/O and no clock."""
