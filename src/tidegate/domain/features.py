"""What decisions may know of a prompt: its length, what is in it, and its scripts. Read from a request once (`wire.features`)."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Trait(StrEnum):
    """What a rule can look for in a request; `wire.text_traits` says how each is recognised."""

    CODE = "code"
    XML = "xml"
    SOAP = "soap"
    HTML = "html"
    JSON = "json"
    TABLE = "table"
    FIGURES = "figures"
    FORMULAS = "formulas"
    IMAGES = "images"
    AUDIO = "audio"
    TOOLS = "tools"
    JSON_ANSWER = "json_answer"


class Script(StrEnum):
    """How text is written: what a gateway can tell of its language at no cost."""

    ZH = "zh"
    JA = "ja"
    KO = "ko"
    LATIN = "latin"
    CYRILLIC = "cyrillic"
    ARABIC = "arabic"
    OTHER = "other"


class PromptFeatures(msgspec.Struct, frozen=True):
    """A prompt in a few words; never any of its text."""

    prompt_tokens: int
    """Estimated length."""
    traits: frozenset[str] = frozenset()
    """Values of `Trait`."""
    scripts: tuple[tuple[str, float], ...] = ()
    """Each script (a value of `Script`) of the text with its share of the letters, in 0..1; the largest first."""

    def share(self, script: str) -> float:
        """Give the share of one script."""
        for name, share in self.scripts:
            if name == script:
                return share
        return 0.0

    @property
    def is_precise(self) -> bool:
        """Tell whether it has figures or formulas, which coarsely quantised models get wrong."""
        return Trait.FIGURES in self.traits or Trait.FORMULAS in self.traits


class ContentType(StrEnum):
    """What kind of text a prompt mostly is, as far as its tokens depend on it."""

    PLAIN = "plain"
    CODE = "code"
    HTML = "html"
    JSON = "json"
    SCAN = "scan"
    """Read by a machine from pictures of pages, with the errors that come of it."""


class AnswerWishes(msgspec.Struct, frozen=True):
    """What a request asks of its answer, as far as its length depends on it."""

    temperature: float | None = None
    json: bool = False
    tools: bool = False
    stream: bool = False
