"""Rules that look at a request and choose where it goes: conditions as data, the first rule that holds wins.

A rule is compiled to a list of checks, those that need no prompt first, so that a prompt is read only when everything else about some
rule holds. A rule without conditions always holds. The same checks decide and explain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import translate

import msgspec

from tidegate.domain.features import PromptFeatures
from tidegate.domain.request import ParsedRequest
from tidegate.domain.upstream import Target


class Conditions(msgspec.Struct, frozen=True):
    """All that are given must hold; as in the configuration's `when`."""

    min_prompt_tokens: int | None = None
    max_prompt_tokens: int | None = None
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    language: str | None = None
    language_share: float = 0.3
    tiers: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    stream: bool | None = None


class Rule(msgspec.Struct, frozen=True):
    """Requests for models matching `model` (shell style) for which `when` holds go to `use` first."""

    name: str
    when: Conditions
    use: tuple[Target, ...]
    model: str = "*"


class CheckVerdict(msgspec.Struct, frozen=True):
    """One condition, what was found, and whether it held."""

    wanted: str
    found: str
    held: bool


class RuleVerdict(msgspec.Struct, frozen=True):
    """One rule in front of one request."""

    name: str
    held: bool
    checks: tuple[CheckVerdict, ...]


class Facts:
    """What rules look at. The prompt is read when the first check asks for it, and once."""

    __slots__ = ("_read", "feature", "prompt", "request", "tier")

    def __init__(self, request: ParsedRequest, *, tier: str, feature: str, read: Callable[[ParsedRequest], PromptFeatures]) -> None:
        self.request = request
        self.tier = tier
        self.feature = feature
        self.prompt: PromptFeatures | None = None
        """None until it was needed."""
        self._read = read

    def read_prompt(self) -> PromptFeatures:
        if self.prompt is None:
            self.prompt = self._read(self.request)
        return self.prompt

    def is_surely_shorter(self, tokens: int) -> bool:
        """Tell whether the prompt's cheap bound alone shows that it is shorter than so many tokens."""
        return 0 < self.request.prompt_tokens_bound < tokens


class Check:
    """One condition; each kind of condition is a class below."""

    wanted = ""
    """In words."""

    def holds(self, facts: Facts) -> bool:
        raise AssertionError(f"{self!r} asked about {facts!r}: it is no condition by itself")

    def found(self, facts: Facts) -> str:
        """Say what the request has."""
        raise AssertionError(f"{self!r} asked about {facts!r}: it is no condition by itself")


class _TierCheck(Check):
    def __init__(self, tiers: tuple[str, ...]) -> None:
        self.wanted = f"tier {_either(tiers)}"
        self._tiers = frozenset(tiers)

    def holds(self, facts: Facts) -> bool:
        return facts.tier in self._tiers

    def found(self, facts: Facts) -> str:
        return facts.tier


class _FeatureCheck(Check):
    def __init__(self, features: tuple[str, ...]) -> None:
        self.wanted = f"business feature {_either(features)}"
        self._features = frozenset(features)

    def holds(self, facts: Facts) -> bool:
        return facts.feature in self._features

    def found(self, facts: Facts) -> str:
        return facts.feature or "none"


class _StreamCheck(Check):
    def __init__(self, stream: bool) -> None:  # noqa: FBT001  the only argument, named by the class
        self.wanted = _stream_words(stream)
        self._stream = stream

    def holds(self, facts: Facts) -> bool:
        return facts.request.stream is self._stream

    def found(self, facts: Facts) -> str:
        return _stream_words(facts.request.stream)


class _AtLeastCheck(Check):
    def __init__(self, tokens: int) -> None:
        self.wanted = f"prompt of {tokens:,} tokens or more"
        self._tokens = tokens

    def holds(self, facts: Facts) -> bool:
        return not facts.is_surely_shorter(self._tokens) and facts.read_prompt().prompt_tokens >= self._tokens

    def found(self, facts: Facts) -> str:
        return f"about {facts.read_prompt().prompt_tokens:,}"


