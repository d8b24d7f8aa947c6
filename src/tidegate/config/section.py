"""What every section of the schema is made of."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all sections: unknown keys are refused."""


Positive = Annotated[float, Meta(gt=0, le=604_800)]
"""Seconds; a week is longer than any connection lives, and far below what overflows an event loop's timer."""
AtLeastOne = Annotated[int, Meta(ge=1)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Ratio = Annotated[float, Meta(gt=0, le=1)]
