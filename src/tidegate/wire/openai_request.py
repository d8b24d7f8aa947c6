"""Read a client's JSON body: a typed head over bytes that stay as they are, and a refusal, as a value, that says what to change.

Only the members that decisions need are decoded; the rest is checked for being JSON and kept. What we saw is what the upstream sees:
members that we decide on must not occur twice, and their names, if written with escapes, are forwarded plain.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from tidegate.domain.request import BodyChanges, Operation, ParsedRequest
from tidegate.domain.units import ModelName
from tidegate.errors import ClientError, InvalidJson, InvalidParameter
from tidegate.wire import lenient
from tidegate.wire.count_requests import parse_count_request
from tidegate.wire.dialects import Dialect
from tidegate.wire.prompt_bound import chat_bound, plain_bound
from tidegate.wire.request_heads import (
    ABSENT,
    CHAT,
    COMPLETION,
    EMBEDDING,
    IDS,
    LISTS_OF_IDS,
    MEMBERS,
    TEXT,
    TEXTS,
    TOKENIZE,
    Message,
    StreamOptions,
)

_CHAT: Final = Operation.CHAT

_CHECKED_BYTES: Final = 262_144
"""Up to this size a body is checked for being UTF-8 throughout. Of a larger one only what we decode is checked, since it would take
milliseconds of the event loop; the upstream judges the rest."""
_DECIDED_ON = ("model", "messages", "prompt", "input", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n", "best_of")
_CAPS: tuple[str, ...] = ("max_tokens", "max_completion_tokens")
_QUOTED = tuple(b'"%b"' % name.encode("ascii") for name in _DECIDED_ON)
_MAX_MEMBERS: Final = 1_000
"""OpenAI's API has some 40; a mapping of a million members holds the event loop for a second."""
_MAX_PROMPTS = 10_000
"""Of one completion or embedding request, OpenAI takes 2,048 at most; a million lists of ids hold the event loop for a second."""
_NO_PROMPTS = f"is none of the accepted shapes, empty, or has more than {_MAX_PROMPTS} entries"
_HINTS = {
    "model": 'name one, for example "model": "qwen3.6-plus"; GET /v1/models lists them',
    "messages": 'send a list of objects with a "role", for example [{"role": "user", "content": "Hello"}]',
    "prompt": "send a string, a list of strings, a list of token ids, or a list of lists of token ids",
    "input": "send a string, a list of strings, a list of token ids, or a list of lists of token ids",
    "stream": "send true or false",
    "stream_options": 'send an object, for example {"include_usage": true}',
    "max_tokens": "send a whole number of at least 1, or leave it out",
    "max_completion_tokens": "send a whole number of at least 1, or leave it out",
    "n": "send a whole number from 1 to 128, or leave it out",
    "best_of": "send a whole number from 1 to 128, or leave it out",
}
_SHORT_BYTES: Final = 65_536
_STREAM_OPTIONS: Final = b'"stream_options"'
_ASKING: Final = b',"stream_options":{"include_usage":true}}'
_BRACKET: Final = 0x5B
_BOMS: Final = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_PLACE = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_MEMBER_NAME = re.compile(rb'[ \t\r\n,]*"([^"\\]*)"[ \t\r\n]*:[ \t\r\n]*')
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def parse_request(operation: Operation, body: bytes) -> ParsedRequest | ClientError:
    """Read the body of a POST; a refusal names the field or the position, and what to send instead."""
    unreadable = _unreadable(body)
    if unreadable is not None:
        return unreadable
    try:
        parsed = _parse(operation, body)
        if isinstance(parsed, ClientError) or (operation is not _CHAT and operation.is_count):  # nothing is decided by a count
            return parsed
        return _without_ambiguity(parsed)
    except msgspec.ValidationError as error:
        return _wrong_field(str(error))
    except msgspec.DecodeError as error:
        return _not_json(body, str(error))
    except RecursionError:
        return InvalidJson("The request body is nested too deeply (more than about 1000 levels): send flatter JSON.")


def _unreadable(body: bytes) -> ClientError | None:
    if not body or body.isspace():
        return InvalidJson("The request body is empty: send a JSON object, with the header Content-Type: application/json.")
    if body.startswith(_BOMS):
        return InvalidJson("The request body starts with a byte order mark (byte 0): send plain UTF-8 without one.")
    if len(body) <= _CHECKED_BYTES and not body.isascii():
        try:
            body.decode("utf-8")
        except UnicodeDecodeError as error:
            return InvalidJson(f"The request body is not UTF-8: byte {error.start} is 0x{body[error.start]:02x}. Encode it as UTF-8.")
    return None


