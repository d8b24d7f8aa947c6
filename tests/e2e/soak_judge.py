"""What may not be wrong, whatever the upstream did: the form of an answer, its record, and what is left of all of them in the gateway."""

from __future__ import annotations

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import psutil
from tests.e2e.soak_client import End, Seen

from tidegate.adapters.keys.store import KeyStore
from tidegate.adapters.wall_clock import wall_clock
from tidegate.conformance.events import Reading, choices_of, read_events, text_of
from tidegate.conformance.expect import Way
from tidegate.domain.outcome import Outcome
from tidegate.testing import GatewayProcess
from tidegate.wiring.worker import KEYS_FILE

ANSWERED = frozenset({Outcome.OK, Outcome.TRUNCATED, Outcome.CONTENT_FILTER})
_ERROR_MEMBERS = {"message", "type", "param", "code"}
_NOT_LEVELS = ("replicas", "limits.counters", "reserve.groups")
"""Of the configuration, of the last minute's keys, or of what is learned: they do not return to zero."""
_POLL_S = 0.1


# ── answers ───────────────────────────────────────────────────────────────────


def complaint_about(seen: Seen, text: str | None, *, done: bool = True) -> str | None:
    """Say what is wrong with an answer; None: it is complete and right, a clear error, or a stream that ends with one.

    `text` is what the upstream says (None: anything); `done` False when it leaves out `[DONE]`, which must not be made up.
    """
    if seen.end is not End.COMPLETE:
        return f"the answer did not end: {seen.end} after {seen.received_bytes} bytes"
    if seen.status != 200:
        return _of_error(seen)
    if seen.question.way.is_stream:
        return _of_stream(read_events(seen.body), text, done=done)
    return _of_whole(seen, text)


def was_answered(seen: Seen) -> bool:
    """Tell whether a well-formed answer is a whole one."""
    return seen.status == 200 and not (seen.question.way.is_stream and _fails(read_events(seen.body)))


def _fails(reading: Reading) -> bool:
    return bool(reading.chunks and reading.chunks[-1].get("error"))


def _of_error(seen: Seen) -> str | None:
    try:
        error = json.loads(seen.body)["error"]
    except (ValueError, KeyError, TypeError):
        return f"status {seen.status} without an error object: {seen.body[:200]!r}"
    if not isinstance(error, dict) or not error.keys() >= _ERROR_MEMBERS or not error["message"]:
        return f"status {seen.status} with half an error object: {seen.body[:200]!r}"
    return None


def _of_stream(reading: Reading, text: str | None, *, done: bool) -> str | None:
    said = reading.text
    errors = sum(bool(chunk.get("error")) for chunk in reading.chunks)
    finished = any(choice.get("finish_reason") for chunk in reading.chunks for choice in choices_of(chunk))
    complaint = None
    if reading.malformed or reading.rest.strip() or reading.undecodable:
        complaint = "an event that is no event reached the client"
    elif any(chunk.get("usage") for chunk in reading.chunks):
        complaint = "usage that was not asked for"
    elif errors and (errors > 1 or not _fails(reading) or "[DONE]" in reading.data):
        complaint = "an error that is not the one last event"
    elif errors:
        complaint = None if text is None or text.startswith(said) else f"expected the beginning of {text!r}, got {said!r}"
    elif not finished or reading.ends_with_done is not done:
        complaint = "no error, and no finish or not the upstream's [DONE]"
    elif text is not None and said != text:
        complaint = f"expected {text!r}, got {said!r}"
    return complaint and f"{complaint}: …{reading.data[-3:]!r}"


def _of_whole(seen: Seen, text: str | None) -> str | None:
    try:
        answer = json.loads(seen.body)
    except ValueError:
        return f"status 200 without JSON: {seen.body[:200]!r}"
    if seen.question.way is Way.EMBEDDING:
        return None if answer["data"][0]["embedding"] else f"no vector: {seen.body[:200]!r}"
    said = text_of(answer["choices"][0])
    return None if text is None or said == text else f"expected {text!r}, got {said!r}"


# ── records ───────────────────────────────────────────────────────────────────


