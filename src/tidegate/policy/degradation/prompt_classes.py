"""Which kinds of prompts a prompt belongs to: its length, its dominant script, and whether it has tables or code.

The names are words fit for a header and a metric label, and there are few of them: five lengths, two traits, and the scripts that the
extractor knows.
"""

from __future__ import annotations

from tidegate.domain.features import PromptFeatures, Trait

LENGTHS = ((1_000, "under_1k"), (8_000, "1k_to_8k"), (32_000, "8k_to_32k"), (128_000, "32k_to_128k"))
"""Upper ends in tokens (exclusive), and what a prompt below each is called."""
LONGEST = "over_128k"
TRAITS = (Trait.TABLE.value, Trait.CODE.value)


def classes_of(features: PromptFeatures) -> tuple[str, ...]:
    """Name the classes of a prompt, the most telling first: what is in it, how long it is, what it is written in."""
    names = [trait for trait in TRAITS if trait in features.traits]
    names.append(next((name for end, name in LENGTHS if features.prompt_tokens < end), LONGEST))
    if features.scripts:
        script, _ = max(features.scripts, key=_share)
        names.append(f"script_{script}")
    return tuple(names)


def _share(script: tuple[str, float]) -> float:
    return script[1]