def _parse(operation: Operation, body: bytes) -> ParsedRequest | ClientError:
    if operation is _CHAT:  # first, and without looking it up in its Enum: nearly all are
        return _parse_chat(body)
    match operation:
        case Operation.COMPLETION:
            return _parse_completion(body)
        case Operation.EMBEDDING:
            return _parse_embedding(body)
        case Operation.TOKENIZE:
            return _parse_tokenize(body)
        case Operation.COUNT_MESSAGES | Operation.COUNT_RESPONSES:
            return parse_count_request(operation, body)
        case Operation.ESTIMATE:
            return _parse_chat(body)
        case Operation.CHAT | Operation.MODELS | Operation.MODEL:
            raise AssertionError(f"{operation} has no body")


def _parse_chat(body: bytes) -> ParsedRequest:
    head = CHAT.decode(body)
    return ParsedRequest(
        operation=_CHAT,
        model=ModelName(head.model),
        body=body,
        stream=bool(head.stream),
        wants_usage=_wants_usage(head.stream_options),
        max_completion_tokens=_larger(head.max_tokens, head.max_completion_tokens),
        choices=head.n or 1,
        prompt_tokens_bound=_chat_bound(body, head.messages, offers_tools=_given(head.tools) or _given(head.functions)),
    )


def _parse_completion(body: bytes) -> ParsedRequest | ClientError:
    head = COMPLETION.decode(body)
    prompts = _measure(head.prompt)
    if prompts is None:
        return _refuse("prompt", _NO_PROMPTS)
    return ParsedRequest(
        operation=Operation.COMPLETION,
        model=ModelName(head.model),
        body=body,
        stream=bool(head.stream),
        wants_usage=_wants_usage(head.stream_options),
        max_completion_tokens=_larger(head.max_tokens, head.max_completion_tokens),
        choices=max(head.n or 1, head.best_of or 1) * prompts.count,
        prompt_tokens_bound=_plain_bound(body, prompts, head.prompt),
    )


def _parse_embedding(body: bytes) -> ParsedRequest | ClientError:
    head = EMBEDDING.decode(body)
    inputs = _measure(head.input)
    if inputs is None:
        return _refuse("input", _NO_PROMPTS)
    return ParsedRequest(
        operation=Operation.EMBEDDING,
        model=ModelName(head.model),
        body=body,
        prompt_tokens_bound=_plain_bound(body, inputs, head.input),
    )


def _parse_tokenize(body: bytes) -> ParsedRequest | ClientError:
    head = TOKENIZE.decode(body)
    if (head.prompt is None) == (head.messages is None):
        return InvalidParameter('Send either "prompt", a string, or "messages", a list as for /v1/chat/completions.', param="prompt")
    if head.messages is not None:
        bound = _chat_bound(body, head.messages, offers_tools=_given(head.tools))
    else:
        bound = plain_bound(body, prompt_bytes=0, token_ids=None, prompts=1)
    return ParsedRequest(operation=Operation.TOKENIZE, model=ModelName(head.model), body=body, prompt_tokens_bound=bound)


def _chat_bound(body: bytes, messages: list[Message], *, offers_tools: bool) -> int:
    has_parts = False
    for message in messages:
        if message.tool_calls is not ABSENT:
            offers_tools = True
        if message.content is not ABSENT and memoryview(message.content)[0] == _BRACKET:
            has_parts = True
    return chat_bound(body, has_tools=offers_tools, has_parts=has_parts)


def _wants_usage(options: StreamOptions | None) -> bool:
    return options is not None and bool(options.include_usage)


def _given(raw: msgspec.Raw) -> bool:
    return raw is not ABSENT and bytes(raw) not in (b"", b"null", b"[]")


def _larger(one: int | None, other: int | None) -> int | None:
    """Give the larger of two caps that may be absent."""
    return max(one or 0, other or 0) or None


class _Prompts(msgspec.Struct, gc=False):
    count: int
    token_ids: int | None = None


