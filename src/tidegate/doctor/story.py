"""Tells one request from its record: how it ended, what the client was told, each attempt, where the time went, and what to do.

Rows are those of the tables `requests` and `attempts`, out of the store or made of a line of a record file; what is missing in an older one
is passed over. Invariant: the times that are told add up to the request's duration, as far as its figures do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from tidegate.analytics.asking import Value
from tidegate.config.reference_text import ADVICE
from tidegate.doctor.outcomes import OUTCOMES, Ending
from tidegate.doctor.phrases import Phrase, joined, say
from tidegate.domain.outcome import Outcome

Cells = Mapping[str, Value]
_FULL: Final = 0.9
_SHORT_S: Final = 0.0005
"""Pauses below it are the loop's own."""
_FINE: Final = 400
_ADVICE: Final = {error.code: advice for error, advice in ADVICE.items()}


class Spent(msgspec.Struct, frozen=True):
    """A part of the request's time, and what makes it long."""

    what: str
    seconds: float
    hint: str = ""


class Story(msgspec.Struct, frozen=True):
    request_id: str
    ending: str
    """How it ended, in a sentence."""
    told: str
    """What the client was told."""
    attempts: tuple[str, ...]
    times: tuple[Spent, ...]
    notes: tuple[str, ...]
    """Degradation, limits, tokens, and what was measured meanwhile."""
    fix: str
    command: str


def explain(request: Cells, attempts: Sequence[Cells], samples: Sequence[Cells] = ()) -> Story:
    """Tell a request. `samples` are what was measured around it: `replica`, `metric`, `most`."""
    outcome = _text(request, "outcome")
    strange = say("It ended as {outcome}.", outcome=outcome or say("nobody knows what"))
    ending = OUTCOMES[Outcome(outcome)] if outcome in list(Outcome) else Ending(strange, "", "")
    cause = _text(request, "cause")
    times = tuple(_times(request, attempts))
    longest = max(times, key=lambda spent: spent.seconds, default=Spent("", 0.0))
    crowd = tuple(_crowd(attempts, samples))
    hint = _CROWDED if crowd and longest.what in _MAY_BE_A_QUEUE else longest.hint
    fix = hint if not ending.fix or (hint == _CROWDED and outcome == Outcome.TRUNCATED) else ending.fix
    fixes = [fix, _ADVICE.get(_text(request, "error_code"), "")]
    return Story(
        request_id=_text(request, "request_id"),
        ending=_whole(ending.sentence, cause),
        told=_told(request),
        attempts=tuple(_attempt(attempt) for attempt in attempts),
        times=times,
        notes=(*_notes(request), *crowd, *_measured(samples)),
        fix=_whole(*fixes),
        command=ending.command or "tidegate query slowest",
    )


def _whole(*sentences: str) -> str:
    """Put sentences after one another; a plain one is said by itself."""
    return joined(" ", [each if isinstance(each, Phrase) else say(each) for each in sentences if each])


def _told(request: Cells) -> str:
    status, code = _count(request, "status"), _text(request, "error_code")
    if not status:
        return "Nothing: it left before an answer began."
    if code and status < _FINE:
        late = "{status}, and after the answer had begun an error event with the code {code}; then the stream ended without [DONE]."
        return say(late, status=status, code=code)
    if code:
        return say("{status} with the code {code}.", status=status, code=code)
    finish = _text(request, "finish_reason")
    return say("{status}, finish_reason: {finish}." if finish else "{status}.", status=status, finish=finish)


_STEPS: Final = {
    "same": "the same again",
    "shorter": "asking for a shorter answer",
    "smaller": "on a smaller model",
    "next": "on the next target",
}


def _attempt(attempt: Cells) -> str:
    step, result = _text(attempt, "step"), _text(attempt, "result")
    where = ", ".join(filter(None, (_text(attempt, "replica"), _text(attempt, "model"))))
    if step:
        where = say("{where} ({how})", where=where, how=say(_STEPS.get(step, "{step}"), step=step))
    theirs = _text(attempt, "upstream_request_id")
    told = say(
        "{where}: {result} after {after}.",
        where=where,
        result=_result(result, begun=attempt.get("first_token_s") is not None),
        after=_seconds(_figure(attempt, "duration_s")),
    )
    return joined(" ", (told, say("Their id: {theirs}.", theirs=theirs))) if theirs else told


