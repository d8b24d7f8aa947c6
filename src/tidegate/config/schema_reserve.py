"""Settings of how many output tokens a request holds before it runs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from tidegate.config.section import AtLeastOne, Section


class ReserveMethod(StrEnum):
    LEARNED = "learned"
    CAP = "cap"
    CONSTANT = "constant"


class ReserveSection(Section, frozen=True, kw_only=True):
    """What a request holds of a token limit for its answer until the answer's length is known. Not more than the client's own cap; only
    `learned` adds a fifth to that while it knows nothing."""

    method: Annotated[
        ReserveMethod,
        Meta(
            description="`learned`: as long as answers to such requests were; `cap`: the client's `max_tokens`, or `constant_tokens` where "
            "it set none; `constant`: `constant_tokens`."
        ),
    ] = ReserveMethod.LEARNED
    quantile: Annotated[
        float, Meta(ge=0.5, le=0.999, description="Of `learned`: the part of all answers that stays within what was held for it.")
    ] = 0.95
    constant_tokens: Annotated[
        AtLeastOne, Meta(description="Held per answer where nothing is known and the client set no cap, and by `constant`.")
    ] = 1024
