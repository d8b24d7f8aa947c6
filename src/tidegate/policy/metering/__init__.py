"""Limits on requests, tokens and money: what to reserve, whether it fits, and what was really used."""