_RESULTS: Final = {
    "ok": "it answered",
    "cancelled": "it was given up, because the client had left or another answer was there",
    "lost": "its replica was found dead",
    "failed": "no connection, or one that broke",
}


def _result(result: str, *, begun: bool) -> str:
    if result == "failed" and begun:
        return say("its answer broke off")
    if result.startswith("timeout_"):
        clock = result.removeprefix("timeout_")
        return say("the clock timeouts.{clock}_s ran out", clock=clock)
    if result.startswith("status_"):
        return say("it answered with {status}", status=result.removeprefix("status_"))
    return say(_RESULTS[result]) if result in _RESULTS else result or say("nobody knows how it ended")


# ── where the time went ───────────────────────────────────────────────────────

_GATEWAY: Final = "Limits that were waited for, a slow upload, or a gateway without a free core: tidegate query why-p99"
_FAILED: Final = "Find what fails there: tidegate query errors --by replica"
_CROWDED: Final = (
    "There were more requests than it takes at once: more slots (local_engine.slots; vLLM: --max-num-seqs) or replicas, or limits of "
    "concurrency."
)
_HINTS: Final = {
    "connecting": "Far away, overloaded, or a connection that was opened anew: upstreams.NAME.idle_timeout_s.",
    "in the model server's queue": _CROWDED,
    "waiting for the model server, or on the way": _CROWDED,
    "reading the prompt": "A long prompt that was not in the prefix cache: tidegate query cache --by route",
    "writing the answer": "A long answer or a busy GPU: max_completion_tokens, fewer requests at once.",
    "until the first output": "Queue and prompt; the model server does not tell them apart. Sampling its /metrics does (sampling.scrape).",
    "output": "A long answer or a busy GPU: max_completion_tokens, fewer requests at once.",
    "waiting for the whole answer": "Not a stream, so nothing is known of its parts: a long answer, or a queue.",
}


def _times(request: Cells, attempts: Sequence[Cells]) -> Iterator[Spent]:
    """Give the parts of the time, in their order; the rest of it is the gateway's."""
    ended = 0.0
    for number, attempt in enumerate(attempts, 1):
        began = max(_figure(attempt, "began_s"), ended)
        if began - ended >= _SHORT_S:
            what = "in the gateway, before an attempt" if number == 1 else say("pause before attempt {number}", number=number)
            yield Spent(what, began - ended, _GATEWAY if number == 1 else _FAILED)
        if number < len(attempts):
            yield Spent(say("attempt {number}, which failed", number=number), _figure(attempt, "duration_s"), _FAILED)
        else:
            yield from (Spent(what, seconds, _HINTS.get(what, "")) for what, seconds in _last(attempt) if seconds >= _SHORT_S)
        ended = began + _figure(attempt, "duration_s")
    rest = _figure(request, "duration_s") - ended
    if rest >= _SHORT_S:
        yield Spent("in the gateway, after the last attempt" if attempts else "in the gateway", rest, _GATEWAY)


def _last(attempt: Cells) -> Iterator[tuple[str, float]]:
    duration, connecting = _figure(attempt, "duration_s"), min(_figure(attempt, "connect_s"), _figure(attempt, "duration_s"))
    yield "connecting", connecting
    phases = {
        "in the model server's queue": attempt.get("queue_s"),
        "reading the prompt": attempt.get("prefill_s"),
        "writing the answer": attempt.get("decode_s"),
    }
    first = attempt.get("first_token_s")
    if any(isinstance(seconds, float) for seconds in phases.values()):
        known = {what: seconds for what, seconds in phases.items() if isinstance(seconds, float)}
        rest = duration - connecting - sum(known.values())
        if len(known) == 2 and "in the model server's queue" not in known:  # noqa: PLR2004  llama.cpp tells of its own work only
            yield "waiting for the model server, or on the way", rest
            yield from known.items()
        else:
            yield from known.items()
            yield "on the way, or not told", rest
    elif isinstance(first, float):
        yield "until the first output", first - connecting
        yield "output", duration - first
    else:
        yield "waiting for the whole answer", duration - connecting


