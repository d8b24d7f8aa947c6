"""Stages an answer: what a script says, when, and how it fails become the `Playback` of a connection.

A fault of streams has its like for an answer with a length: half of it comes, or none.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import msgspec

from tidegate.mock import answers
from tidegate.mock.answers import Asked, Chunks, Deltas
from tidegate.mock.distribution import draw
from tidegate.mock.playback import Ending, Piece, Playback, Work
from tidegate.mock.retry_headers import retry_headers
from tidegate.mock.script import Fault, FaultKind, Script, Split

_INSTEAD = {
    FaultKind.REFUSE: Ending.RESET,
    FaultKind.RESET_BEFORE_HEADERS: Ending.RESET,
    FaultKind.CLOSE_BEFORE_HEADERS: Ending.CLOSE,
    FaultKind.HANG_BEFORE_HEADERS: Ending.HANG,
    FaultKind.GARBAGE: Ending.CLOSE,
}
"""Faults instead of any head."""
_STOPS = {
    FaultKind.STALL: Ending.HANG,
    FaultKind.CUT: Ending.CLOSE,
    FaultKind.RESET: Ending.RESET,
    FaultKind.END: Ending.CLEAN,
    FaultKind.BAD_FRAMING: Ending.BAD_FRAMING,
}
"""Faults that are some events and then an ending."""


def error(script: Script, status: int) -> Playback:
    """Answer with an error object."""
    return Playback(pieces=(Piece(0.0, answers.error_body(script, status=status)),), status=status, headers=script.headers)


def json_answer(body: object, *, status: int = 200) -> Playback:
    """Answer with any JSON."""
    return Playback(pieces=(Piece(0.0, msgspec.json.encode(body)),), status=status)


def refusal(script: Script, rng: random.Random, wall_clock: Callable[[], float]) -> Playback | None:
    """What replaces the answer: a failure before the headers, an error status, or a body given verbatim.

    `wall_clock` gives the seconds since 1970, for the dialects of `Retry-After` that name an instant.
    """
    fault = script.fault
    if fault is not None and (ending := _INSTEAD.get(fault.kind)) is not None:
        raw = b"\x15\x03\x01 this is not HTTP\r\n\r\n" if fault.kind is FaultKind.GARBAGE else b""
        refuse_s = fault.for_s if fault.kind is FaultKind.REFUSE else 0.0
        return Playback(pieces=(), status=0, ending=ending, raw=raw, refuse_s=refuse_s)
    status = 429 if script.retry_after is not None and script.status == 200 else script.status  # noqa: PLR2004  its default
    if script.body is None and status < 400:  # noqa: PLR2004  HTTP's own classes
        return None
    body = script.body.encode() if script.body is not None else answers.error_body(script, status=status)
    headers = script.headers
    if script.retry_after is not None:
        headers += retry_headers(script.retry_after, wall_clock())
    return _finished(
        script,
        Playback(
            pieces=(Piece(0.0, body),),
            status=status,
            headers=headers,
            headers_s=draw(script.headers_s, rng) + draw(script.first_token_s, rng),
            content_type=script.content_type or "application/json",
            keep_alive=script.keep_alive,
        ),
    )


def embedded(script: Script, asked: Asked, rng: random.Random, *, as_base64: bool) -> Playback:
    """Answer a call for embeddings."""
    body = answers.embeddings(script, asked, as_base64=as_base64)
    work = Work((script.prompt_tokens or 0) * asked.prompts, 0, "stop")
    return _with_length(script, body, Piece(0.0, body), work, draw(script.headers_s, rng) + draw(script.first_token_s, rng))


def whole(script: Script, asked: Asked, rng: random.Random) -> Playback:
    """Answer a call without `stream`."""
    said = answers.compose(script, asked)
    failed = script.fault is not None and script.fault.kind is FaultKind.FINISH_ERROR
    body = answers.whole(script, asked, said, failed=failed)
    delay_s = draw(script.headers_s, rng) + draw(script.first_token_s, rng)
    if script.per_token_s:
        delay_s += sum(draw(script.per_token_s, rng) for _ in range(max(0, said.tokens - 1)))
    piece = Piece(0.0, body, said.tokens * asked.choices)
    return _with_length(script, body, piece, _work(script, asked, said), delay_s)


def stream(script: Script, asked: Asked, rng: random.Random, *, engine: bool) -> Playback:
    """Answer a call with `stream`; with an engine, pieces with tokens may not be joined."""
    said = answers.compose(script, asked)
    pieces, ending = stream_pieces(script, asked, said, rng)
    if script.split is not None:
        pieces = cut(pieces, script.split, keep_tokens=engine)
    return _finished(
        script,
        Playback(
            pieces=tuple(pieces),
            status=script.status,
            headers=script.headers,
            headers_s=draw(script.headers_s, rng),
            ending=ending,
            content_type=script.content_type or "text/event-stream",
            chunked=True,
            keep_alive=script.keep_alive,
            work=_work(script, asked, said),
        ),
    )


def stream_pieces(script: Script, asked: Asked, said: Deltas, rng: random.Random) -> tuple[list[Piece], Ending]:
    """The blocks of a stream and how it ends, the script's fault applied."""
    chunks = Chunks(script, asked, said, rng)
    pieces, fault = chunks.pieces, script.fault
    if fault is None:
        return pieces, Ending.CLEAN
    until, rest = pieces[: fault.after], pieces[fault.after :]
    if (ending := _STOPS.get(fault.kind)) is not None:
        return until, ending
    match fault.kind:
        case FaultKind.HANG_BEFORE_FIRST_TOKEN:
            waits = 0 if script.role_waits else 1 if asked.chat and script.role_first else 0
            return pieces[: waits * asked.choices], Ending.HANG
        case FaultKind.MISSING_DONE:
            pieces = pieces[: chunks.done] + pieces[chunks.done + 1 :]
        case FaultKind.MALFORMED_EVENT:
            pieces = [*until, chunks.malformed(fault.text), *rest]
        case FaultKind.HUGE_EVENT:
            pieces = [*until, chunks.huge(fault.size_bytes), *rest]
        case FaultKind.ERROR_EVENT:
            pieces = [*until, chunks.error()]
        case FaultKind.FINISH_ERROR:
            pieces = [*until, chunks.finish_error()]
        case _:
            pass  # those of the head and of the connection are applied elsewhere
    return pieces, Ending.CLEAN


