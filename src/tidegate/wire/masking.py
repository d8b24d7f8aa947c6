"""Put placeholders into the place of what would betray a person or open a door: `[phone]`, `[email]`, `[id_card]`, `[bank_card]`, `[key]`.

What is recognised: Chinese mobile numbers, with and without +86, and E.164 numbers that begin with `+`; e-mail addresses; Chinese id card
numbers of 18 characters whose date and check digit are right (GB 11643); card numbers of 13 to 19 digits that pass the Luhn check
(ISO/IEC 7812); bearer and basic credentials, private keys, JSON Web Tokens, passwords in addresses, the keys of well-known vendors and
of Tidegate, and what a name such as `api_key` or `password` is set to. Digits may be grouped by single spaces or hyphens. Further patterns
are configurable. A number that is masked by mistake costs little, one that is left costs a lot: where both readings are possible it is
masked.

Invariants: equal texts give equal results; nothing changes outside of what was recognised; a placeholder of ours is not masked again, and
masking twice finds no more than masking once, but for what stood hard against something masked. The time is linear in the text, whatever
it holds: runs without an end are possessive and begin only where a run begins, everything else is of bounded length, and a further pattern
can use only what keeps this so (see `_translated`). A text is masked in pieces that end where nothing goes on that is looked for, so that
no step holds the interpreter for long, and a piece is searched only if it has a sign that every find of a kind has.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import msgspec

from tidegate.errors import ConfigurationError

MAX_FURTHER = 100
"""Each pattern is one more pass over the text."""
MAX_PATTERN_CHARS = 200
"""With `_LONGEST_RUN` the bound of the work at one character of the text."""

BREAKS = "\n,;[]，。；、！？"
"""No find of a built-in kind has one of these, but for private keys."""

_PIECE_CHARS = 1024  # searched at a time: a third of a millisecond at worst
_LONGEST_RUN = 64  # characters that one repetition of a further pattern takes
_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ID_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_ID_CHECK = "10X98765432"
_SHORTEST_CARD = 13
_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)  # the digits of twice a digit, added

_End = Callable[[str], int]
"""How many characters of a candidate are what it looks like; 0: none."""

_PRIVATE_KEY = r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]*+(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?"
_KEYS = r"""
    (?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]++)?
  | (?<![A-Za-z])(?i:bearer)[ \t]{1,4}[A-Za-z0-9._~+/=-]{16,}+
  | (?:(?<![A-Za-z])|(?<=\\[nrt]))(?:sk|pk|rk|tg|hf|gsk|glpat|npm|xox[abeoprs]|gh[oprsu]|github_pat)[-_][A-Za-z0-9_-]{16,}+
  | (?<![A-Za-z])(?:A[KS]IA[A-Z0-9]{12,}+|AIza[A-Za-z0-9_-]{30,}+|LTAI[A-Za-z0-9]{12,}+)
  | (?i:api[_-]?key|secret[_-]?key|access[_-]?key|access[_-]?token|client[_-]?secret|passw(?:or)?d)
    ["']?[ \t]{0,4}[:=][ \t]{0,4}["']?(?P<secret>[^\s"',;\[\]，。；、！？]{6,}+)
"""
_NAME_SIGNS = ("key", "token", "secret", "passw")
_MARKED_SIGNS = ("sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "tg-", "tg_", "hf-", "hf_", "glpat", "npm-", "npm_", "xox", "gh", "_pat")
_PLAIN_SIGNS = ("eyj", "bearer", "akia", "asia", "aiza", "ltai")
"""Every find of `_KEYS` has one of these, in either case: the first beside `:` or `=`, the second beside `-` or `_`."""
_BASIC = r"(?<![A-Za-z])(?i:basic)[ \t]{1,4}(?P<secret>[A-Za-z0-9+/]{8,}+={0,2})"
_ADDRESS = r"""://[^\s/@:"',;\[\]，。；、！？]{0,64}+:(?P<secret>[^\s/@"',;\[\]，。；、！？]{1,128}+)@"""
_EMAIL = r"(?<![A-Za-z0-9._%+'-])[A-Za-z0-9._%+'-]++@[A-Za-z0-9-]++(?:\.[A-Za-z0-9-]++)++"
_ID_CARD = r"(?<![0-9])[1-9][0-9]{5}[ -]?(?:18|19|20)[0-9]{6}[ -]?[0-9]{3}(?:[0-9](?![0-9])|[Xx])"
_BANK_CARD = r"(?<![0-9])[2-9](?:[ -]?[0-9]){12,18}(?![0-9])"
_PHONE = r"""
    (?<![0-9])(?:(?:\+|00)?86[ -]?)?1[3-9][0-9](?:[ -]?[0-9]{4}){2}(?![0-9])
  | \+[1-9](?:[ .()-]{0,2}[0-9]){7,14}(?![0-9])
"""
_DIGITS = r"[0-9](?:[ .()-]{0,2}[0-9]){7}"
"""Part of whatever is a number that is looked for."""


