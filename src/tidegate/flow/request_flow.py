"""One request from its head to its record. Read this file and you have seen the system.

    authenticate -> read the body -> parse, match a route -> admit -> shape -> cache -> plan -> estimate, reserve -> call -> settle, record
                    (`admit` and `reserve` may each wait a moment for leases of limits that are shared with other processes)
                                        (a request that only counts, and /v1/models, is answered after `admit`)

The plan stands before the estimate, so that what is sent is what is reserved. A call that no target could answer ends with a prepared
answer where there is one.

Laws, each a property test: one `Finish` and nothing after it; the permit is ended once; each attempt is ended once; no
attempt starts after the commit point; early or repeated timers do nothing; shifting all times by a constant changes nothing else.
"""

from __future__ import annotations

from typing import Literal, assert_never

from msgspec.structs import replace

from tidegate.domain.demand import Demand
from tidegate.domain.limits import LimitSubject, Resource
from tidegate.domain.outcome import Outcome
from tidegate.domain.principal import Principal
from tidegate.domain.record import RequestRecord
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.upstream import Route, Target
from tidegate.domain.usage import Evidence
from tidegate.errors import ClientError, Overloaded, TidegateError
from tidegate.flow.actions import (
    Action,
    Answer,
    Authenticate,
    AwaitLease,
    CountTokens,
    Finish,
    HoldCost,
    InterruptStream,
    ReadBody,
    SendError,
    TruncateStream,
)
from tidegate.flow.allowance import Allowance, allowance_of
from tidegate.flow.call_flow import CallFlow, targets_of
from tidegate.flow.charges import charges_of, is_unbilled, with_cost
from tidegate.flow.counts import answer_count
from tidegate.flow.degrade import diverted, is_low_confidence, prepared_answer
from tidegate.flow.events import (
    AttemptCompleted,
    AttemptFailed,
    Authenticated,
    AuthenticationRefused,
    BodyReceived,
    BodyRefused,
    CallEvent,
    ClientLeft,
    DrainExpired,
    DriverFailed,
    Event,
    LeaseAnswered,
    OutputReached,
    OutputStarted,
    ReplicaLost,
    TokensCounted,
)
from tidegate.flow.facts import CallResult, Policies, RequestFacts, Step
from tidegate.flow.lease_waits import LeaseWaits
from tidegate.flow.lengths import expected_length, learn_length
from tidegate.flow.models import answer_models
from tidegate.flow.outcomes import outcome_of_answer, outcome_of_failure, outcome_of_refusal
from tidegate.flow.record import Asked, Ended, bare_record, record_of, used_by
from tidegate.flow.refusals import draining, internal_fault, limit_refusal, model_forbidden, model_unknown, no_replica
from tidegate.policy.billing.pricing import Pricing
from tidegate.policy.metering.estimate import bound_is_enough, estimate, guess_tokens
from tidegate.policy.routing.router import Plan
from tidegate.ports import Denied, Permit, Short, TokenCount
from tidegate.wire.failures import failure_to_error, interruption
from tidegate.wire.openai import parse_request