def records_of(gateway: GatewayProcess, prefix: str) -> Iterator[dict[str, Any]]:
    """Give the records of the requests whose id begins so; the gateway must have ended, or have nothing queued."""
    for path in (gateway.state_directory / "records").glob("*.jsonl"):
        with path.open() as lines:
            for line in lines:
                record = json.loads(line)
                if record["request_id"].startswith(prefix):
                    yield record


def complaints_about_records(records: Iterable[dict[str, Any]], seen: Iterable[Seen]) -> list[str]:
    """Compare records with what clients saw: one for each, with the outcome and status that its client had."""
    found = list(records)
    counts = Counter(record["request_id"] for record in found)
    complaints = [f"{request_id} has {count} records" for request_id, count in counts.items() if count > 1]
    by_id = {record["request_id"]: record for record in found}
    complaints += [f"{record['request_id']}: {record['outcome']}" for record in found if record["outcome"] == Outcome.FAILED_INTERNAL]
    for one in seen:
        record = by_id.get(one.question.request_id)
        if record is None:
            if one.end is not End.LEFT or one.received_bytes:
                complaints.append(f"{one.question.request_id} has no record, but its client got {one.received_bytes} bytes")
        elif one.end is End.COMPLETE and not _agrees(one, record):
            complaints.append(f"{one.question.request_id}: its client saw {one.status} {one.body[-200:]!r}, its record says {record}")
    return complaints


def _agrees(seen: Seen, record: dict[str, Any]) -> bool:
    outcome = Outcome(record["outcome"])
    if outcome is Outcome.CLIENT_CANCELLED:  # it may leave at the moment when the last byte is under way
        return seen.question.leaving is not None
    if seen.status != 200:  # an answer can be withheld with a status of its own
        return record["status"] == seen.status and outcome not in ANSWERED - {Outcome.CONTENT_FILTER}
    return record["status"] == seen.status and (outcome in ANSWERED) is was_answered(seen)


# ── what is left ──────────────────────────────────────────────────────────────


class Levels:
    """Looks at a gateway's levels as its admin API shows them, and at its worker from outside."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._gateway = gateway
        store = KeyStore(gateway.state_directory / KEYS_FILE)
        try:
            self._key = store.create(name="levels", tenant="ops", user="ops", now=wall_clock(), admin=True).token
        finally:
            store.close()
        children = psutil.Process(gateway.pid).children(recursive=True)
        (self.worker,) = [each for each in children if "tidegate.node.worker" in each.cmdline()]

    def figures(self) -> dict[str, float]:
        """Every level by its name; an upstream's with its own before it."""
        statistics = self._statistics()
        figures = dict(statistics["levels"])
        for upstream in statistics["upstreams"]:
            figures |= {f"{upstream['name']}.{name}": value for name, value in upstream["levels"].items()}
        return figures

    def counter(self, name: str) -> int:
        return int(self._statistics()["counters"][name])

    def not_zero(self) -> dict[str, float]:
        """Levels of what requests hold that are not zero; the states of breakers are not theirs."""
        return {
            name: value for name, value in self.figures().items() if value and not any(word in name for word in (*_NOT_LEVELS, "breaker"))
        }

    def wait_until_zero(self, deadline_s: float) -> dict[str, float]:
        """Wait until nothing is held; give what still is at the deadline."""
        until = time.monotonic() + deadline_s
        while (left := self.not_zero()) and time.monotonic() < until:
            time.sleep(_POLL_S)
        return left

    def sockets(self) -> int:
        """TCP connections of the worker, in whatever state, besides those that listen."""
        return sum(each.status != psutil.CONN_LISTEN for each in self.worker.net_connections("tcp"))

    def _statistics(self) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {self._key.reveal()}"}
        request = urllib.request.Request(f"{self._gateway.admin_url}/admin/status", headers=headers)  # noqa: S310  loopback
        with urllib.request.urlopen(request, timeout=5.0) as answer:  # noqa: S310  loopback
            statistics: dict[str, Any] = json.load(answer)["statistics"]
        return statistics
