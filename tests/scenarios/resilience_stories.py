"""Stories of retries, ladders, lost replicas, leaving clients, early commits and prepared answers."""

from __future__ import annotations

from tests.scenarios.stories import (
    ANSWER,
    BOTH,
    CHAT,
    CLOCKS,
    EMBEDDING,
    FILTERED,
    MAIN,
    NO_LIMITS,
    NO_USAGE_OPTION,
    REFUSED,
    RESET,
    STANDBY,
    STREAM,
    STREAMED,
    Story,
)

from tidegate.domain.outcome import Outcome
from tidegate.domain.principal import Principal
from tidegate.domain.request import Operation
from tidegate.domain.units import KeyId, ModelName, ReplicaId, TenantId, UpstreamName, UserId
from tidegate.domain.upstream import Replica, Route, Target
from tidegate.policy.degradation.answers import HeldAnswer
from tidegate.policy.degradation.class_health import ClassSettings
from tidegate.policy.resilience.ladder import Ladder
from tidegate.policy.resilience.leave import LeavePolicy
from tidegate.policy.resilience.retry import RetryPolicy
from tidegate.policy.routing.budget import Budget
from tidegate.policy.routing.router import RouteSettings
from tidegate.policy.routing.rules import Conditions, Rule
from tidegate.simulator.scenario import (
    Complete,
    Connect,
    Cut,
    ErrorEvent,
    HealthReport,
    Output,
    Reject,
    Resilience,
    Respond,
    Scenario,
    Script,
    ScriptedRequest,
)

TINY = Replica(ReplicaId("tiny/0"), UpstreamName("tiny"), "vllm", CLOCKS)
SECOND = Replica(ReplicaId("main/1"), UpstreamName("main"), "vllm", CLOCKS)
FINE = Replica(ReplicaId("fine/0"), UpstreamName("fine"), "vllm", CLOCKS)
ALONE = Route("m", (Target(MAIN.upstream),))
Q4, Q8 = Target(TINY.upstream, ModelName("q4")), Target(FINE.upstream, ModelName("q8"))
LADDER = Resilience(ladders={"m": Ladder(smaller=Q4)})
SORRY = {"default": HeldAnswer("One moment, please.", (("Help", "https://help.example"),)), "billing": HeldAnswer("See your invoice.")}
KEEP = LeavePolicy(keep_for_s=2.0)

FIGURES = CHAT.replace(b"hello", b"Sum 12.50, 13.75 and 1,204.99, then add 17 % and round to 2 digits: 12 + 14 + 16 = ?")
CODE = CHAT.replace(b"hello", b"```python\\nimport os\\ndef main():\\n    return os.name\\n```")
SILENT = (Connect(), Respond())
SLOW = (Connect(), Respond(), Output(0.8), Output(), Complete())
THROTTLED = (Connect(), Reject(429, retry_after_s=1))
DOWN = (Connect(), Reject(503))
CRASH_WHOLE = (Connect(), Reject(500))
CODE_STREAM = CODE.replace(b'"max_tokens":100', b'"max_tokens":100,"stream":true')
OFF = Resilience()


class _Faq:
    """Implements `ports.RuleBook`."""

    def decide(self, question: str, feature: str) -> str | None:
        return f"Known ({feature})." if question == "hello" else None


def place(
    *requests: ScriptedRequest,
    resilience: Resilience,
    replicas: tuple[Replica, ...] = (MAIN, STANDBY),
    route: Route = BOTH,
    retry: RetryPolicy | None = None,
    reports: tuple[HealthReport, ...] = (),
    drain_at_s: float | None = None,
) -> Scenario:
    principal = Principal(KeyId("k"), TenantId("t"), UserId("u"), limits=NO_LIMITS)
    return Scenario(
        requests,
        {"key": principal},
        replicas,
        (route,),
        retry=retry or RetryPolicy(),
        resilience=resilience,
        reports=reports,
        drain_at_s=drain_at_s,
    )


def _lone(body: bytes, *calls: Script, resilience: Resilience = OFF, leaves_after_s: float | None = None) -> Scenario:
    """One request, and one replica that can serve it."""
    request = ScriptedRequest(0.0, body, calls=calls, leaves_after_s=leaves_after_s)
    return place(request, resilience=resilience, replicas=(MAIN,), route=ALONE)