# ── what else there is to say ─────────────────────────────────────────────────

_DEGRADED: Final = {
    "standby": "another target answered in the first one's place",
    "shortened": "a retry asked for a shorter answer",
    "smaller_model": "a retry went to a smaller model",
    "over_budget": "the request was over its route's budget, and was made cheaper",
    "prompt_class": "prompts of this kind fail at the first target, so another model answered",
    "holding": "no model could answer, and a prepared sentence was sent",
    "rules": "no model could answer, and the rules did",
    "hand_over": "no model could answer, and the user was pointed to a person",
}


def _notes(request: Cells) -> Iterator[str]:
    degraded = _text(request, "degraded")
    if degraded:
        reason = degraded.partition("reason=")[2].partition(";")[0]
        why = _DEGRADED.get(reason, "the answer is less than what was asked for")
        yield say("Degraded ({degraded}): {why}.", degraded=degraded, why=say(why))
    if _text(request, "rule"):
        yield say("Its target was chosen by {rule}.", rule=_text(request, "rule"))
    if _text(request, "confidence"):
        yield "The answer is marked as of low confidence."
    reserved = _count(request, "reserved_tokens")
    used = _count(request, "prompt_tokens") + _count(request, "completion_tokens")
    if reserved:
        yield say("Limits: it held {reserved:,} tokens and used {used:,}.", reserved=reserved, used=used)
    prompt, cached = _count(request, "prompt_tokens"), _count(request, "cached_tokens")
    if prompt:
        share, evidence = cached / prompt * 100, _text(request, "evidence")
        told = "Prompt: {prompt:,} tokens, {share:.0f} % of them in the upstream's cache; figures are {evidence}."
        yield say(told, prompt=prompt, share=share, evidence=evidence)
    if _count(request, "client_retry"):
        yield say("It is the client's own try number {number}.", number=_count(request, "client_retry") + 1)
    if request.get("resumed") is True:
        yield "The client came back for the rest of a stream; the request that began it has a record of its own."


_MAY_BE_A_QUEUE: Final = ("until the first output", "waiting for the whole answer")
_WAITING: Final = ".requests_waiting"
_RUNNING: Final = ".requests_running"


def _crowd(attempts: Sequence[Cells], samples: Sequence[Cells]) -> Iterator[str]:
    """Tell how many waited at the replicas that it went to."""
    tried = {_text(attempt, "replica") for attempt in attempts}
    most = {(_text(sample, "replica"), _text(sample, "metric")): _figure(sample, "most") for sample in samples}
    for (replica, metric), waiting in most.items():
        if metric.endswith(_WAITING) and replica in tried and waiting >= 1:
            running = most.get((replica, metric.removesuffix(_WAITING) + _RUNNING), 0.0)
            told = (
                "Up to 1 was waiting at {replica} while it ran"
                if waiting == 1
                else "Up to {waiting:.0f} were waiting at {replica} while it ran"
            )
            crowd = say(told, waiting=waiting, replica=replica)
            yield say("{crowd}, beside {running:.0f} at work." if running else "{crowd}.", crowd=crowd, running=running)


def _measured(samples: Sequence[Cells]) -> Iterator[str]:
    """Tell of what was full meanwhile."""
    for sample in samples:
        metric, most = _text(sample, "metric"), _figure(sample, "most")
        if metric.endswith(_FILL) and most >= _FULL:
            where = _text(sample, "replica") or say("this machine")
            yield say("Meanwhile {metric} of {where} rose to {most:.0f} %.", metric=metric, where=where, most=most * 100)


_FILL: Final = ("memory_bandwidth_ratio", "kv_cache_ratio")


def _text(cells: Cells, name: str) -> str:
    value = cells.get(name)
    return value if isinstance(value, str) else ""


def _count(cells: Cells, name: str) -> int:
    value = cells.get(name)
    return value if isinstance(value, int) else 0


def _figure(cells: Cells, name: str) -> float:
    value = cells.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