def _measure(raw: msgspec.Raw) -> _Prompts | None:
    """Count the prompts, and their ids where they are given as ids; None for any other shape, and for too many."""
    encoded = bytes(raw)
    inside = encoded[1:].lstrip()[:1] if encoded.startswith(b"[") else b""
    try:
        if inside == b'"':
            count = len(TEXTS.decode(raw))
            return _Prompts(count=count) if count <= _MAX_PROMPTS else None
        if inside == b"[":
            if encoded.count(b"[") - 1 > _MAX_PROMPTS:  # counted before a list is built
                return None
            lists = LISTS_OF_IDS.decode(raw)
            return _Prompts(count=len(lists), token_ids=sum(map(len, lists)))
        if inside:
            return _Prompts(count=1, token_ids=len(IDS.decode(raw)))
        TEXT.decode(raw)
    except msgspec.ValidationError:
        return None
    return _Prompts(count=1)


def _plain_bound(body: bytes, prompts: _Prompts, raw: msgspec.Raw) -> int:
    return plain_bound(body, prompt_bytes=len(bytes(raw)), token_ids=prompts.token_ids, prompts=prompts.count)


# ── one meaning only ──────────────────────────────────────────────────────────────


def _without_ambiguity(request: ParsedRequest) -> ParsedRequest | ClientError:
    """Refuse a body in which a member that we decided on occurs twice: the upstream might take the other one.

    Decoding to a mapping and back drops repeated members, writes names without escapes, and keeps every value's bytes. A body that names
    each member once, plainly, stays as it is. Of any other this plain form is forwarded, unless one of our names has become rarer in it.
    """
    members = MEMBERS.decode(request.body)
    if len(members) > _MAX_MEMBERS:
        return InvalidParameter(
            f"The request body has {len(members)} members at its top level; at most {_MAX_MEMBERS} are taken. Send fewer."
        )
    body = request.body
    if _is_set_out(body, members) or _is_plain(body, members):
        return request
    plain = msgspec.json.encode(members)
    for name, quoted in zip(_DECIDED_ON, _QUOTED, strict=True):
        if plain.count(quoted) < body.count(quoted):
            return _refuse(name, "occurs more than once")
    return _with_body(request, plain)


def _with_body(request: ParsedRequest, body: bytes) -> ParsedRequest:
    return ParsedRequest(
        operation=request.operation,
        model=request.model,
        body=body,
        stream=request.stream,
        wants_usage=request.wants_usage,
        max_completion_tokens=request.max_completion_tokens,
        choices=request.choices,
        prompt_tokens_bound=request.prompt_tokens_bound,
    )


def _is_set_out(body: bytes, members: dict[str, msgspec.Raw]) -> bool:
    """Tell whether a body is these members as nearly all clients set them out, compact or as Python's `json.dumps` does.

    A quicker look at a short body than `_is_plain`: the members are put together again, and that must be the body.
    """
    if len(body) > _SHORT_BYTES:
        return False  # copying it takes longer than going through it
    is_spaced = body.startswith(b" ", len(next(iter(members))) + len('{"":'))
    after_name, between = (b'": ', b', "') if is_spaced else (b'":', b',"')
    pieces: list[bytes | msgspec.Raw] = []
    before = b'{"'
    for name, raw in members.items():
        pieces.append(before)
        pieces.append(name.encode())
        pieces.append(after_name)
        pieces.append(raw)
        before = between
    pieces.append(b"}")
    return body == b"".join(pieces)


def _is_plain(body: bytes, members: dict[str, msgspec.Raw]) -> bool:
    """Tell whether a body is exactly these members, each once and its name without escapes, white space aside."""
    position = body.index(b"{") + 1
    for name, raw in members.items():
        before = _MEMBER_NAME.match(body, position)
        value = bytes(raw)
        if before is None or before[1] != name.encode("utf-8") or not body.startswith(value, before.end()):
            return False
        position = before.end() + len(value)
    return body[position:].strip() == b"}"


# ── refusals ─────────────────────────────────────────────────────────────────────


def _refuse(param: str, reason: str) -> InvalidParameter:
    hint = _HINTS.get(re.split(r"[.\[]", param, maxsplit=1)[0])
    return InvalidParameter(f"`{param}` {reason}" + (f": {hint}." if hint else "."), param=param)


def _wrong_field(reason: str) -> ClientError:
    """Turn the decoder's complaint into one about a named parameter."""
    match = _PLACE.fullmatch(reason)
    said, place = (match[1], match[2] or "") if match is not None else (reason, "")
    missing = _MISSING.fullmatch(said)
    if missing is not None:
        return _refuse(f"{place}.{missing[1]}".lstrip("."), "is missing")
    if not place:
        return InvalidParameter(f"The request body must be a JSON object ({said[:1].lower()}{said[1:]}).")
    return _refuse(place, f"is not usable ({said[:1].lower()}{said[1:]})")


