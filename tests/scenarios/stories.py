"""The stories told to both drivers: a name, a world, and what must come of it."""

from __future__ import annotations

import msgspec

from tidegate.domain.outcome import Outcome
from tidegate.domain.principal import Limits, Principal
from tidegate.domain.request import Operation
from tidegate.domain.units import KeyId, ModelName, ReplicaId, TenantId, UpstreamName, UserId
from tidegate.domain.upstream import Replica, Route, Target, Timeouts
from tidegate.ports import CallFailure, CallFailureKind
from tidegate.simulator.scenario import (
    Break,
    Complete,
    Connect,
    Cut,
    ErrorEvent,
    Output,
    Reject,
    Respond,
    Scenario,
    Script,
    ScriptedRequest,
)

CHAT = b'{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":100}'
STREAM = b'{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":100,"stream":true}'
EMBEDDING = b'{"model":"m","input":"hello"}'
TOKENIZE = b'{"model":"m","prompt":"hello"}'

CLOCKS = Timeouts(connect_s=1.0, first_byte_s=2.0, first_token_s=3.0, stall_s=1.5, total_s=20.0)
MAIN = Replica(ReplicaId("main/0"), UpstreamName("main"), "vllm", CLOCKS)
STANDBY = Replica(ReplicaId("standby/0"), UpstreamName("standby"), "llamacpp", CLOCKS)
BOTH = Route("m", (Target(MAIN.upstream), Target(STANDBY.upstream, ModelName("small"))))

NO_USAGE_OPTION = b'{"error":{"message":"unknown field stream_options","type":"x","param":null,"code":"bad"}}'
FILTERED = b'{"error":{"message":"no","type":"x","param":null,"code":"content_filter"}}'

ANSWER: Script = (Connect(), Respond(), Complete())
STREAMED: Script = (Connect(), Respond(), Output(), Output(), Output(), Complete())
REFUSED: Script = (Break(CallFailure(CallFailureKind.CONNECT, "main: connection refused")),)
RESET: Script = (Connect(), Break(CallFailure(CallFailureKind.RESET, "main: connection reset")))


NO_LIMITS = Limits()
NO_TOKEN = "timeout_first_token"


def world(
    *requests: ScriptedRequest,
    limits: Limits = NO_LIMITS,
    models: tuple[str, ...] = ("*",),
    replicas: tuple[Replica, ...] = (MAIN, STANDBY),
    drain_at_s: float | None = None,
) -> Scenario:
    principal = Principal(KeyId("k"), TenantId("t"), UserId("u"), limits=limits, models=models)
    return Scenario(requests, {"key": principal}, replicas, (BOTH,), ("m", "small"), drain_at_s=drain_at_s)


class Story(msgspec.Struct, frozen=True):
    scenario: Scenario
    outcomes: tuple[Outcome, ...]
    """One for each request, in the scenario's order."""
    steps: tuple[tuple[str, ...], ...] | None = None
    """What each request's attempts were, beside the ones before."""
    labels: tuple[str | None, ...] | None = None
    """How each answer is marked as less than what was asked for."""
    results: tuple[tuple[str, ...], ...] | None = None
    """What became of each request's attempts."""


def _one(
    body: bytes,
    *calls: Script,
    outcome: Outcome,
    leaves_after_s: float | None = None,
    drain_at_s: float | None = None,
    results: tuple[str, ...] | None = None,
) -> Story:
    scenario = world(ScriptedRequest(0.0, body, calls=calls, leaves_after_s=leaves_after_s), drain_at_s=drain_at_s)
    return Story(scenario, (outcome,), results=None if results is None else (results,))


def _slow(clocks: Timeouts, *calls: Script, result: str, body: bytes = STREAM) -> Story:
    """One attempt that runs into a clock; the standby answers."""
    replicas = (msgspec.structs.replace(MAIN, timeouts=clocks), STANDBY)
    scenario = world(ScriptedRequest(0.0, body, calls=calls), replicas=replicas)
    return Story(scenario, (Outcome.OK,), results=((result, "ok"),))