def _ladder(body: bytes, *calls: Script, replicas: tuple[Replica, ...] = (MAIN, TINY), route: Route = ALONE) -> Scenario:
    return place(ScriptedRequest(0.0, body, calls=calls), resilience=LADDER, replicas=replicas, route=route)


RETRY_STORIES: dict[str, Story] = {
    "a failure beyond the retry budget": Story(
        place(ScriptedRequest(0.0, CHAT, calls=(DOWN,)), resilience=Resilience(budget_floor=0)), (Outcome.FAILED_UPSTREAM,), ((("",)),)
    ),
    "a short pause that an upstream asks for": Story(_lone(CHAT, THROTTLED, ANSWER), (Outcome.OK,), (("", "same"),), (None,)),
    "a pause asked for twice is waited for once": Story(_lone(CHAT, THROTTLED, THROTTLED), (Outcome.FAILED_UPSTREAM,), (("", "same"),)),
    "a pause that is too long": Story(_lone(CHAT, (Connect(), Reject(429, retry_after_s=3))), (Outcome.FAILED_UPSTREAM,), (("",),)),
    "two targets that ask for a pause": Story(
        place(ScriptedRequest(0.0, CHAT, calls=(THROTTLED, THROTTLED, ANSWER)), resilience=OFF), (Outcome.OK,), (("", "next", "next"),)
    ),
    "a pool whose breakers are open": Story(
        place(
            ScriptedRequest(0.0, CHAT, calls=(REFUSED, REFUSED)), ScriptedRequest(0.5, CHAT), resilience=OFF, replicas=(MAIN,), route=ALONE
        ),
        (Outcome.FAILED_UPSTREAM, Outcome.REJECTED_NO_REPLICA),
    ),
    "a replica that does not come back during the pause": Story(
        place(
            ScriptedRequest(0.0, CHAT, calls=(RESET,)),
            resilience=OFF,
            replicas=(MAIN,),
            route=ALONE,
            reports=(HealthReport(0.0302, MAIN.replica, alive=False, reason="silent"),),
            retry=RetryPolicy(base_delay_s=5.0, max_delay_s=5.0),
        ),
        (Outcome.FAILED_UPSTREAM,),
        (("",),),
    ),
    "every rung of a ladder": Story(
        _ladder(CHAT, RESET, RESET, RESET, ANSWER),
        (Outcome.OK,),
        (("", "same", "shorter", "smaller"),),
        ("L1; reason=smaller_model; upstream=tiny",),
    ),
    "a shorter answer is enough": Story(
        _ladder(STREAM, DOWN, DOWN, STREAMED), (Outcome.OK,), (("", "same", "shorter"),), ("L1; reason=shortened",)
    ),
    "a ladder keeps its last attempt for the standby": Story(
        _ladder(CHAT, RESET, RESET, RESET, ANSWER, replicas=(MAIN, TINY, STANDBY), route=BOTH),
        (Outcome.OK,),
        (("", "same", "shorter", "next"),),
        ("L1; reason=standby; upstream=standby",),
    ),
    "a ladder on a pool changes replicas": Story(
        _ladder(CHAT, RESET, RESET, ANSWER, replicas=(MAIN, SECOND, TINY)), (Outcome.OK,), (("", "same", "shorter"),)
    ),
    "a dead server is not asked for less": Story(_ladder(CHAT, REFUSED, ANSWER), (Outcome.OK,), (("", "smaller"),)),
    "a ladder with nothing but a dead server": Story(
        place(ScriptedRequest(0.0, CHAT, calls=(REFUSED, ANSWER)), resilience=LADDER, replicas=(MAIN,), route=ALONE),
        (Outcome.OK,),
        (("", "same"),),
    ),
    "a time-out is not repeated, but asked for less": Story(_ladder(CHAT, (Connect(),), ANSWER), (Outcome.OK,), (("", "shorter"),)),
    "a stream that never began goes to the smaller model": Story(_ladder(STREAM, SILENT, STREAMED), (Outcome.OK,), (("", "smaller"),)),
    "an upstream without the model goes to the smaller one": Story(
        _ladder(CHAT, (Connect(), Reject(404)), ANSWER), (Outcome.OK,), (("", "smaller"),)
    ),
    "a prompt with figures goes to the finer model": Story(
        place(
            ScriptedRequest(0.0, FIGURES, calls=(REFUSED, ANSWER)),
            resilience=Resilience(ladders={"m": Ladder(smaller=Q4, smaller_precise=Q8)}),
            replicas=(MAIN, TINY, FINE),
            route=ALONE,
        ),
        (Outcome.OK,),
        (("", "smaller"),),
        ("L1; reason=smaller_model; upstream=fine",),
    ),
    "a prompt in words goes to the coarser model": Story(
        place(
            ScriptedRequest(0.0, CHAT, calls=(REFUSED, ANSWER)),
            resilience=Resilience(ladders={"m": Ladder(smaller=Q4, smaller_precise=Q8)}),
            replicas=(MAIN, TINY, FINE),
            route=ALONE,
        ),
        (Outcome.OK,),
        (("", "smaller"),),
        ("L1; reason=smaller_model; upstream=tiny",),
    ),
    "a ladder without a smaller model": Story(
        place(ScriptedRequest(0.0, CHAT, calls=(REFUSED, REFUSED, ANSWER)), resilience=Resilience(ladders={"m": Ladder()}), route=BOTH),
        (Outcome.OK,),
        (("", "next", "same"),),
    ),
    "a ladder whose smaller model fails too": Story(
        _ladder(CHAT, REFUSED, DOWN, ANSWER, replicas=(MAIN, TINY, STANDBY), route=BOTH), (Outcome.OK,), (("", "smaller", "next"),)
    ),
    "a ladder that asks a vendor that refuses the usage option": Story(
        _ladder(STREAM, DOWN, (Connect(), Reject(400, body=NO_USAGE_OPTION)), STREAMED), (Outcome.OK,), (("", "same", "same"),)
    ),
    "an embedding has no ladder": Story(
        place(
            ScriptedRequest(0.0, EMBEDDING, Operation.EMBEDDING, calls=(RESET, RESET)),
            resilience=LADDER,
            replicas=(MAIN, TINY),
            route=ALONE,
        ),
        (Outcome.FAILED_UPSTREAM,),
        (("", "same"),),
    ),
    "a throttled target on a ladder": Story(_ladder(CHAT, THROTTLED, ANSWER), (Outcome.OK,), (("", "smaller"),)),
}

