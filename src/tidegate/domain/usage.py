"""Tokens of one call, and how well we know them."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Evidence(StrEnum):
    """Where a token figure comes from, best first."""

    REPORTED = "reported"
    """The upstream's own `usage`."""
    COUNTED = "counted"
    """Our tokenizer on the prompt, chunks seen for the completion: a lower bound on what was generated."""
    ESTIMATED = "estimated"
    """A bound or a guess; nothing was measured."""


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Token counts of one answer, each >= 0; names follow OpenAI's `usage` object."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0
    """Prompt tokens that the provider put into its cache; like the cached ones a part of `prompt_tokens`."""

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens
