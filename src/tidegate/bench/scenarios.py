"""Kinds of requests: four of our own making, in English and Chinese, and those of a file of the user's, masked.

The passages are package files in `texts`, one file for each scenario and language, with a line `---` between two passages. They are drawn
and joined to the wanted length where requests are written, so a prompt of any length is mostly unlike the others.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import msgspec

from tidegate.bench.plan import Scenario
from tidegate.errors import ConfigurationError
from tidegate.wire.masking import Masker

MAX_OWN_BYTES = 67_108_864
"""Of a file of own requests: every client process holds it."""
MAX_OWN_LINES = 100_000
"""More would not make the load more varied."""

_KINDS = (
    Scenario(
        name="support_chat",
        system="You answer the customers of a web shop. Be brief and friendly, say what happens next, and answer in their language.",
        feature="support_chat",
        prompt_tokens=(64, 512),
        completion_tokens=(32, 256),
    ),
    Scenario(
        name="product_copy",
        system="You write product descriptions for a web shop. Write for people who compare, and promise only what the facts say.",
        feature="product_copy",
        prompt_tokens=(96, 640),
        completion_tokens=(128, 768),
    ),
    Scenario(
        name="legal_text",
        system="You summarise contracts for people who are no lawyers. Name duties, dates and amounts, and quote the clause of each.",
        feature="legal_text",
        prompt_tokens=(1_024, 8_192),
        completion_tokens=(128, 512),
    ),
    Scenario(
        name="code_comments",
        system="You write comments for source code. Say why the code is as it is, and never what it plainly says itself.",
        feature="code_comments",
        prompt_tokens=(128, 1_024),
        completion_tokens=(32, 192),
    ),
)
_LANGUAGES = ("en", "zh")


def built_in() -> dict[str, Scenario]:
    """Give the scenarios of our own, by name."""
    return {kind.name: msgspec.structs.replace(kind, texts=_texts(kind.name)) for kind in _KINDS}


def _texts(name: str) -> tuple[str, ...]:
    folder = resources.files("tidegate.bench") / "texts"
    files = [(folder / f"{name}.{language}.txt").read_text(encoding="utf-8") for language in _LANGUAGES]
    return tuple(passage.strip() for text in files for passage in text.split("\n---\n"))


_MASKER = Masker()


def own(path: Path, *, mask: Masker | None = _MASKER) -> Scenario:
    """Read a file of requests, one JSON object on each line: a whole body, or one with `messages` or `prompt`.

    Every text in it is masked, but not pictures and other `data:` URLs; with `mask` None nothing is. `ConfigurationError` names the line at
    fault and quotes nothing of it. The scenario is called as the file, and expects no length of an answer.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_OWN_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}; give the path of a JSON Lines file of requests") from error
    if len(content) > MAX_OWN_BYTES:
        raise ConfigurationError(f"{path} has more than {MAX_OWN_BYTES:,} bytes, which every client process would hold; use a part of it")
    lines = [
        _own_line(f"{path}, line {number}", line, mask)
        for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").splitlines(), start=1)
        if line.strip()
    ]
    if not 0 < len(lines) <= MAX_OWN_LINES:
        raise ConfigurationError(f"{path} has {len(lines):,} requests; give from 1 to {MAX_OWN_LINES:,}, one JSON object on each line")
    return Scenario(name=path.stem, lines=tuple(lines), completion_tokens=None)


def _own_line(where: str, line: bytes, mask: Masker | None) -> str:
    try:
        body = msgspec.json.decode(line, type=dict[str, object])
        if mask is not None:
            body = {name: _masked(value, mask) for name, value in body.items()}
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigurationError(f"{where}: it is not a JSON object: {error}; write one request on each line") from error
    messages, prompt = body.get("messages"), body.get("prompt")
    if not (isinstance(messages, list) and messages) and not (isinstance(prompt, str) and prompt):
        raise ConfigurationError(f"{where}: the request has neither a list `messages` nor a text `prompt`; add one")
    return msgspec.json.encode(body).decode()


def _masked(value: object, mask: Masker) -> object:
    """Mask all texts within a JSON value; its nesting is bounded by the decoder."""
    if isinstance(value, str):
        return value if value.startswith("data:") else mask.mask(value)
    if isinstance(value, list):
        return [_masked(member, mask) for member in value]
    if isinstance(value, dict):
        return {name: _masked(member, mask) for name, member in value.items()}
    return value
