"""Write the answer of `POST /v1/estimate`: the arithmetic in full, so that anybody can check it.

`total_tokens` = round(`input_tokens` × `alpha`) + round(`output_tokens` × `beta`) + round(`overhead_tokens` × `gamma`), where the overhead
is the sum of the first two. The coefficients are written with six decimals and are used as written.
"""

from __future__ import annotations

import msgspec

from tidegate.domain.features import ContentType


class EstimateAnswer(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="object", tag="estimate"):
    """The members of the answer, in the order they are written."""

    model: str
    content_type: ContentType
    input_tokens: int
    output_tokens: int
    overhead_tokens: int
    alpha: float
    beta: float
    gamma: float
    total_tokens: int
    learned_from: int
    """Requests that the coefficients were learned from; 0: they are the defaults."""
    tokenizer: str
    exact: bool
    """The input was counted with the model's own tokenizer, and nothing in it was guessed at."""
    cost_micro: int | None = None
    """At most, in millionths of the currency; absent: the model has no price."""
    currency: str = ""


def encode_estimate(answer: EstimateAnswer) -> bytes:
    return msgspec.json.encode(answer)
