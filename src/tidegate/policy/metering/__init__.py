"""Tokens and requests per key: what to reserve, whether it fits, and what was really used."""