LOST_STORIES: dict[str, Story] = {
    "a replica found dead before its first output": Story(
        place(
            ScriptedRequest(0.0, STREAM, calls=(SILENT, STREAMED)),
            resilience=Resilience(budget_floor=0),
            reports=(HealthReport(0.5, MAIN.replica, alive=False, reason="silent"), HealthReport(0.6, MAIN.replica, alive=False)),
        ),
        (Outcome.OK,),
        (("", "next"),),
        ("L1; reason=standby; upstream=standby",),
    ),
    "a replica found dead under a whole answer": Story(
        place(
            ScriptedRequest(0.0, CHAT, calls=((Connect(),), ANSWER)),
            ScriptedRequest(0.7, CHAT, calls=(ANSWER,)),
            ScriptedRequest(1.5, CHAT, calls=(ANSWER,)),
            resilience=OFF,
            reports=(HealthReport(0.5, MAIN.replica, alive=False, reason="silent"), HealthReport(1.0, MAIN.replica, alive=True)),
        ),
        (Outcome.OK, Outcome.OK, Outcome.OK),
        (("", "next"), ("",), ("",)),
        ("L1; reason=standby; upstream=standby", "L1; reason=standby; upstream=standby", None),
    ),
    "a replica found dead in the middle of a stream": Story(
        place(
            ScriptedRequest(0.0, STREAM, calls=((Connect(), Respond(), Output(), Output(1.0), Complete()),)),
            resilience=OFF,
            reports=(HealthReport(0.5, MAIN.replica, alive=False, reason="silent"),),
        ),
        (Outcome.OK,),
    ),
    "another replica found dead": Story(
        place(
            ScriptedRequest(0.0, STREAM, calls=((Connect(), Respond(1.0), Output(), Complete()),)),
            ScriptedRequest(5.0, STREAM, calls=(STREAMED,)),
            resilience=OFF,
            reports=(HealthReport(0.5, STANDBY.replica, alive=False, reason="silent"),),
        ),
        (Outcome.OK, Outcome.OK),
    ),
    "the only replica found dead": Story(
        place(
            ScriptedRequest(0.0, CHAT, calls=((Connect(),),)),
            ScriptedRequest(1.0, CHAT),
            resilience=OFF,
            replicas=(MAIN,),
            route=ALONE,
            reports=(HealthReport(0.5, MAIN.replica, alive=False, reason="silent"),),
        ),
        (Outcome.FAILED_UPSTREAM, Outcome.REJECTED_NO_REPLICA),
    ),
}