class MaskPattern(msgspec.Struct, frozen=True):
    """One more thing to mask: as `[name]`."""

    name: str
    """Lower-case letters, digits and underscores."""
    pattern: str
    """Characters, classes (`[A-Z]`, `\\d`, `\\w`, `\\s`, `.`) and `\\b`, each repeated by `?`, `*`, `+`, `{3}`, `{2,8}`.

    A repetition takes all it can, up to 64, and gives nothing back. No groups and no alternatives: several patterns may have one name.
    """


class _Kind(msgspec.Struct, frozen=True):
    placeholder: str
    pattern: re.Pattern[str]
    end: _End = len
    sign: Callable[[str], object] = bool
    """Says, fast, whether a piece can have a find at all."""
    breaks: str = BREAKS
    """Characters that no find has, nor looks at beside itself."""


class Masker:
    """Masks texts; holds nothing of them."""

    __slots__ = ("_kinds",)

    def __init__(self, further: Sequence[MaskPattern] = ()) -> None:
        """Refuse, with `ConfigurationError`, a pattern that is none or could take long."""
        if len(further) > MAX_FURTHER:
            raise ConfigurationError(f"{len(further)} patterns to mask are too many; give at most {MAX_FURTHER}")
        self._kinds = (*_BUILT_IN, *(_further(one) for one in further))

    def __repr__(self) -> str:
        return f"Masker({', '.join(kind.placeholder for kind in self._kinds[len(_CREDENTIALS) - 1 :])})"

    def mask(self, text: str) -> str:
        """Give the text with placeholders."""
        return _mask(text, self._kinds)


def mask_credentials(text: str) -> str:
    """Put placeholders only into the place of what opens a door; what betrays a person stays."""
    return _mask(text, _CREDENTIALS)


def _mask(text: str, kinds: Sequence[_Kind]) -> str:
    for breaks, group in groupby(kinds, key=_breaks_of):
        alike = list(group)
        seen = {sign: bool(sign(text)) for sign in {kind.sign for kind in alike}}  # the kinds of numbers have one in common
        signed = [kind for kind in alike if seen[kind.sign]]
        if not signed:
            continue
        parts: list[str] = []
        for piece in _pieces(text, breaks):
            masked = piece
            for kind in signed:
                if kind.sign(masked):
                    masked = _masked(masked, kind)
            parts.append(masked)
        text = "".join(parts)
    return text


def _breaks_of(kind: _Kind) -> str:
    return kind.breaks


def _pieces(text: str, breaks: str) -> Iterator[str]:
    """Cut a text behind one of `breaks`, at most so long where there are any."""
    start, size = 0, len(text)
    while size - start > _PIECE_CHARS and breaks:
        end = start + _PIECE_CHARS
        at = max([text.rfind(mark, start, end) for mark in breaks])
        if at < 0:
            further = [found for mark in breaks if (found := text.find(mark, end)) >= 0]
            if not further:
                break
            at = min(further)
        yield text[start : at + 1]
        start = at + 1
    yield text[start:]


def _masked(text: str, kind: _Kind) -> str:
    """Mask one kind. After a candidate that is none the search goes on at its next character: another may begin within it."""
    parts: list[str] = []
    kept = at = 0
    while match := kind.pattern.search(text, at):
        start = match.start(match.lastgroup or 0)
        length = kind.end(match[match.lastgroup or 0])
        if not length:
            at = match.start() + 1
            continue
        parts += (text[kept:start], kind.placeholder)
        kept = at = start + length
    return "".join((*parts, text[kept:])) if parts else text


def _id_card(candidate: str) -> int:
    """Check a number's day and its last character (ISO 7064, MOD 11-2)."""
    digits = candidate.replace(" ", "").replace("-", "")
    month, day = int(digits[10:12]), int(digits[12:14])
    is_day = 1 <= month <= len(_DAYS) and 1 <= day <= _DAYS[month - 1]
    total = sum(weight * int(digit) for weight, digit in zip(_ID_WEIGHTS, digits, strict=False))
    return len(candidate) if is_day and digits[17].upper() == _ID_CHECK[total % 11] else 0


def _bank_card(candidate: str) -> int:
    """Find the longest beginning that is a card number: what follows behind a space may be its expiry date, or another number."""
    places = [place for place, char in enumerate(candidate) if char.isdigit()]
    digits = [int(candidate[place]) for place in places]
    for count in range(len(places), _SHORTEST_CARD - 1, -1):
        end = places[count - 1] + 1
        if end not in places and _passes_luhn(digits[:count]):
            return end
    return 0


def _passes_luhn(digits: Sequence[int]) -> bool:
    return (sum(digits[-1::-2]) + sum(_DOUBLED[digit] for digit in digits[-2::-2])) % 10 == 0


def _basic(candidate: str) -> int:
    """Tell a name and a password (RFC 7617) from a long word."""
    try:
        plain = base64.b64decode(candidate.rstrip("=") + "=" * (-len(candidate.rstrip("=")) % 4))
    except binascii.Error:
        return 0
    return len(candidate) if b":" in plain and plain.isascii() else 0


