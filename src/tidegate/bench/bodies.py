"""Writes the bodies of requests: microseconds each, because they are made on the loop that takes the times.

Everything that does not change between two requests of a scenario is encoded once. A prompt is a slice of the scenario's passages, laid
end to end in a ring: it begins where the request's seed says, so that equal seeds give equal bytes and other seeds rarely share a
beginning, which a server's prefix cache would answer for nothing. How many characters a token takes is estimated from the script they are
written in; what was really used is for the server to say.

Precedence of members, the later one wins: the user's own line, the target's, the cap of the plan, `extra_body`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tidegate.bench.plan import Endpoint, PlannedRequest, Scenario, Target
from tidegate.domain.units import Headers

CHARS_PER_TOKEN: Final = 4.2
"""Of text in ASCII, by the tokenizers of today's models: about."""
CHARS_PER_TOKEN_BEYOND_ASCII: Final = 1.6
"""Of Chinese, about."""
_SPREAD: Final = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio: neighbouring seeds land far apart (Knuth, TAOCP 3, 6.4)."""
_TO_CUT: Final = msgspec.Raw(b"null")

_encode = msgspec.json.encode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


class UnusableRequestsError(ValueError):
    """A scenario or target from which no request can be made; the message says what to do."""


class Ring:
    """Passages end to end, of which prompts are cut."""

    __slots__ = ("_chars_per_token", "_passages", "_text")

    def __init__(self, passages: tuple[str, ...]) -> None:
        self._passages = passages
        self._text = "\n\n".join([*passages, ""])
        beyond = sum(not char.isascii() for char in self._text)
        tokens = (len(self._text) - beyond) / CHARS_PER_TOKEN + beyond / CHARS_PER_TOKEN_BEYOND_ASCII
        self._chars_per_token = len(self._text) / tokens

    def passage(self, seed: int) -> str:
        """Give one of the passages, whole."""
        return self._passages[seed % len(self._passages)]

    def cut(self, seed: int, tokens: int) -> str:
        """Give text of about so many tokens, at least one character."""
        text = self._text
        chars = max(1, round(tokens * self._chars_per_token))
        start = (seed * _SPREAD % 2**64) * len(text) >> 64
        end = start + chars
        if end > len(text):
            text *= end // len(text) + 1
        return text[start:end]


class Form(msgspec.Struct, frozen=True):
    """A body in two halves; between them goes the prompt's JSON string, and behind them the cap."""

    before: bytes
    after: bytes
    """Without the closing brace."""
    takes_prompt: bool
    takes_cap: bool
    """The plan's cap is sent: `extra_body` does not say another."""
    own_cap: bytes
    """Of the user's line: sent where the plan has none. Empty without one."""


class BodyMaker:
    """Makes the requests of one scenario for one target."""

    def __init__(self, target: Target, scenario: Scenario) -> None:
        """Put together what does not change; raise `UnusableRequestsError` for what cannot be sent."""
        self._cap = b',"%b":' % target.cap_field.encode()
        self._forms: tuple[Form, ...] = ()
        self._ring: Ring | None = None
        self.headers = request_headers(target, scenario)
        if scenario.lines:
            own = _own_lines(scenario, target.endpoint)
            self._forms = tuple(_form(target, scenario, line) for line in own)
        elif any(scenario.texts):
            self._ring = Ring(tuple(filter(None, scenario.texts)))
            self._forms = (_form(target, scenario, _conversation(target.endpoint, scenario.system)),)
        if not self._forms:
            raise UnusableRequestsError(f"The scenario {scenario.name} has neither texts nor requests of its own. Give it some.")

    def body(self, planned: PlannedRequest) -> bytes:
        """Write one body."""
        form = self._forms[planned.seed % len(self._forms)]
        words = _encode(self._prompt(self._ring, planned)) if self._ring is not None and form.takes_prompt else b""
        cap = b"%d" % planned.completion_tokens if planned.completion_tokens is not None else form.own_cap
        if not cap or not form.takes_cap:
            return b"%b%b%b}" % (form.before, words, form.after)
        return b"%b%b%b%b%b}" % (form.before, words, form.after, self._cap, cap)

    @staticmethod
    def _prompt(ring: Ring, planned: PlannedRequest) -> str:
        if not planned.prompt_tokens:
            return ring.passage(planned.seed)
        if planned.prefix is None or not planned.prefix_tokens:
            return ring.cut(planned.seed, planned.prompt_tokens)
        shared = ring.cut(planned.prefix, planned.prefix_tokens)
        return f"{shared}\n\n{ring.cut(planned.seed, max(1, planned.prompt_tokens - planned.prefix_tokens))}"


