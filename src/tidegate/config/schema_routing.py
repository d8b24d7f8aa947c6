"""Settings of routing: targets, routes, and rules that look at a request."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from tidegate.config.section import AtLeastOne, Positive, Ratio, Section
from tidegate.domain.features import Trait


class TargetSection(Section, frozen=True, kw_only=True):
    """One upstream of a route."""

    upstream: Annotated[str, Meta(description="Name of an upstream, or `local`.")]
    model: Annotated[str | None, Meta(description="Model name to send; without it, the client's.")] = None
    typical_ttft_s: Annotated[
        Positive | None, Meta(description="Its usual time to first token, believed until enough calls were observed (for `order: sla`).")
    ] = None
    relative_cost: Annotated[float, Meta(ge=0, le=1_000_000, description="Its cost beside the other targets' (for `order: sla`).")] = 1.0


class OrderName(StrEnum):
    LISTED = "listed"
    SLA = "sla"


class BudgetSection(Section, frozen=True, kw_only=True):
    """What one request may be expected to cost, and how a dearer one is made cheaper: first a shorter answer, then a smaller model."""

    tokens: Annotated[AtLeastOne, Meta(description="Estimated tokens (prompt and answer) that one request may need.")] = 5000
    shortest_answer_tokens: Annotated[AtLeastOne, Meta(description="An answer is not made shorter than this to fit.")] = 256
    smaller: Annotated[TargetSection | None, Meta(description="Where a request goes that still does not fit, e.g. a q4_k_m model.")] = None
    smaller_precise: Annotated[
        TargetSection | None, Meta(description="Where it goes instead when its prompt has figures or formulas, e.g. a q8_0 model.")
    ] = None


class LadderSection(Section, frozen=True, kw_only=True):
    """Retries that ask for less, step by step, before the next target is tried. Off unless the route has this section."""

    output_ratio: Annotated[Ratio, Meta(description="Second step: the answer's cap, where it has one, is multiplied by this.")] = 0.7
    temperature: Annotated[float, Meta(ge=0, le=2, description="Second step: the highest temperature that is sent.")] = 0.1
    smaller: Annotated[
        TargetSection | None, Meta(description="Third step: a smaller or quantised model; without it the step is left out.")
    ] = None
    smaller_precise: Annotated[TargetSection | None, Meta(description="Third step for prompts with figures or formulas.")] = None


class ClassesSection(Section, frozen=True, kw_only=True):
    """Watch kinds of prompts (tables, length, code, language): a kind that keeps failing goes to the fallback until it recovers."""

    fallback: Annotated[TargetSection, Meta(description="Where requests of a failing kind go; their answers are marked low confidence.")]
    failure_ratio: Annotated[Ratio, Meta(description="Share of failures above which a kind is diverted.")] = 0.3
    window_s: Annotated[Positive, Meta(description="Failures are looked at over this time.")] = 60.0
    min_calls: Annotated[AtLeastOne, Meta(description="Calls of a kind below which nothing is concluded.")] = 10
    recover_after_s: Annotated[Positive, Meta(description="A diverted kind is tried on the primary again after this time.")] = 30.0


class RouteSection(Section, frozen=True, kw_only=True):
    """Where the requests for some models go."""

    model: Annotated[str, Meta(description="Model name or shell-style pattern (`qwen*`, `*/*`, `*`); the first route that matches wins.")]
    targets: Annotated[
        tuple[TargetSection, ...], Meta(min_length=1, description="Upstreams in order of preference; the next is used when one fails.")
    ]
    order: Annotated[
        OrderName,
        Meta(description="`listed`: as written; `sla`: the cheapest that keeps the caller's promised time to first token goes first."),
    ] = OrderName.LISTED
    budget: Annotated[BudgetSection | None, Meta(description="Make requests cheaper that would need too many tokens.")] = None
    ladder: Annotated[LadderSection | None, Meta(description="Retry with less before the next target.")] = None
    classes: Annotated[ClassesSection | None, Meta(description="Divert kinds of prompts that keep failing.")] = None


class WhenSection(Section, frozen=True, kw_only=True):
    """Conditions of a rule; all that are given must hold."""

    min_prompt_tokens: Annotated[AtLeastOne | None, Meta(description="The prompt is estimated at this many tokens or more.")] = None
    max_prompt_tokens: Annotated[AtLeastOne | None, Meta(description="The prompt is estimated at this many tokens or fewer.")] = None
    has: Annotated[tuple[Trait, ...], Meta(description="Each of these is in the request.")] = ()
    lacks: Annotated[tuple[Trait, ...], Meta(description="None of these is in the request.")] = ()
    language: Annotated[
        str | None,
        Meta(
            description="`zh`, `ja`, `ko`, `latin`, `cyrillic`, `arabic` or `other`: the script that makes up `language_share` of the text."
        ),
    ] = None
    language_share: Annotated[Ratio, Meta(description="Least share of the letters for `language`.")] = 0.3
    tiers: Annotated[tuple[str, ...], Meta(description="The caller's tier is one of these.")] = ()
    features: Annotated[
        tuple[str, ...], Meta(description="The business feature of the request (`X-Business-Context`) is one of these.")
    ] = ()
    stream: Annotated[bool | None, Meta(description="The client asked for a stream (true), or did not (false).")] = None


class RuleSection(Section, frozen=True, kw_only=True):
    """Send requests of one kind somewhere else. The route's own targets stand by."""

    name: Annotated[str, Meta(min_length=1, max_length=60, description="For records, metrics and `tidegate explain`.")]
    model: Annotated[str, Meta(description="Only for models that match this pattern.")] = "*"
    when: Annotated[WhenSection, Meta(description="What must hold.")]
    use: Annotated[tuple[TargetSection, ...], Meta(min_length=1, description="Targets to try before the route's own.")]
