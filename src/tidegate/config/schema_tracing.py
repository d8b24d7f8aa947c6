"""Settings of the spans that requests leave behind."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tidegate.config.section import Positive, Section
from tidegate.domain.units import Secret


class OtlpSection(Section, frozen=True, kw_only=True):
    """An OpenTelemetry collector, or whoever else takes OTLP over HTTP. Needs the extra `otlp`."""

    endpoint: Annotated[
        str, Meta(min_length=1, max_length=2048, description="Where spans are posted to, with its path: `http://127.0.0.1:4318/v1/traces`.")
    ]
    headers: Annotated[dict[str, Secret], Meta(description="More headers to send, such as `authorization`.")] = {}


class TracingSection(Section, frozen=True, kw_only=True):
    """Which requests are sent on as spans, once they are over. Without `otlp` none is."""

    otlp: Annotated[OtlpSection | None, Meta(description="Where spans go; without it, nowhere.")] = None
    keep_ratio: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Share of the traces begun here that is kept whatever happens in them; it is sent on as sampled. Kept besides: "
            "what failed, was slow, degraded or retried, and what the caller's `traceparent` says is sampled.",
        ),
    ] = 0.1
    slow_s: Annotated[Positive, Meta(description="An answer that took so long, or a stream whose first output did, is kept.")] = 10.0
    service_name: Annotated[str, Meta(min_length=1, max_length=128, description="`service.name` of the spans.")] = "tidegate"
    resource: Annotated[
        dict[str, str], Meta(description="More attributes of the resource, such as `deployment.environment.name: production`.")
    ] = {}

    @property
    def sent_ratio(self) -> float:
        """Say which share of traces begins as sampled."""
        return self.keep_ratio if self.otlp is not None else 0.0