DRAIN = Resilience(leave={MAIN.upstream: KEEP})
DETACH = Resilience(leave={MAIN.upstream: LeavePolicy(keep_for_s=None)})
LEAVE_STORIES: dict[str, Story] = {
    "a client that leaves a stream which is drained": Story(
        _lone(STREAM, SLOW, resilience=DRAIN, leaves_after_s=0.5), (Outcome.CLIENT_CANCELLED,)
    ),
    "a client that leaves in the middle of a drained stream": Story(
        _lone(STREAM, STREAMED, resilience=DRAIN, leaves_after_s=0.115), (Outcome.CLIENT_CANCELLED,)
    ),
    "a client that leaves an answer which is drained": Story(
        _lone(CHAT, (Connect(), Respond(), Complete(1.0)), resilience=DRAIN, leaves_after_s=0.5), (Outcome.CLIENT_CANCELLED,)
    ),
    "a drain that takes too long": Story(_lone(CHAT, (Connect(),), resilience=DRAIN, leaves_after_s=0.5), (Outcome.CLIENT_CANCELLED,)),
    "a detached call ends by its own clocks": Story(
        _lone(STREAM, SILENT, resilience=DETACH, leaves_after_s=0.5), (Outcome.CLIENT_CANCELLED,), (("",),)
    ),
    "a detached call that fails is not tried again": Story(
        _lone(CHAT, (Connect(), Reject(503, after_s=1.0)), resilience=DETACH, leaves_after_s=0.5), (Outcome.CLIENT_CANCELLED,), (("",),)
    ),
    "a detached stream that breaks after some output": Story(
        _lone(STREAM, (Connect(), Respond(), Output(0.8), Cut(0.5)), resilience=DETACH, leaves_after_s=0.5), (Outcome.CLIENT_CANCELLED,)
    ),
    "a shutdown during a drain": Story(
        place(
            ScriptedRequest(0.0, CHAT, calls=((Connect(),),), leaves_after_s=0.5),
            resilience=DETACH,
            replicas=(MAIN,),
            route=ALONE,
            drain_at_s=1.0,
        ),
        (Outcome.CLIENT_CANCELLED,),
    ),
    "a replica found dead during a drain": Story(
        place(
            ScriptedRequest(0.0, STREAM, calls=(SILENT,), leaves_after_s=0.5),
            resilience=DRAIN,
            reports=(HealthReport(1.0, MAIN.replica, alive=False, reason="silent"),),
        ),
        (Outcome.CLIENT_CANCELLED,),
        (("",),),
    ),
    "a client that leaves another upstream": Story(
        place(ScriptedRequest(0.0, STREAM, calls=(REFUSED, STREAMED), leaves_after_s=0.1), resilience=DRAIN), (Outcome.CLIENT_CANCELLED,)
    ),
}