def cut(pieces: list[Piece], split: Split, *, keep_tokens: bool = False) -> list[Piece]:
    """Join what has no wait between it, then cut at the script's offsets, which count from the start of the body."""
    groups: list[tuple[Piece, list[bytes]]] = []
    for piece in pieces:
        if groups and not piece.delay_s and not (keep_tokens and piece.tokens):
            groups[-1][1].append(piece.payload)
        else:
            groups.append((piece, [piece.payload]))
    cuts: list[Piece] = []
    offset = 0
    for first, blocks in groups:
        body = b"".join(blocks)
        points = {point - offset for point in split.at}
        if split.every is not None:
            points.update(range(-offset % split.every, len(body), split.every))
        edges = [0, *sorted(point for point in points if 0 < point < len(body)), len(body)]
        for number, (start, end) in enumerate(itertools.pairwise(edges)):
            delay_s, tokens = (first.delay_s, first.tokens) if number == 0 else (split.pause_s, 0)
            cuts.append(Piece(delay_s, body[start:end], tokens))
        offset += len(body)
    return cuts


def _work(script: Script, asked: Asked, said: Deltas) -> Work:
    return Work((script.prompt_tokens or 0) * asked.prompts, said.tokens * asked.choices, said.finish, script.cached_tokens)


def _with_length(script: Script, body: bytes, piece: Piece, work: Work, delay_s: float) -> Playback:
    """Answer with a length; a stream's fault becomes the like fault of such a body."""
    half: tuple[Piece, ...] = (Piece(0.0, body[: len(body) // 2], piece.tokens),)
    pieces: tuple[Piece, ...] = (piece,)
    ending, length, chunked = Ending.CLEAN, len(body), False
    match script.fault:
        case Fault(kind=FaultKind.STALL):
            pieces, ending = half, Ending.HANG
        case Fault(kind=FaultKind.HANG_BEFORE_FIRST_TOKEN):
            pieces, ending = (), Ending.HANG
        case Fault(kind=FaultKind.CUT):
            pieces, ending = half, Ending.CLOSE
        case Fault(kind=FaultKind.RESET):
            pieces, ending = half, Ending.RESET
        case Fault(kind=FaultKind.BAD_FRAMING):
            pieces, ending, chunked = half, Ending.BAD_FRAMING, True
        case Fault(kind=FaultKind.END | FaultKind.MALFORMED_EVENT):
            pieces, length = half, len(half[0].payload)
        case Fault(kind=FaultKind.HUGE_EVENT, size_bytes=size_bytes):
            padded = b'{"padding":"' + b"x" * size_bytes + b'",' + body[1:]
            pieces, length = (Piece(0.0, padded, piece.tokens),), len(padded)
        case Fault(kind=FaultKind.ERROR_EVENT):
            failure = answers.error_body(script, status=500)
            pieces, length = (Piece(0.0, failure),), len(failure)
        case _:
            pass
    return _finished(
        script,
        Playback(
            pieces=pieces,
            status=script.status,
            headers=script.headers,
            headers_s=delay_s,
            ending=ending,
            length=length,
            chunked=chunked,
            content_type=script.content_type or "application/json",
            keep_alive=script.keep_alive,
            work=work,
        ),
    )


def _finished(script: Script, playback: Playback) -> Playback:
    """Apply the faults of the head and of the connection."""
    match script.fault:
        case Fault(kind=FaultKind.CUT_HEADERS):
            head = playback.head()
            return msgspec.structs.replace(playback, pieces=(), raw=head[: len(head) // 2], chunked=False, ending=Ending.CLOSE)
        case Fault(kind=FaultKind.DRIP_HEADERS, pause_s=pause_s):
            return msgspec.structs.replace(playback, drip_s=pause_s)
        case Fault(kind=FaultKind.CLOSE_AFTER):
            return msgspec.structs.replace(playback, ending=Ending.CLOSE_AFTER)
        case _:
            return playback
