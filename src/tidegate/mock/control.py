"""The control endpoints under `/mock`: change what the server does while it runs, and see what its clients did.

Each function answers one path and calls the server; the server decides who may ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import parse_qs, unquote

import msgspec
from msgspec import Meta

from tidegate.domain.units import Secret
from tidegate.mock import staging
from tidegate.mock.playback import Playback
from tidegate.mock.presets import PRESETS
from tidegate.mock.received import ReceivedRequest
from tidegate.mock.script import FaultKind
from tidegate.mock.script_file import describe, read_settings
from tidegate.mock.scripting import Misfit, converted, play_of

if TYPE_CHECKING:
    from tidegate.mock.server import ScriptedUpstream

PREFIX = "/mock"
_MOST_SHOWN = 1_000
"""Requests in one answer, unless `limit` says more."""
PATHS = {
    "GET /mock": "this",
    "GET /mock/script": "the script in force",
    "PUT /mock/script": "follow this script file (YAML or JSON) from now on; its time begins",
    "PUT /mock/scripts/NAME": "set one entry of scripts: anything a marker may say",
    "DELETE /mock/scripts/NAME": "forget it",
    "POST /mock/next": "queue for the next calls: a list, each anything a marker may say",
    "GET /mock/requests": "the last requests and what became of them; ?limit=, ?ended=client_left|answered|open",
    "DELETE /mock/requests": "forget them",
    "GET /mock/statistics": "connections, requests, departures",
    "POST /mock/refuse": '{"for_s": 1, "how": "closed" or "backlog", "reset": false}: let nobody connect; reset: also break what is open',
    "POST /mock/restart": "begin the time of failures and cold start again",
}


class Refusal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `POST /mock/refuse` takes."""

    for_s: Annotated[float, Meta(gt=0, le=3600)] = 1.0
    how: Literal["closed", "backlog"] = "closed"
    reset: bool = False


def answer(server: ScriptedUpstream, request: ReceivedRequest) -> Playback:
    """Answer a request under `/mock`."""
    try:
        return _answer(server, request)
    except Misfit as misfit:
        return _wrong(str(misfit))
    except msgspec.DecodeError as error:
        return _wrong(f"the body is not JSON: {error}")


def _answer(server: ScriptedUpstream, request: ReceivedRequest) -> Playback:
    path = request.path.rstrip("/")
    name = unquote(path.removeprefix("/mock/scripts/"))
    match request.method, path:
        case "GET", "/mock":
            known = {"scripts": list(server.scripts), "ready_made": list(PRESETS), "faults": list(FaultKind), "paths": PATHS}
            return staging.json_answer(known)
        case "GET", "/mock/script":
            return staging.json_answer(msgspec.to_builtins(server.settings(), enc_hook=_masked))
        case "PUT", "/mock/script":
            return _put_script(server, request)
        case "PUT", _ if path.startswith("/mock/scripts/") and name:
            server.scripts[name] = play_of(msgspec.json.decode(request.body or b"{}"), server.default, server.scripts)
            return staging.json_answer({"scripts": list(server.scripts)})
        case "DELETE", _ if path.startswith("/mock/scripts/") and name:
            server.scripts.pop(name, None)
            return staging.json_answer({"scripts": list(server.scripts)})
        case "POST", "/mock/next":
            return _queue(server, request)
        case "GET", "/mock/requests":
            return _requests(server, request)
        case "DELETE", "/mock/requests":
            server.requests.clear()
            return staging.json_answer({"requests": []})
        case "GET", "/mock/statistics":
            return staging.json_answer(server.statistics())
        case "POST", "/mock/refuse":
            refusal = converted(msgspec.json.decode(request.body or b"{}"), Refusal)
            server.refuse_for(refusal.for_s, backlog=refusal.how == "backlog", reset=refusal.reset, spare=request.connection)
            return msgspec.structs.replace(staging.json_answer({"refuses_for_s": refusal.for_s}), keep_alive=False)
        case "POST", "/mock/restart":
            server.restart()
            return staging.json_answer({"elapsed_s": 0})
        case _:
            return _wrong(f"nothing answers {request.method} {request.path}; GET /mock says what does", status=404)


def _put_script(server: ScriptedUpstream, request: ReceivedRequest) -> Playback:
    settings = read_settings(request.body.decode("utf-8", "replace"))
    if isinstance(settings, list):
        return _wrong(describe(settings, "script"))
    server.load(settings)
    return staging.json_answer({"scripts": list(server.scripts)})


def _queue(server: ScriptedUpstream, request: ReceivedRequest) -> Playback:
    said = msgspec.json.decode(request.body)
    played = play_of(said, server.default, server.scripts)
    scripts = played if isinstance(played, tuple) else (played,)
    server.script(*scripts)
    return staging.json_answer({"queued": len(scripts)})


def _requests(server: ScriptedUpstream, request: ReceivedRequest) -> Playback:
    wanted = parse_qs(request.query)
    limit = wanted.get("limit", [str(_MOST_SHOWN)])[0]
    if not limit.isdecimal():
        return _wrong(f"limit is a number, not {limit[:40]!r}")
    ended = wanted.get("ended", [""])[0]
    reports = [one.report(server.started_at) for one in tuple(server.requests)]
    if ended:
        reports = [one for one in reports if one["ended"] == ended]
    return staging.json_answer({"requests": reports[-int(limit) :] if int(limit) else []})


def _masked(value: object) -> object:
    if isinstance(value, Secret):
        return "****"
    raise TypeError(f"cannot be shown: {type(value)}")


def _wrong(message: str, *, status: int = 400) -> Playback:
    return staging.json_answer({"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}, status=status)