EARLY = Resilience(commit_after_s=0.5)
COMMIT_STORIES: dict[str, Story] = {
    "a stream committed before its first output": Story(_lone(STREAM, SLOW, resilience=EARLY), (Outcome.OK,)),
    "a stream committed early that says nothing": Story(
        _lone(STREAM, (Connect(), Respond(), Complete(0.9)), resilience=EARLY), (Outcome.OK,)
    ),
    "a stream that is quick enough": Story(_lone(STREAM, STREAMED, resilience=EARLY), (Outcome.OK,)),
    "a whole answer is never committed early": Story(_lone(CHAT, (Connect(), Respond(), Complete(0.9)), resilience=EARLY), (Outcome.OK,)),
    "a failure after an early commit": Story(
        place(ScriptedRequest(0.0, STREAM, calls=((Connect(), Reject(503, after_s=1.0)),)), resilience=EARLY),
        (Outcome.FAILED_MID_STREAM,),
        (("",),),
    ),
    "a time-out after an early commit": Story(_lone(STREAM, SILENT, resilience=EARLY), (Outcome.FAILED_MID_STREAM,)),
    "a dead replica after an early commit": Story(
        place(
            ScriptedRequest(0.0, STREAM, calls=(SLOW,)),
            resilience=EARLY,
            reports=(HealthReport(0.7, MAIN.replica, alive=False, reason="silent"),),
        ),
        (Outcome.OK,),
    ),
    "a commit that falls into a pause": Story(
        place(
            ScriptedRequest(0.0, STREAM, calls=(RESET, SLOW)),
            resilience=Resilience(commit_after_s=0.031),
            replicas=(MAIN,),
            route=ALONE,
        ),
        (Outcome.OK,),
        (("", "same"),),
    ),
    "a client that leaves after an early commit": Story(
        _lone(STREAM, SLOW, resilience=EARLY, leaves_after_s=0.7), (Outcome.CLIENT_CANCELLED,)
    ),
    "a shutdown after an early commit": Story(
        place(ScriptedRequest(0.0, STREAM, calls=(SLOW,)), resilience=EARLY, drain_at_s=0.7), (Outcome.FAILED_MID_STREAM,)
    ),
    "a drain of a stream that was committed early": Story(
        _lone(STREAM, SLOW, resilience=Resilience(commit_after_s=0.5, leave={MAIN.upstream: KEEP}), leaves_after_s=0.7),
        (Outcome.CLIENT_CANCELLED,),
    ),
}