def _may_have_key(text: str) -> bool:
    lower = text.lower()
    if ("=" in lower or ":" in lower) and any(sign in lower for sign in _NAME_SIGNS):
        return True
    if ("-" in lower or "_" in lower) and any(sign in lower for sign in _MARKED_SIGNS):
        return True
    return any(sign in lower for sign in _PLAIN_SIGNS)


def _may_have_basic(text: str) -> bool:
    return "basic" in text.lower()


_SIGN_OF_NUMBER = re.compile(_DIGITS).search
_CREDENTIALS = (
    _Kind("[key]", re.compile(_PRIVATE_KEY), breaks=""),
    _Kind("[key]", re.compile(_KEYS, re.VERBOSE), sign=_may_have_key),
    _Kind("[key]", re.compile(_BASIC), _basic, sign=_may_have_basic),
    _Kind("[key]", re.compile(_ADDRESS), sign=re.compile("://").search),
)
_BUILT_IN = (
    *_CREDENTIALS,
    _Kind("[email]", re.compile(_EMAIL), sign=re.compile("@").search),
    _Kind("[id_card]", re.compile(_ID_CARD), _id_card, sign=_SIGN_OF_NUMBER),
    _Kind("[bank_card]", re.compile(_BANK_CARD), _bank_card, sign=_SIGN_OF_NUMBER),
    _Kind("[phone]", re.compile(_PHONE, re.VERBOSE), sign=_SIGN_OF_NUMBER),
)
"""In this order: a key may hold digits, and a card number those of a telephone."""

_STEP = re.compile(
    r"""
    (?P<edge>\\b)
  | (?P<one>
        \\[dDwWsS] | \\[^\w\s] | [^\\\[\](){}*+?|^$\n]
      | \[\^?(?: \\[dDwWsS] | \\[^\w\s] | [^\\\[\]&~|-] | (?<=[A-Za-z0-9])-(?=[A-Za-z0-9]) )+\]
    )
    (?: (?P<sign>[?*+]) | \{ (?P<least>\d{1,2}) (?P<comma>,)? (?P<most>\d{1,2})? \} )?
    """,
    re.VERBOSE,
)


def _further(given: MaskPattern) -> _Kind:
    if not _NAME.fullmatch(given.name):
        raise ConfigurationError(f'"{given.name[:40]}" is no name of a pattern to mask; use at most 32 of a-z, 0-9 and _, a letter first')
    if len(given.pattern) > MAX_PATTERN_CHARS:
        raise ConfigurationError(f'the pattern "{given.name}" has more than {MAX_PATTERN_CHARS} characters; make several of it')
    try:
        source, taken = _translated(given)
        pattern = re.compile(source)
    except re.error as error:
        raise ConfigurationError(f'the pattern "{given.name}" is not a regular expression: {error}; correct it') from error
    breaks = "".join(mark for mark in BREAKS if not any(re.match(one, mark) for one in taken))
    return _Kind(f"[{given.name}]", pattern, breaks=breaks)


def _translated(given: MaskPattern) -> tuple[str, list[str]]:
    """Make each repetition bounded and possessive: a match is then one walk, of a length that depends on the pattern alone.

    Gives the pattern, and what stands for one character in it.
    """
    source, at = given.pattern, 0
    parts: list[str] = []
    taken: list[str] = []
    takes_something = False
    while at < len(source):
        step = _STEP.match(source, at)
        if step is None:
            raise ConfigurationError(
                f'the pattern "{given.name}" cannot be used from character {at + 1} on ("{source[at : at + 10]}"): groups, alternatives '
                "and look-arounds could take too long; use characters, classes and repetitions up to {64}, or several patterns of one name"
            )
        at = step.end()
        if step["edge"]:
            parts.append(step["edge"])
            continue
        least, most = _counts(step)
        if not least <= most <= _LONGEST_RUN or not most:
            raise ConfigurationError(f'the pattern "{given.name}" has "{step[0]}"; repeat at most {_LONGEST_RUN} times, and at least once')
        takes_something = takes_something or least > 0
        taken.append(step["one"])
        parts.append(f"{step['one']}{{{least},{most}}}+")
    if not takes_something:
        raise ConfigurationError(f'the pattern "{given.name}" matches an empty text, and so everywhere; ask for a character at least')
    return "".join(parts), taken


def _counts(step: re.Match[str]) -> tuple[int, int]:
    """Give how often a step is repeated at least and at most."""
    if step["sign"]:
        return {"?": (0, 1), "*": (0, _LONGEST_RUN), "+": (1, _LONGEST_RUN)}[step["sign"]]
    if step["least"] is None:
        return 1, 1
    least = int(step["least"])
    if step["comma"] is None and step["most"] is None:
        return least, least
    return least, int(step["most"]) if step["most"] else _LONGEST_RUN