STORIES: dict[str, Story] = {
    "a whole answer": _one(CHAT, ANSWER, outcome=Outcome.OK),
    "a stream": _one(STREAM, STREAMED, outcome=Outcome.OK),
    "an embedding": Story(world(ScriptedRequest(0.0, EMBEDDING, Operation.EMBEDDING, calls=(ANSWER,))), (Outcome.OK,)),
    "an answer without usage": _one(CHAT, (Connect(), Respond(), Complete(usage=None)), outcome=Outcome.OK),
    "a stream without usage": _one(STREAM, (Connect(), Respond(), Output(), Output(), Complete(usage=None)), outcome=Outcome.OK),
    "an answer cut at its length": _one(CHAT, (Connect(), Respond(), Complete(finish_reason="length")), outcome=Outcome.TRUNCATED),
    "a filtered answer": _one(
        STREAM, (Connect(), Respond(), Output(), Complete(finish_reason="content_filter")), outcome=Outcome.CONTENT_FILTER
    ),
    "a stream that says nothing but ends well": _one(STREAM, (Connect(), Respond(), Complete()), outcome=Outcome.OK),
    "a dead upstream and a healthy standby": _one(STREAM, REFUSED, STREAMED, outcome=Outcome.OK),
    "a 503 and a healthy standby": _one(CHAT, (Connect(), Reject(503)), ANSWER, outcome=Outcome.OK),
    "an upstream that refuses our key, and a standby": _one(CHAT, (Connect(), Reject(401)), ANSWER, outcome=Outcome.OK),
    "both upstreams dead": _one(CHAT, REFUSED, REFUSED, REFUSED, outcome=Outcome.FAILED_UPSTREAM),
    "a reset, then a repeat on the only replica": Story(
        world(ScriptedRequest(0.0, CHAT, calls=(RESET, ANSWER)), replicas=(MAIN,)),
        (Outcome.OK,),
    ),
    "an upstream that judges the request": _one(CHAT, (Connect(), Reject(400)), outcome=Outcome.REJECTED_UPSTREAM),
    "an upstream that refuses to be asked for usage": Story(
        world(
            ScriptedRequest(0.0, STREAM, calls=((Connect(), Reject(400, body=NO_USAGE_OPTION)), STREAMED)),
            ScriptedRequest(1.0, STREAM, calls=(STREAMED,)),
            replicas=(MAIN,),
        ),
        (Outcome.OK, Outcome.OK),
    ),
    "a question that the provider filters": _one(CHAT, (Connect(), Reject(400, body=FILTERED)), outcome=Outcome.CONTENT_FILTER),
    "an upstream that fails inside a 200 each time": Story(
        world(ScriptedRequest(0.0, STREAM, calls=((Connect(), Respond(), ErrorEvent()),) * 2), replicas=(MAIN,)), (Outcome.MODEL_ERROR,)
    ),
    "an error event before any output": _one(STREAM, (Connect(), Respond(), ErrorEvent()), STREAMED, outcome=Outcome.OK),
    "an error event after some output": _one(STREAM, (Connect(), Respond(), Output(), ErrorEvent()), outcome=Outcome.MODEL_ERROR),
    "a stream cut before any output": _one(STREAM, (Connect(), Respond(), Cut()), STREAMED, outcome=Outcome.OK),
    "a stream cut after some output": _one(STREAM, (Connect(), Respond(), Output(), Cut()), outcome=Outcome.FAILED_MID_STREAM),
    "a stream reset after some output": _one(
        STREAM,
        (Connect(), Respond(), Output(), Break(CallFailure(CallFailureKind.RESET, "main: reset"))),
        outcome=Outcome.FAILED_MID_STREAM,
    ),
    "no connection in time": _one(STREAM, (), (), outcome=Outcome.FAILED_TIMEOUT, results=("timeout_connect",) * 2),
    "no first byte in time": _one(STREAM, (Connect(),), STREAMED, outcome=Outcome.OK, results=("timeout_first_byte", "ok")),
    "no first token in time": _one(STREAM, (Connect(), Respond()), STREAMED, outcome=Outcome.OK, results=("timeout_first_token", "ok")),
    "a long prompt after the head": _one(STREAM, (Connect(), Respond(), Output(2.5), Complete()), outcome=Outcome.OK, results=("ok",)),
    "a connection that comes too late for the first token": _slow(
        Timeouts(connect_s=5.0, first_token_s=0.5), (), STREAMED, result=NO_TOKEN
    ),
    "a head that comes too late for the first token": _slow(Timeouts(first_token_s=0.5), (Connect(),), STREAMED, result=NO_TOKEN),
    "a head that comes too late, on a slow connection": _slow(Timeouts(first_byte_s=0.5), (), STREAMED, result="timeout_first_byte"),
    "no whole answer has a first token": _slow(
        Timeouts(first_byte_s=0.1, first_token_s=0.1, stall_s=0.1, total_s=1.0), (Connect(),), ANSWER, result="timeout_total", body=CHAT
    ),
    "a stream that stalls": _one(STREAM, (Connect(), Respond(), Output(), Output()), outcome=Outcome.FAILED_MID_STREAM),
    "an answer that never comes": _one(CHAT, (Connect(),), (Connect(),), outcome=Outcome.FAILED_TIMEOUT),
    "a client that leaves before the answer": _one(CHAT, (Connect(),), leaves_after_s=0.5, outcome=Outcome.CLIENT_CANCELLED),
    "a client that leaves in the middle of a stream": _one(STREAM, STREAMED, leaves_after_s=0.115, outcome=Outcome.CLIENT_CANCELLED),
    "a client that leaves between two attempts": Story(
        world(ScriptedRequest(0.0, CHAT, calls=(RESET, ANSWER), leaves_after_s=0.031), replicas=(MAIN,)), (Outcome.CLIENT_CANCELLED,)
    ),
    "a shutdown before the answer": _one(CHAT, (Connect(),), drain_at_s=0.5, outcome=Outcome.REJECTED_OVERLOAD),
    "a shutdown in the middle of a stream": _one(STREAM, STREAMED, drain_at_s=0.115, outcome=Outcome.FAILED_MID_STREAM),
    "a body that is not JSON": _one(b"{", outcome=Outcome.REJECTED_INVALID),
    "a model nobody serves": _one(b'{"model":"x","messages":[{"role":"user","content":"a"}]}', outcome=Outcome.REJECTED_INVALID),
    "a model the key may not use": Story(world(ScriptedRequest(0.0, CHAT), models=("other-*",)), (Outcome.REJECTED_FORBIDDEN,)),
    "a wrong key": Story(world(ScriptedRequest(0.0, CHAT, credential="wrong")), (Outcome.REJECTED_UNAUTHENTICATED,)),
    "the list of models": Story(world(ScriptedRequest(0.0, b"", Operation.MODELS)), (Outcome.OK,)),
    "one model": Story(world(ScriptedRequest(0.0, b"", Operation.MODEL, path_argument="small")), (Outcome.OK,)),
    "a model that is not listed": Story(
        world(ScriptedRequest(0.0, b"", Operation.MODEL, path_argument="smal")), (Outcome.REJECTED_INVALID,)
    ),
    "a count in Anthropic's dialect": Story(world(ScriptedRequest(0.0, CHAT, Operation.COUNT_MESSAGES)), (Outcome.OK,)),
    "a count in OpenAI's newer dialect": Story(
        world(ScriptedRequest(0.0, b'{"model":"m","input":"hello"}', Operation.COUNT_RESPONSES)), (Outcome.OK,)
    ),
    "an estimate": Story(world(ScriptedRequest(0.0, CHAT, Operation.ESTIMATE)), (Outcome.OK,)),
    "a count": Story(world(ScriptedRequest(0.0, TOKENIZE, Operation.TOKENIZE)), (Outcome.OK,)),
    "a count that takes too long": Story(
        world(ScriptedRequest(0.0, TOKENIZE, Operation.TOKENIZE, counted_tokens=None)), (Outcome.REJECTED_OVERLOAD,)
    ),
    "more requests than allowed": Story(
        world(
            ScriptedRequest(0.0, CHAT, calls=(ANSWER,)),
            ScriptedRequest(1.0, CHAT, calls=(ANSWER,)),
            ScriptedRequest(2.0, CHAT),
            ScriptedRequest(61.5, CHAT, calls=(ANSWER,)),
            limits=Limits(requests_per_minute=2),
        ),
        (Outcome.OK, Outcome.OK, Outcome.REJECTED_RATE_LIMIT, Outcome.OK),
    ),
    "the list of models beyond the request limit": Story(
        world(
            ScriptedRequest(0.0, b"", Operation.MODELS), ScriptedRequest(1.0, b"", Operation.MODELS), limits=Limits(requests_per_minute=1)
        ),
        (Outcome.OK, Outcome.REJECTED_RATE_LIMIT),
    ),
    "more at once than allowed": Story(
        world(ScriptedRequest(0.0, CHAT, calls=(ANSWER,)), ScriptedRequest(0.01, CHAT), limits=Limits(concurrency=1)),
        (Outcome.OK, Outcome.REJECTED_RATE_LIMIT),
    ),
    "tokens that run out": Story(
        world(
            ScriptedRequest(0.0, CHAT, calls=(ANSWER,)),
            ScriptedRequest(0.001, CHAT.replace(b"hello", b"bye"), counted_tokens=21),
            ScriptedRequest(1.0, CHAT, calls=(ANSWER,)),
            limits=Limits(tokens_per_minute=150),
        ),
        (Outcome.OK, Outcome.REJECTED_RATE_LIMIT, Outcome.OK),
    ),
    "a request that can never fit": Story(
        world(ScriptedRequest(0.0, CHAT), limits=Limits(tokens_per_minute=90)), (Outcome.REJECTED_RATE_LIMIT,)
    ),
    "a long answer that fits only by the exact count of its prompt": Story(
        world(
            ScriptedRequest(0.0, CHAT.replace(b'"max_tokens":100', b'"max_tokens":9900'), calls=(ANSWER,)),
            limits=Limits(tokens_per_minute=10_000),
        ),
        (Outcome.OK,),
    ),
    "a counter that is down near the limit": Story(
        world(ScriptedRequest(0.0, CHAT, calls=(ANSWER,), counted_tokens=None), limits=Limits(tokens_per_minute=200)), (Outcome.OK,)
    ),
    "a client that leaves while its prompt is counted": Story(
        world(ScriptedRequest(0.0, CHAT, leaves_after_s=0.001), limits=Limits(tokens_per_minute=200)), (Outcome.CLIENT_CANCELLED,)
    ),
    "an upstream that is set aside after its 429": Story(
        world(
            ScriptedRequest(0.0, CHAT, calls=((Connect(), Reject(429, retry_after_s=5)), (Connect(), Reject(429, retry_after_s=9)))),
            ScriptedRequest(1.0, CHAT),
            ScriptedRequest(5.5, CHAT, calls=(ANSWER,)),
        ),
        (Outcome.FAILED_UPSTREAM, Outcome.REJECTED_NO_REPLICA, Outcome.OK),
    ),
}