class RequestFlow:
    """Sequences one request. Its attributes without underscore say how far it is."""

    def __init__(self, facts: RequestFacts, policies: Policies) -> None:
        self.facts = facts
        self.step = Step.AUTHENTICATION
        self.permit: Permit | None = None
        self._permit_ended = False
        self.call: CallFlow | None = None
        self.request: ParsedRequest | None = None
        self.principal: Principal | None = None
        self.subject: LimitSubject | None = None
        """Whose limits apply; known in full when the request was parsed."""
        self.record: RequestRecord | None = None
        """Set when the flow is over; the same as in its `Finish`."""
        self._policies = policies
        self._received_at = 0.0
        self._route: Route | None = None
        self._plan: Plan | None = None
        self._prompt_tokens = 0
        self._prompt_counted: int | None = None
        """Tokens of the prompt that are to be held after an exact count was asked for."""
        self._waits = LeaseWaits()
        self._evidence = Evidence.ESTIMATED
        self._reserved = Demand()
        self._allowance: Allowance | None = None
        self._unbilled = False
        """Nobody pays for this request: it has its cost, and is under every limit but budgets."""
        self._cost_entered = 0
        """What the books hold for this request."""
        self._prepared: str | None = None
        """How a prepared answer is labelled, if one was given."""

    def __repr__(self) -> str:
        return f"RequestFlow({self.facts.request_id}, {self.facts.operation}, waits for {self.step})"

    # ── what a driver calls ───────────────────────────────────────────────────

    def begin(self, *, now: float) -> list[Action]:
        self._received_at = now
        return [Authenticate(self.facts.credential)]

    def receive(self, event: Event, *, now: float) -> list[Action]:
        """Take note of a fact. Facts that no longer matter (a late count, a cancelled attempt) change nothing."""
        if self.step is Step.OVER:
            return []
        match event:
            case OutputStarted() | OutputReached() | AttemptCompleted() | AttemptFailed() | ReplicaLost():
                return self._during_call(event, now)
            case BodyReceived(body=body):
                return self._parse(body, now) if self.step is Step.BODY else []
            case Authenticated(principal=principal):
                return self._authenticated(principal, now) if self.step is Step.AUTHENTICATION else []
            case TokensCounted(count=count):
                return self._counted(count, now) if self.step is Step.COUNT else []
            case LeaseAnswered():
                return self._lease_answered(now) if self.step is Step.LEASE else []
            case AuthenticationRefused(error=error):
                return self._reject(error, now) if self.step is Step.AUTHENTICATION else []
            case BodyRefused(error=error):
                return self._reject(error, now) if self.step is Step.BODY else []
            case ClientLeft():
                return self._leave(Outcome.CLIENT_CANCELLED, None, now)
            case DrainExpired():
                return self._leave(Outcome.REJECTED_OVERLOAD, draining(), now)
            case DriverFailed():
                return self._leave(Outcome.FAILED_INTERNAL, internal_fault(), now)
            case _:
                assert_never(event)

    def next_timer(self) -> float | None:
        return self.call.next_timer() if self.call is not None and self.step is Step.CALL else None

    def handle_timer(self, *, now: float) -> list[Action]:
        if self.call is None or self.step is not Step.CALL:
            return []
        return self._after_call(self.call.handle_timer(now=now), now)

    def abandon(self, *, now: float) -> None:
        """End after a fault in the end itself, by what is certain: no policy is asked any more, and there is a record."""
        self.step = Step.OVER
        record = self.record
        if record is None:
            self.record = bare_record(self.facts, self.principal, self.request, duration_s=now - self._received_at)
        else:
            self.record = replace(record, outcome=Outcome.FAILED_INTERNAL)
        self._end_permit(None, now)

    # ── the path ──────────────────────────────────────────────────────────────

    def _authenticated(self, principal: Principal, now: float) -> list[Action]:
        self.principal = principal
        self.subject = LimitSubject(principal.key_id, principal.tenant, principal.user, principal.tier, self.facts.feature)
        if self.facts.color:
            self._unbilled = is_unbilled(self._policies.unbilled, self.facts.color, principal.tenant)
        if self.facts.operation in (Operation.MODELS, Operation.MODEL):
            return self._admit(principal, now)
        self.step = Step.BODY
        return [ReadBody()]

    def _parse(self, body: bytes, now: float) -> list[Action]:
        assert self.principal is not None
        parsed = parse_request(self.facts.operation, body)
        if isinstance(parsed, ClientError):
            return self._reject(parsed, now)
        self.request = parsed
        self._route = self._policies.routes.match(parsed.model)
        if self._route is None:
            return self._reject(model_unknown(parsed.model, self._policies.routes.listed_models), now)
        if not self._policies.routes.allows(self.principal.models, parsed.model):
            return self._reject(model_forbidden(parsed.model), now)
        key, tenant, user, tier = self.principal.key_id, self.principal.tenant, self.principal.user, self.principal.tier
        self.subject = LimitSubject(key, tenant, user, tier, self.facts.feature, parsed.model, self._route.pattern)
        return self._admit(self.principal, now)

    def _admit(self, principal: Principal, now: float) -> list[Action]:
        assert self.subject is not None
        permit = self._policies.limits.admit(self.subject, principal.limits, now=now)
        if isinstance(permit, Short):
            if self._waits.may_wait:
                return self._await_lease(now)
            permit = permit.denied
        if isinstance(permit, Denied):
            return self._reject(limit_refusal(permit), now)
        self.permit = permit
        self._waits.pass_gate()
        return self._answer_models(principal, now) if self.request is None else self._shape(self.request, now)

    def _await_lease(self, now: float) -> list[Action]:
        self.step = Step.LEASE
        return [AwaitLease(self._waits.begin(now=now))]

    def _lease_answered(self, now: float) -> list[Action]:
        """Ask again for what the leases did not cover."""
        self._waits.end(now=now)
        assert self.principal is not None
        if self.permit is None:
            return self._admit(self.principal, now)
        assert self.request is not None
        return self._reserve(self.request, now) if self._prompt_counted is None else self._reserve_counted(self.request, now)

    def _shape(self, request: ParsedRequest, now: float) -> list[Action]:
        self.request = request = self._policies.shape(request)
        if self.facts.operation.is_count:
            self.step = Step.COUNT
            return [CountTokens()]
        stored = self._policies.look_up(request)
        if stored is not None:
            return [Answer(stored), self._finish(Outcome.SERVED_FROM_CACHE, 200, None, None, now)]
        self._plan_call(request, now)
        return self._reserve(request, now)

    def _plan_call(self, request: ParsedRequest, now: float) -> None:
        assert self._route is not None
        assert self.principal is not None
        policies, route = self._policies, self._route
        self._plan = policies.router.plan(request, route, self.principal, self.facts.feature, policies.fleet, now=now)
        if policies.classes is not None and policies.classes.watches(route.pattern):
            self._plan = diverted(self._plan, policies.classes, policies.router, request, route, now=now)

    def _reserve(self, request: ParsedRequest, now: float) -> list[Action]:
        """Hold tokens by the prompt's cheap bound where that is good enough and fits; else count exactly first."""
        assert self.permit is not None
        bound = request.prompt_tokens_bound
        if bound_is_enough(bound, self.permit.remaining_tokens(now=now)):
            assert self._plan is not None
            refused = self._hold(request, bound, self._plan.route.targets[0], now)
            if refused is None:
                return self._start_call(request, now)
            if isinstance(refused, Short) and self._waits.may_wait:
                return self._await_lease(now)
        self.step = Step.COUNT
        return [CountTokens()]

    def _counted(self, count: TokenCount | None, now: float) -> list[Action]:
        assert self.request is not None
        if self.facts.operation.is_count:
            return self._answer_count(count, now)
        prompt_tokens = guess_tokens(len(self.request.body))
        if count is not None:
            prompt_tokens = self._prompt_tokens = count.prompt_tokens
            self._evidence = Evidence.COUNTED if count.exact else Evidence.ESTIMATED
        self._prompt_counted = prompt_tokens
        return self._reserve_counted(self.request, now)

    def _reserve_counted(self, request: ParsedRequest, now: float) -> list[Action]:
        assert self._prompt_counted is not None
        refused = self._hold_somewhere(request, self._prompt_counted, now)
        if refused is None:
            return self._start_call(request, now)
        if isinstance(refused, Short):
            if self._waits.may_wait:
                return self._await_lease(now)
            refused = refused.denied
        return self._reject(limit_refusal(refused, capped=request.operation is not Operation.EMBEDDING), now)

    def _hold_somewhere(self, request: ParsedRequest, prompt_tokens: int, now: float) -> Denied | Short | None:
        """Hold what the request may use at the first target that its budgets can pay; where there is none, the cheapest says what it lacks.

        The call passes over those before it in the same way: see `CallFlow`.
        """
        assert self._plan is not None
        refused: Denied | None = None
        for target in targets_of(self._plan.route, request):
            denied = self._hold(request, prompt_tokens, target, now)
            if not isinstance(denied, Denied) or denied.resource is not Resource.COST:
                return denied
            refused = denied if refused is None or denied.requested < refused.requested else refused
        return refused

    def _hold(self, request: ParsedRequest, prompt_tokens: int, target: Target, now: float) -> Denied | Short | None:
        """Hold what the request may use, at what a target costs; nothing is held when it does not fit."""
        assert self.permit is not None
        assert self.subject is not None
        demand = Demand(prompt_tokens)
        if request.operation is not Operation.EMBEDDING:
            cap, permit = self._cap(request), self.permit
            ceiling, output_ceiling = permit.ceiling_tokens(), permit.ceiling_output_tokens()
            expected = expected_length(self._policies.forecast, self.subject, request, cap, now=now)
            likely = estimate(prompt_tokens, cap, request.choices, ceiling=ceiling, output_ceiling=output_ceiling, expected=expected)
            demand = Demand(likely.prompt_tokens, likely.completion_tokens)
        demand = with_cost(demand, self._billed_by(), request, target, at=self.facts.started_at)
        refused = self.permit.reserve(demand, now=now)
        if refused is None:
            self._reserved = demand
        return refused

    def _billed_by(self) -> Pricing | None:
        """Give what tells how much of budgets and books is to be held."""
        return None if self._unbilled else self._policies.pricing

    def _cap(self, request: ParsedRequest) -> int | None:
        assert self._plan is not None
        changes = self._plan.changes
        return request.max_completion_tokens if changes is None or changes.max_completion_tokens is None else changes.max_completion_tokens

    def _start_call(self, request: ParsedRequest, now: float) -> list[Action]:
        plan, permit, facts = self._plan, self.permit, self.facts
        assert plan is not None
        assert permit is not None
        self.step = Step.CALL
        pricing = self._billed_by()
        self._allowance = allowance_of(permit, self._reserved, request, self._cap(request), pricing=pricing, at=facts.started_at)
        self.call = CallFlow(
            request, plan, self._policies, allowance=self._allowance, affinity=facts.session, received_at=self._received_at
        )
        return self._after_call(self.call.begin(now=now), now)

    def _during_call(self, event: CallEvent | ReplicaLost, now: float) -> list[Action]:
        call = self.call
        if call is None:
            return []
        if isinstance(event, ReplicaLost):
            return self._after_call(call.replica_lost(event.replica, event.reason, now=now), now)
        return self._after_call(call.receive(event, now=now), now)

    def _after_call(self, actions: list[Action], now: float) -> list[Action]:
        call = self.call
        assert call is not None
        result = call.result
        if result is None:
            return self._with_cost_held(actions)
        self._learn(call, result, now)
        if call.detached:
            return [*actions, self._finish(Outcome.CLIENT_CANCELLED, 200 if call.committed else 0, None, result, now)]
        if result.denied is not None:
            return [*actions, *self._run_out(call, result, result.denied, now)]
        if result.failure is None:
            return [*actions, self._finish(outcome_of_answer(result.finish_reason), 200, None, result, now)]
        if result.committed:
            broken = interruption(result.failure)
            outcome = Outcome.MODEL_ERROR if result.failure.in_band else Outcome.FAILED_MID_STREAM
            return [*actions, InterruptStream(broken), self._finish(outcome, 200, broken, result, now)]
        return [*actions, *self._give_up(call, result, now)]

    def _with_cost_held(self, actions: list[Action]) -> list[Action]:
        """Have the books hold what the call may cost, before it begins and whenever that changes."""
        allowance = self._allowance
        if allowance is None or allowance.cost_micro == self._cost_entered:
            return actions
        assert self.principal is not None
        self._cost_entered = allowance.cost_micro
        return [HoldCost(self.principal.tenant, allowance.cost_micro), *actions]

    def _run_out(self, call: CallFlow, result: CallResult, denied: Denied, now: float) -> list[Action]:
        """A limit has nothing left: for more of an answer that flows, or for any target that could answer."""
        if result.committed:
            finish = self._finish(outcome_of_answer(result.finish_reason), 200, None, result, now)
            reason: Literal["token_limit", "budget"] = "budget" if denied.resource is Resource.COST else "token_limit"
            return [TruncateStream(reason, denied.rule, finish.record.usage), finish]
        assert self.request is not None
        error = limit_refusal(denied, capped=self.request.operation is not Operation.EMBEDDING)
        if not call.attempts:
            return self._reject(error, now)
        return [SendError(error), self._finish(outcome_of_refusal(error), error.status, error, result, now)]

    def _give_up(self, call: CallFlow, result: CallResult, now: float) -> list[Action]:
        """No target could answer, and nothing was sent yet."""
        assert self.request is not None
        assert self._route is not None
        assert result.failure is not None
        if call.attempts:
            error = failure_to_error(result.failure)
            outcome = outcome_of_failure(result.failure, error)
        else:
            error, outcome = no_replica(self.request.model, result.failure), Outcome.REJECTED_NO_REPLICA
        answer = prepared_answer(self._policies, self.facts, self.request, self._route, outcome, now=now)
        if answer is None:
            return [SendError(error), self._finish(outcome, error.status, error, result, now)]
        self._prepared = answer.degraded
        return [answer, self._finish(Outcome.DEGRADED, 200, None, result, now)]

    def _learn(self, call: CallFlow, result: CallResult, now: float) -> None:
        """Tell the policies that watch how calls end."""
        policies, plan, route = self._policies, self._plan, self._route
        assert plan is not None
        assert route is not None
        if policies.degradation is not None and result.failure is None and result.committed and not call.detached:
            policies.degradation.route_answered(route.pattern, now=now)
        if policies.forecast is not None:
            assert self.subject is not None
            assert self.request is not None
            learn_length(policies.forecast, self.subject, self.request, call, result, now=now)
        classes, failed, features = policies.classes, call.primary_failed, plan.features
        if classes is None or failed is None or features is None or is_low_confidence(plan.degraded):
            return
        classes.observe(route.pattern, features, failed=failed, now=now)

    # ── ends ──────────────────────────────────────────────────────────────────

    def _answer_models(self, principal: Principal, now: float) -> list[Action]:
        answer = answer_models(self._policies, self.facts, principal)
        if isinstance(answer, ClientError):
            return self._reject(answer, now)
        return [Answer(answer), self._finish(Outcome.OK, 200, None, None, now)]

    def _answer_count(self, count: TokenCount | None, now: float) -> list[Action]:
        if count is None:
            error = Overloaded("The token counter did not answer in time. Try again, or send a shorter text.", retry_after_s=1.0)
            return self._reject(error, now)
        assert self.request is not None
        assert self._route is not None
        assert self.principal is not None
        facts, tenant = self.facts, self.principal.tenant
        body = answer_count(self._policies, facts.operation, self.request, self._route, tenant, count, at=facts.started_at)
        return [Answer(body), self._finish(Outcome.OK, 200, None, None, now)]

    def _reject(self, error: TidegateError, now: float) -> list[Action]:
        return [SendError(error), self._finish(outcome_of_refusal(error), error.status, error, None, now)]

    def _leave(self, outcome: Outcome, error: TidegateError | None, now: float) -> list[Action]:
        """End early: the client is gone (no error to send), or the process must end."""
        call, actions = self.call, list[Action]()
        if call is None:
            status = 0 if error is None else error.status
            return [*([] if error is None else [SendError(error)]), self._finish(outcome, status, error, None, now)]
        if error is None:
            actions = [] if call.detached else call.leave(now=now)
            if call.detached:
                return actions  # it goes on for its usage: see `_after_call`
        else:
            actions = call.abandon(now=now)
        if call.detached:  # nobody is there to be told
            outcome, error = Outcome.FAILED_INTERNAL if outcome is Outcome.FAILED_INTERNAL else Outcome.CLIENT_CANCELLED, None
        status = 200 if call.committed else 0
        if error is not None and call.committed:
            actions.append(InterruptStream(error))
            outcome = Outcome.FAILED_MID_STREAM if outcome is Outcome.REJECTED_OVERLOAD else outcome
        elif error is not None:
            actions.append(SendError(error))
            status = error.status
        return [*actions, self._finish(outcome, status, error, call.result, now)]

    def _finish(self, outcome: Outcome, status: int, error: TidegateError | None, result: CallResult | None, now: float) -> Finish:
        at = self.facts.started_at
        attempts = self.call.attempts if self.call is not None else ()
        use = used_by(self.call, self.request, result, prompt_tokens=self._prompt_tokens, counted=self._evidence)
        charges = charges_of(self._policies.pricing, self.request, attempts, use.usage, at=at)
        if result is None and self.facts.operation.is_call and not any(attempt.usage.total_tokens for attempt in attempts):
            self._end_permit(None, now)
        else:
            cost_micro = 0 if self._unbilled else charges.amount_micro
            self._end_permit(Demand(use.usage.prompt_tokens, use.usage.completion_tokens, cost_micro), now)
        self.record = record_of(
            self.facts,
            principal=self.principal,
            request=self.request,
            call=self.call,
            asked=Asked(
                self._route.pattern if self._route is not None else "",
                self._plan.rule if self._plan is not None else "",
                self._reserved.tokens,
                now - self._received_at,
                self._received_at,
                self._unbilled,
            ),
            ended=Ended(outcome, status, error, result, self._prepared),
            use=use,
            charges=charges,
        )
        self.step = Step.OVER  # last, so that after a fault above the driver can still have an end
        return Finish(self.record)

    def _end_permit(self, used: Demand | None, now: float) -> None:
        """Settle the permit, or cancel it where nothing was used; once, also when a fault after it leads here again."""
        permit = self.permit
        if permit is None or self._permit_ended:
            return
        self._permit_ended = True
        if used is None:
            permit.cancel(now=now)
            return
        try:
            permit.settle(used, now=now)
        except BaseException:
            permit.cancel(now=now)  # a place that is never given back is worse than tokens that are not charged
            raise
