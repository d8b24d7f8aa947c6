"""How far an attempt's stream has come. The driver writes it for each piece, the flow looks when a clock runs out and at the end."""

from __future__ import annotations

from typing import Final

from tidegate.flow.allowance import UNREACHED

_TEXT_BYTES_PER_TOKEN: Final = 8


class Progress:
    """That of one attempt."""

    __slots__ = ("at", "chunks", "extend_at", "extend_at_bytes", "text_bytes")

    def __init__(self, at: float) -> None:
        self.at = at
        """When the last piece came, or the attempt began."""
        self.chunks = 0
        """Pieces of output so far."""
        self.text_bytes = 0
        """Of the texts in them."""
        self.extend_at = UNREACHED
        """The driver reports `OutputReached` when `tokens` comes to this: when `chunks` does, or `text_bytes` to what follows."""
        self.extend_at_bytes = UNREACHED

    @property
    def tokens(self) -> int:
        """Estimate the tokens of the output so far: at least one in each piece, and at least one in each eight bytes of text.

        A piece is not a token: most servers send one in each, some gather several, and the texts of those are measured instead. A token of
        a natural language or of code has three to five bytes, so the estimate is a lower bound, and nobody is stopped early because of it.
        """
        return max(self.chunks, self.text_bytes // _TEXT_BYTES_PER_TOKEN)

    def go_on_to(self, tokens: int) -> None:
        """Have the driver report at so many tokens."""
        self.extend_at = tokens
        self.extend_at_bytes = tokens * _TEXT_BYTES_PER_TOKEN
