"""What one request, sent before a run, tells: a wrong address, key or model is said at once, and not by ten thousand failures.

Only what more requests cannot change stops a run. A limit, a server error or a broken answer is told, and the run goes on: it may be what
is to be measured.
"""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from tidegate.bench.plan import Target
from tidegate.bench.sample import End, Sample


class Finding(msgspec.Struct, frozen=True):
    """What is wrong, and what to do."""

    message: str
    stops: bool
    """Whether a run is pointless."""


def finding(sample: Sample, target: Target, *, key_from: str) -> Finding | None:
    """Judge the probe; `key_from` says in words where the key came from. None: nothing is wrong with the target."""
    where, said = target.base_url, sample.error or "it did not say why"
    match sample.end:
        case End.COMPLETE:
            return None
        case End.TRANSPORT:
            return Finding(f"Nothing was measured: {said}", stops=True)
        case End.TIMEOUT:
            wait = f"{target.timeout_s:g} s"
            return Finding(
                f"{where} did not answer one request within {wait}. Look at the server, or give more with --timeout-s.", stops=True
            )
        case End.HTTP_ERROR:
            return _of_status(sample.status, said, target, key_from)
        case End.STREAM_ERROR | End.TRUNCATED:
            return Finding(f"The first answer of {where} is not whole ({said}). Is this an OpenAI-compatible API?", stops=False)
        case End.NOT_SENT:
            return None


def _of_status(status: int, said: str, target: Target, key_from: str) -> Finding:
    where = target.base_url
    match status:
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return Finding(f"{where} refuses the caller ({status}: {said}). {key_from} --key-env names another variable.", stops=True)
        case HTTPStatus.NOT_FOUND:
            return Finding(
                f'{where} knows no such path or model ({status}: {said}). The address must include the version, as in "/v1"; '
                f'the model asked for is "{target.model}", and {where}/models lists those that there are.',
                stops=True,
            )
        case HTTPStatus.TOO_MANY_REQUESTS:
            return Finding(f"{where} limits even the first request ({said}). The figures will be of a limit.", stops=False)
        case _ if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return Finding(f"{where} failed at the first request ({status}: {said}).", stops=False)
        case _:
            return Finding(
                f"{where} does not accept the request ({status}: {said}). It was for {target.endpoint.path} and the model "
                f'"{target.model}"; look at --extra-body, --cap-field and --no-ask-usage.',
                stops=True,
            )
