"""Trace files of Triton (`--trace-config triton,file=…`): queue and compute times of the requests that it traced.

The file is one JSON array that grows while the server runs; older versions write a request as one object, newer ones as several with the
same `id`. Its times are of a clock of its own, so a sample is of the moment in which the request was found in the file.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Mapping
from typing import Final

from tidegate.analytics.samples import Sample

MAX_OBJECT_CHARS: Final = 1_048_576
"""Of one object that is not whole yet. Tensors in a trace make it long; times alone take some hundred characters."""
MAX_OPEN: Final = 10_000
"""Requests whose end is not seen yet, beyond what a server has running at once. Of more the oldest are forgotten."""
MAX_MODELS: Final = 64
"""Told apart at once; each is a value of the column `device`."""
_BETWEEN: Final = " \t\r\n,[]"
_SPANS: Final = {
    "triton.queue_mean_s": ("QUEUE_START", "COMPUTE_START"),
    "triton.compute_mean_s": ("COMPUTE_START", "COMPUTE_END"),
    "triton.request_mean_s": ("REQUEST_START", "REQUEST_END"),
}
_NS: Final = 1e-9


class TritonTrace:
    """Reads a trace file, however it is cut into pieces."""

    def __init__(self, *, replica: str) -> None:
        self._replica = replica
        self._text = ""
        self._to_text = codecs.getincrementaldecoder("utf-8")("replace")
        self._decode = json.JSONDecoder().raw_decode
        self._open: dict[int, _Request] = {}

    def feed(self, piece: bytes) -> list[Sample]:
        """Give counts and mean times of the requests that ended in this piece, by model."""
        self._text += self._to_text.decode(piece)
        ended: dict[str, list[Mapping[str, int]]] = {}
        for found in self._objects():
            request = self._merged(found)
            if request is not None and "REQUEST_END" in request.times:
                del self._open[request.number]
                if request.model in ended or len(ended) < MAX_MODELS:
                    ended.setdefault(request.model, []).append(request.times)
        return [sample for model, requests in ended.items() for sample in self._summary(model, requests)]

    def begin_anew(self) -> None:
        """Forget half objects: the file was begun anew."""
        self._text = ""
        self._to_text.reset()

    def _objects(self) -> Iterable[dict[str, object]]:
        at = 0
        try:
            while True:
                while at < len(self._text) and self._text[at] in _BETWEEN:
                    at += 1
                found, at = self._decode(self._text, at)
                if isinstance(found, dict):
                    yield found
        except (ValueError, RecursionError):
            pass  # what is left is not whole yet
        self._text = self._text[at:] if len(self._text) - at <= MAX_OBJECT_CHARS else ""

    def _merged(self, found: Mapping[str, object]) -> _Request | None:
        number = found.get("id")
        if not isinstance(number, int):
            return None
        request = self._open.setdefault(number, _Request(number))
        if len(self._open) > MAX_OPEN:
            del self._open[next(iter(self._open))]
        model, times = found.get("model_name"), found.get("timestamps")
        if isinstance(model, str):
            request.model = model
        for each in times if isinstance(times, list) else ():
            name, ns = (each.get("name"), each.get("ns")) if isinstance(each, dict) else (None, None)
            if isinstance(name, str) and isinstance(ns, int):
                request.times[name.upper().replace(" ", "_")] = ns
        return request

    def _summary(self, model: str, requests: list[Mapping[str, int]]) -> Iterable[Sample]:
        yield Sample("triton.requests", float(len(requests)), model, self._replica)
        for metric, (begin, end) in _SPANS.items():
            took = [times[end] - times[begin] for times in requests if begin in times and end in times]
            if took:
                yield Sample(metric, max(0.0, sum(took) / len(took) * _NS), model, self._replica)


class _Request:
    __slots__ = ("model", "number", "times")

    def __init__(self, number: int) -> None:
        self.number = number
        self.model = ""
        self.times: dict[str, int] = {}