def request_headers(target: Target, scenario: Scenario) -> Headers:
    """Give the headers of every request of a scenario; the target's own win over ours."""
    accept = "text/event-stream" if target.stream else "application/json"
    fields = {"content-type": "application/json", "accept": accept, "user-agent": "tidegate-bench"}
    if target.key:
        fields["authorization"] = f"Bearer {target.key}"
    if scenario.feature:
        fields["x-business-context"] = f"feature={scenario.feature}"
    if target.color:
        fields["x-tidegate-color"] = target.color
    fields |= {name.lower(): value for name, value in target.headers}
    for name, value in fields.items():
        if not (name + value).isascii() or any(char in name + value for char in "\r\n\0"):
            raise UnusableRequestsError(f"The value of the header {name} has characters that a header cannot hold. Correct it.")
    return tuple((name.encode(), value.encode()) for name, value in fields.items())


def _conversation(endpoint: Endpoint, system: str) -> dict[str, msgspec.Raw]:
    """Give the member that holds the prompt, with `_TO_CUT` where the prompt goes."""
    if endpoint is Endpoint.COMPLETIONS:
        return {"prompt": _TO_CUT}
    turns: list[dict[str, object]] = [{"role": "system", "content": system}] if system else []
    return {"messages": msgspec.Raw(_encode([*turns, {"role": "user", "content": _TO_CUT}]))}


def _form(target: Target, scenario: Scenario, line: dict[str, msgspec.Raw]) -> Form:
    """Put the members of a body together, its conversation last so that it can be cut open there."""
    ours: dict[str, object] = {"model": target.model, "stream": target.stream}
    if target.stream and target.ask_usage:
        ours["stream_options"] = {"include_usage": True}
    try:
        extra = _members.decode(target.extra_body)
        if scenario.response_format is not None:
            ours["response_format"] = msgspec.json.decode(scenario.response_format)
    except msgspec.DecodeError as problem:
        raise UnusableRequestsError(
            f"The extra members or the response format of {scenario.name} are not JSON: {problem}. Correct them."
        ) from problem
    said = "prompt" if target.endpoint is Endpoint.COMPLETIONS else "messages"
    takes_cap = target.cap_field not in extra
    own_cap = bytes(line.pop(target.cap_field, b""))
    members = line | {name: msgspec.Raw(_encode(value)) for name, value in ours.items()} | extra
    last = members.pop(said)
    fields = [b"%b:%b" % (_encode(name), bytes(value)) for name, value in members.items()]
    whole = b"{%b,%b:%b" % (b",".join(fields), _encode(said), bytes(last))
    takes_prompt = not scenario.lines and said not in extra
    before, _, after = whole.rpartition(b"null") if takes_prompt else (whole, b"", b"")
    return Form(before=before, after=after, takes_prompt=takes_prompt, takes_cap=takes_cap, own_cap=own_cap)


def _own_lines(scenario: Scenario, endpoint: Endpoint) -> list[dict[str, msgspec.Raw]]:
    """Give the user's own requests in the form that the endpoint wants."""
    requests: list[dict[str, msgspec.Raw]] = []
    for number, line in enumerate(scenario.lines, start=1):
        try:
            requests.append(_for_endpoint(_members.decode(line), endpoint))
        except (msgspec.DecodeError, KeyError) as problem:
            raise UnusableRequestsError(
                f"Request {number} of {scenario.name} cannot be sent to this endpoint: {problem}. "
                "It needs `messages`, each with a `content`, or a `prompt`."
            ) from problem
    return requests


def _for_endpoint(members: Mapping[str, msgspec.Raw], endpoint: Endpoint) -> dict[str, msgspec.Raw]:
    """Turn a prompt into a conversation or the last turn of one into a prompt, where the endpoint wants the other."""
    kept = {name: value for name, value in members.items() if name not in {"messages", "prompt"}}
    if endpoint is Endpoint.CHAT:
        if "messages" in members:
            return kept | {"messages": members["messages"]}
        return kept | {"messages": msgspec.Raw(_encode([{"role": "user", "content": members["prompt"]}]))}
    if "prompt" in members:
        return kept | {"prompt": members["prompt"]}
    turns = msgspec.json.decode(members["messages"], type=list[dict[str, msgspec.Raw]])
    if not turns:
        raise KeyError("messages")
    return kept | {"prompt": turns[-1]["content"]}