def _not_json(body: bytes, reason: str) -> InvalidJson:
    trailing = _TRAILING.search(reason)
    if trailing is not None:
        position = int(trailing[1]) - 1  # the decoder counts this one from 1, all others from 0
        return InvalidJson(f"The request body goes on after its JSON (byte {position}): send one object and nothing after it.")
    if "truncated" not in reason:
        return InvalidJson(
            f"The request body is not valid JSON: {reason.removeprefix('JSON is malformed: ')}. Correct it and send it again."
        )
    if _SURROGATE.search(body):
        return InvalidJson(
            r"The request body is not valid JSON: a \uD800-\uDFFF escape has no partner. Send the character itself, as UTF-8."
        )
    return InvalidJson(
        f"The request body is not valid JSON: it ends too early, after byte {len(body)}. "
        "Send the whole object, with a correct Content-Length."
    )


# ── what the upstream gets ────────────────────────────────────────────────────────


def rewrite_body(request: ParsedRequest, *, model: str, dialect: Dialect, ask_usage: bool, changes: BodyChanges | None = None) -> bytes:
    """Give the body for one upstream; the same bytes when nothing needs to change, else every untouched member's value as it was.

    `ask_usage` asks a stream for its usage, if the dialect needs asking. `changes` lower what the client asked for, and never raise it.
    """
    body = request.body
    asks = ask_usage and request.stream and not request.wants_usage and dialect.usage == "stream_options"
    renames = [r for r in dialect.renames if r.operation is request.operation]
    defaults = [d for d in dialect.defaults if d.operation is request.operation]
    if changes is None:
        renames = [r for r in renames if b'"%b"' % r.source.encode("ascii") in body]
        if model == request.model and not renames and not defaults:
            if not asks:
                return body
            if body.endswith(b"}") and body.find(_STREAM_OPTIONS) < 0:
                return body[:-1] + _ASKING
    members = MEMBERS.decode(body)
    before = dict(members)
    if changes is not None:
        _lower(members, request.operation, changes)
    if model != request.model:
        members["model"] = msgspec.Raw(msgspec.json.encode(model))
    for rename in renames:
        members = _renamed(members, rename.source, rename.target)
    for default in defaults:
        if default.name not in members and default.unless.isdisjoint(members):
            members[default.name] = msgspec.Raw(default.value)
    if asks:
        members["stream_options"] = _asking_for_usage(members.get("stream_options"))
    return body if members == before else msgspec.json.encode(members)


def _lower(members: dict[str, msgspec.Raw], operation: Operation, changes: BodyChanges) -> None:
    """Set what is absent, lower what is above; the cap goes by the names that the client used, else by the operation's own."""
    cap = changes.max_completion_tokens
    if cap is not None:
        names = [name for name in _CAPS if name in members]
        if not names:
            names.append("max_completion_tokens" if operation is Operation.CHAT else "max_tokens")
        for name in names:
            members[name] = _at_most(members.get(name), cap)
    if changes.temperature is not None:
        members["temperature"] = _at_most(members.get("temperature"), changes.temperature)


def _at_most(raw: msgspec.Raw | None, bound: object) -> msgspec.Raw:
    """Keep a number that is within the bound; put the bound in the place of anything else.

    `bound` is typed so loosely because the compiled form would make a float of an int that is declared one, and send `1400.0`.
    """
    assert isinstance(bound, int | float)
    value = lenient.decode(bytes(raw)) if raw is not None else None  # a number may be too large for any float
    if isinstance(value, int | float) and value <= bound:
        assert raw is not None
        return raw
    return msgspec.Raw(msgspec.json.encode(bound))


def _renamed(members: dict[str, msgspec.Raw], source: str, target: str) -> dict[str, msgspec.Raw]:
    """Rename a member in its place; it takes the place of a member that already has the name."""
    if source not in members:
        return members
    return {target if name == source else name: value for name, value in members.items() if name != target}


def _asking_for_usage(options: msgspec.Raw | None) -> msgspec.Raw:
    members = (msgspec.json.decode(options, type=dict[str, msgspec.Raw] | None) if options is not None else None) or {}
    members["include_usage"] = msgspec.Raw(b"true")
    return msgspec.Raw(msgspec.json.encode(members))
