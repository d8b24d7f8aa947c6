"""What a client needs to call something OpenAI-compatible."""

from __future__ import annotations

import msgspec

from tidegate.domain.units import Secret


class Endpoint(msgspec.Struct, frozen=True):
    """`base_url` ends in `/v1`, as the SDKs want it."""

    base_url: str
    api_key: Secret

    @property
    def headers(self) -> dict[str, str]:
        """For clients that are not an SDK."""
        return {"authorization": f"Bearer {self.api_key.reveal()}"}