class _AtMostCheck(Check):
    def __init__(self, tokens: int) -> None:
        self.wanted = f"prompt of {tokens:,} tokens or fewer"
        self._tokens = tokens

    def holds(self, facts: Facts) -> bool:
        return facts.is_surely_shorter(self._tokens + 1) or facts.read_prompt().prompt_tokens <= self._tokens

    def found(self, facts: Facts) -> str:
        return f"about {facts.read_prompt().prompt_tokens:,}"


class _HasCheck(Check):
    def __init__(self, trait: str) -> None:
        self.wanted = f"has {trait}"
        self._trait = trait

    def holds(self, facts: Facts) -> bool:
        return self._trait in facts.read_prompt().traits

    def found(self, facts: Facts) -> str:
        return _traits_words(facts.read_prompt())


class _LacksCheck(Check):
    def __init__(self, trait: str) -> None:
        self.wanted = f"lacks {trait}"
        self._trait = trait

    def holds(self, facts: Facts) -> bool:
        return self._trait not in facts.read_prompt().traits

    def found(self, facts: Facts) -> str:
        return _traits_words(facts.read_prompt())


class _LanguageCheck(Check):
    def __init__(self, language: str, share: float) -> None:
        self.wanted = f"{language} in {share:.0%} of the letters or more"
        self._language = language
        self._share = share

    def holds(self, facts: Facts) -> bool:
        return facts.read_prompt().share(self._language) >= self._share

    def found(self, facts: Facts) -> str:
        return f"{facts.read_prompt().share(self._language):.0%}"


class CompiledRule:
    """A rule made ready."""

    def __init__(self, rule: Rule) -> None:
        self.name = rule.name
        self.use = rule.use
        self._model = re.compile(translate(rule.model))
        self._checks = _compile(rule.when)

    def __repr__(self) -> str:
        return f"CompiledRule({self.name})"

    def concerns(self, model: str) -> bool:
        """Tell whether the rule looks at requests for a model."""
        return self._model.match(model) is not None

    def holds(self, facts: Facts) -> bool:
        for check in self._checks:  # noqa: SIM110  a generator costs more than most checks
            if not check.holds(facts):
                return False
        return True

    def verdict(self, facts: Facts) -> RuleVerdict:
        """Judge every condition, also those after one that failed."""
        checks = tuple(CheckVerdict(check.wanted, check.found(facts), check.holds(facts)) for check in self._checks)
        return RuleVerdict(self.name, all(check.held for check in checks), checks)


def first_that_holds(rules: Sequence[CompiledRule], facts: Facts) -> CompiledRule | None:
    for rule in rules:
        if rule.holds(facts):
            return rule
    return None


def _compile(when: Conditions) -> tuple[Check, ...]:
    """Make the checks, the cheap ones first."""
    checks: list[Check] = []
    if when.tiers:
        checks.append(_TierCheck(when.tiers))
    if when.features:
        checks.append(_FeatureCheck(when.features))
    if when.stream is not None:
        checks.append(_StreamCheck(when.stream))
    if when.min_prompt_tokens is not None:
        checks.append(_AtLeastCheck(when.min_prompt_tokens))
    if when.max_prompt_tokens is not None:
        checks.append(_AtMostCheck(when.max_prompt_tokens))
    checks += [_HasCheck(trait) for trait in when.has]
    checks += [_LacksCheck(trait) for trait in when.lacks]
    if when.language is not None:
        checks.append(_LanguageCheck(when.language, when.language_share))
    return tuple(checks)


def _either(names: tuple[str, ...]) -> str:
    return " or ".join(names)


def _stream_words(stream: bool) -> str:  # noqa: FBT001  the only argument
    return "a stream" if stream else "no stream"


def _traits_words(prompt: PromptFeatures) -> str:
    return ", ".join(sorted(prompt.traits)) or "none of them"
