"""Settings of what clients get when no model can answer."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tidegate.config.section import Positive, Section


class LinkSection(Section, frozen=True, kw_only=True):
    """One link to a page that may help."""

    title: Annotated[str, Meta(min_length=1, description="What is shown.")]
    url: Annotated[str, Meta(min_length=1, description="Where it leads.")]


class HoldingSection(Section, frozen=True, kw_only=True):
    """A prepared answer (level 2): a sentence that asks for patience, and links."""

    sentence: Annotated[str, Meta(min_length=1, description="Said to the user, e.g. that a fuller answer is being looked for.")]
    links: Annotated[tuple[LinkSection, ...], Meta(description="Frequently asked questions.")] = ()


class DegradationSection(Section, frozen=True, kw_only=True):
    """When every target has failed, chat and completion clients get an answer instead of an error, in their own protocol, stream or not."""

    holding: Annotated[
        dict[str, HoldingSection],
        Meta(description="Prepared answers by business feature (`X-Business-Context: feature=…`); `default` for all others."),
    ] = {}
    hold_for_s: Annotated[
        Positive, Meta(description="An outage of a route is held so for this long; after it the rules answer, where there are any.")
    ] = 60.0
    rules_file: Annotated[
        str | None,
        Meta(description="A JSON decision model (JDM) for the rule engine (level 3): known questions get fixed answers, others a person."),
    ] = None
    hand_over: Annotated[str, Meta(min_length=1, description="Said when the rules do not know the question.")] = (
        "I cannot answer this right now. Please contact our support team, who will help you."
    )