HOLD = Resilience(holding=SORRY)
KINDS = Resilience(classes={"m": ClassSettings(Target(STANDBY.upstream, ModelName("small")), min_calls=3, recover_after_s=30.0)})
DEGRADED_STORIES: dict[str, Story] = {
    "a prepared answer, whole": Story(_lone(CHAT, DOWN, DOWN, resilience=HOLD), (Outcome.DEGRADED,), None, ("L2; reason=holding",)),
    "a prepared answer, as a stream": Story(_lone(STREAM, DOWN, DOWN, resilience=HOLD), (Outcome.DEGRADED,), None, ("L2; reason=holding",)),
    "a prepared answer when nobody is there": Story(
        place(
            ScriptedRequest(1.0, CHAT, feature="billing"),
            resilience=HOLD,
            replicas=(MAIN,),
            route=ALONE,
            reports=(HealthReport(0.5, MAIN.replica, alive=False, reason="silent"),),
        ),
        (Outcome.DEGRADED,),
        None,
        ("L2; reason=holding",),
    ),
    "a client that reads JSON gets an error and no sentence": Story(
        _lone(CHAT[:-1] + b',"response_format":{"type":"json_object"}}', DOWN, DOWN, resilience=HOLD), (Outcome.FAILED_UPSTREAM,)
    ),
    "a prepared answer after a time-out": Story(_lone(CHAT, (Connect(),), resilience=HOLD), (Outcome.DEGRADED,)),
    "a verdict on the request is not covered up": Story(
        _lone(CHAT, (Connect(), Reject(400)), resilience=HOLD), (Outcome.REJECTED_UPSTREAM,)
    ),
    "a content filter is not covered up": Story(
        _lone(CHAT, (Connect(), Reject(400, body=FILTERED)), resilience=HOLD), (Outcome.CONTENT_FILTER,)
    ),
    "an embedding gets its error": Story(
        place(ScriptedRequest(0.0, EMBEDDING, Operation.EMBEDDING, calls=(DOWN, DOWN)), resilience=HOLD, replicas=(MAIN,), route=ALONE),
        (Outcome.FAILED_UPSTREAM,),
    ),
    "a feature for which nothing is prepared": Story(
        _lone(CHAT, DOWN, DOWN, resilience=Resilience(holding={"billing": HeldAnswer("See your invoice.")})), (Outcome.FAILED_UPSTREAM,)
    ),
    "an outage that goes on, and ends": Story(
        place(
            *(ScriptedRequest(at_s, CHAT, calls=(DOWN, DOWN)) for at_s in (0.0, 20.0, 70.0)),
            ScriptedRequest(90.0, FIGURES, calls=(DOWN, DOWN)),
            ScriptedRequest(140.0, CHAT, calls=(ANSWER,)),
            ScriptedRequest(160.0, CHAT, calls=(DOWN, DOWN)),
            resilience=Resilience(holding=SORRY, rule_book=_Faq()),
            replicas=(MAIN,),
            route=ALONE,
        ),
        (Outcome.DEGRADED, Outcome.DEGRADED, Outcome.DEGRADED, Outcome.DEGRADED, Outcome.OK, Outcome.DEGRADED),
        None,
        ("L2; reason=holding", "L2; reason=holding", "L3; reason=rules", "L3; reason=hand_over", None, "L2; reason=holding"),
    ),
    "a kind of prompt that keeps failing": Story(
        place(
            *(ScriptedRequest(number * 1.0, CHAT, calls=(ANSWER,)) for number in range(6)),
            *(ScriptedRequest(6.0 + number, CODE, calls=(CRASH_WHOLE, ANSWER)) for number in range(3)),
            ScriptedRequest(19.0, CODE, calls=(ANSWER,)),
            ScriptedRequest(20.0, CODE, calls=(ANSWER,)),
            ScriptedRequest(21.0, CHAT, calls=(ANSWER,)),
            ScriptedRequest(22.0, EMBEDDING, Operation.EMBEDDING, calls=(ANSWER,)),
            ScriptedRequest(23.0, CODE, calls=(DOWN, ANSWER)),
            ScriptedRequest(60.0, CODE, calls=(ANSWER,)),
            ScriptedRequest(61.0, CODE, calls=(ANSWER,)),
            resilience=KINDS,
        ),
        (Outcome.OK,) * 16,
        None,
        (
            *(None,) * 6,
            *("L1; reason=standby; upstream=standby",) * 3,
            *("L1; reason=prompt_class; class=code; confidence=low",) * 2,
            None,
            None,
            "L1; reason=standby; upstream=main",
            None,
            None,
        ),
    ),
    "a kind of prompt that breaks streams": Story(
        place(
            *(ScriptedRequest(number * 1.0, STREAM, calls=(STREAMED,)) for number in range(4)),
            *(ScriptedRequest(4.0 + number, CODE_STREAM, calls=((Connect(), Respond(), Output(), ErrorEvent()),)) for number in range(4)),
            resilience=KINDS,
        ),
        (*(Outcome.OK,) * 4, *(Outcome.MODEL_ERROR,) * 4),
    ),
    "a rule that sends figures elsewhere": Story(
        place(
            ScriptedRequest(0.0, CHAT, calls=(ANSWER,)),
            ScriptedRequest(1.0, FIGURES, calls=(ANSWER,)),
            ScriptedRequest(2.0, FIGURES, calls=(REFUSED, ANSWER)),
            resilience=Resilience(rules=(Rule("figures", Conditions(has=("figures",)), (Q8,)),)),
            replicas=(MAIN, FINE),
            route=ALONE,
        ),
        (Outcome.OK,) * 3,
        None,
        (None, None, "L1; reason=standby; upstream=main"),
    ),
    "a request over its budget": Story(
        place(
            ScriptedRequest(0.0, CHAT.replace(b'"max_tokens":100', b'"max_tokens":900'), calls=(ANSWER,)),
            ScriptedRequest(1.0, CHAT.replace(b'"max_tokens":100', b'"max_tokens":900'), calls=(DOWN, ANSWER)),
            resilience=Resilience(settings=(RouteSettings("m", budget=Budget(tokens=400, shortest_answer_tokens=64)),)),
        ),
        (Outcome.OK, Outcome.OK),
        None,
        ("L1; reason=over_budget", "L1; reason=over_budget; upstream=standby"),
    ),
}

RESILIENCE_STORIES = RETRY_STORIES | LOST_STORIES | LEAVE_STORIES | COMMIT_STORIES | DEGRADED_STORIES
