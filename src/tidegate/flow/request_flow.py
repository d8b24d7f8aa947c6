"""One request from its head to its record. Read this file and you have seen the system.

    authenticate -> read the body -> parse, match a route -> admit -> shape -> cache -> estimate, reserve -> call -> settle, record
                                        (a /tokenize or /v1/models request is answered after `admit`)

Laws, each a property test: one `Finish` and nothing after it; the permit is ended once; each attempt is ended once; no
attempt starts after the commit point; early or repeated timers do nothing; shifting all times by a constant changes nothing else.
"""

from __future__ import annotations

from typing import assert_never

from tidegate.domain.outcome import FinishReason, Outcome
from tidegate.domain.principal import Principal
from tidegate.domain.record import RequestRecord
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.upstream import Route, UpstreamFailure
from tidegate.domain.usage import Evidence, Usage
from tidegate.errors import ClientError, ContextLengthExceeded, Draining, InternalError, Overloaded, TidegateError, UpstreamRejected
from tidegate.flow.actions import (
    Action,
    Answer,
    Authenticate,
    CountTokens,
    Finish,
    InterruptStream,
    ReadBody,
    SendError,
)
from tidegate.flow.call_flow import CallFlow
from tidegate.flow.events import (
    AttemptCompleted,
    AttemptFailed,
    Authenticated,
    AuthenticationRefused,
    BodyReceived,
    BodyRefused,
    ClientLeft,
    DrainExpired,
    DriverFailed,
    Event,
    OutputStarted,
    TokensCounted,
)
from tidegate.flow.facts import CallResult, Policies, RequestFacts, Step
from tidegate.flow.refusals import limit_refusal, model_forbidden, model_unknown, no_replica
from tidegate.policy.metering.estimate import bound_is_enough, estimate, guess_tokens
from tidegate.ports import Denied, Permit, TokenCount
from tidegate.wire.failures import failure_to_error, interruption
from tidegate.wire.openai import model_object, models_list, parse_request, token_count_answer

_LONGEST_CAUSE = 300  # characters in a record: enough for any message of ours, and most of others


class RequestFlow:
    """Sequences one request; its `statistics` are its attributes."""

    def __init__(self, facts: RequestFacts, policies: Policies) -> None:
        self.facts = facts
        self.step = Step.AUTHENTICATION
        self.permit: Permit | None = None
        self.call: CallFlow | None = None
        self.request: ParsedRequest | None = None
        self.principal: Principal | None = None
        self.record: RequestRecord | None = None
        """Set when the flow is over; the same as in its `Finish`."""
        self._policies = policies
        self._received_at = 0.0
        self._route: Route | None = None
        self._prompt_tokens = 0
        self._evidence = Evidence.ESTIMATED
        self._reserved = 0

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
            case OutputStarted() | AttemptCompleted() | AttemptFailed():
                if self.call is None:
                    return []
                return self._after_call(self.call.receive(event, now=now), now)
            case BodyReceived(body=body):
                return self._parse(body, now) if self.step is Step.BODY else []
            case Authenticated(principal=principal):
                return self._authenticated(principal, now) if self.step is Step.AUTHENTICATION else []
            case TokensCounted(count=count):
                return self._counted(count, now) if self.step is Step.COUNT else []
            case AuthenticationRefused(error=error):
                return self._reject(error, now) if self.step is Step.AUTHENTICATION else []
            case BodyRefused(error=error):
                return self._reject(error, now) if self.step is Step.BODY else []
            case ClientLeft():
                return self._leave(Outcome.CLIENT_CANCELLED, None, now)
            case DrainExpired():
                return self._leave(Outcome.REJECTED_OVERLOAD, _draining(), now)
            case DriverFailed():
                return self._leave(Outcome.FAILED_INTERNAL, _internal(), now)
            case _:
                assert_never(event)

    def next_timer(self) -> float | None:
        return self.call.next_timer() if self.call is not None and self.step is Step.CALL else None

    def handle_timer(self, *, now: float) -> list[Action]:
        if self.call is None or self.step is not Step.CALL:
            return []
        return self._after_call(self.call.handle_timer(now=now), now)

    # ── the path ──────────────────────────────────────────────────────────────

    def _authenticated(self, principal: Principal, now: float) -> list[Action]:
        self.principal = principal
        if self.facts.operation in (Operation.MODELS, Operation.MODEL):
            return self._admit(principal, now) or self._answer_models(principal, now)
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
        return self._admit(self.principal, now) or self._shape(parsed, now)

    def _admit(self, principal: Principal, now: float) -> list[Action]:
        permit = self._policies.limits.admit(principal.key_id, principal.limits, now=now)
        if isinstance(permit, Denied):
            return self._reject(limit_refusal(permit), now)
        self.permit = permit
        return []

    def _shape(self, request: ParsedRequest, now: float) -> list[Action]:
        self.request = request = self._policies.shape(request)
        if request.operation is Operation.TOKENIZE:
            self.step = Step.COUNT
            return [CountTokens()]
        stored = self._policies.look_up(request)
        if stored is not None:
            return [Answer(stored), self._finish(Outcome.SERVED_FROM_CACHE, 200, None, None, now)]
        return self._reserve(request, now)

    def _reserve(self, request: ParsedRequest, now: float) -> list[Action]:
        """Hold tokens by the prompt's cheap bound where that is good enough and fits; else count exactly first."""
        assert self.permit is not None
        bound = request.prompt_tokens_bound
        if bound_is_enough(bound, self.permit.remaining_tokens(now=now)) and self._hold(request, bound, now) is None:
            return self._start_call(request, now)
        self.step = Step.COUNT
        return [CountTokens()]

    def _counted(self, count: TokenCount | None, now: float) -> list[Action]:
        assert self.request is not None
        if self.request.operation is Operation.TOKENIZE:
            return self._answer_count(count, now)
        prompt_tokens = guess_tokens(len(self.request.body))
        if count is not None:
            prompt_tokens = self._prompt_tokens = count.prompt_tokens
            self._evidence = Evidence.COUNTED if count.exact else Evidence.ESTIMATED
        denied = self._hold(self.request, prompt_tokens, now)
        if denied is not None:
            return self._reject(limit_refusal(denied, capped=self.request.operation is not Operation.EMBEDDING), now)
        return self._start_call(self.request, now)

    def _hold(self, request: ParsedRequest, prompt_tokens: int, now: float) -> Denied | None:
        """Hold what the request may use; nothing is held when it does not fit."""
        assert self.permit is not None
        if request.operation is Operation.EMBEDDING:
            total = prompt_tokens
        else:
            ceiling = self.permit.ceiling_tokens()
            total = estimate(prompt_tokens, request.max_completion_tokens, request.choices, ceiling=ceiling).total
        denied = self.permit.reserve(total, now=now)
        if denied is None:
            self._reserved = total
        return denied

    def _start_call(self, request: ParsedRequest, now: float) -> list[Action]:
        assert self._route is not None
        self.step = Step.CALL
        policies = self._policies
        self.call = CallFlow(request, self._route, policies.fleet, policies.retry, policies.rng)
        return self._after_call(self.call.begin(now=now), now)

    def _after_call(self, actions: list[Action], now: float) -> list[Action]:
        assert self.call is not None
        result = self.call.result
        if result is None:
            return actions
        if result.failure is None:
            return [*actions, self._finish(_outcome_of(result.finish_reason), 200, None, result, now)]
        if result.committed:
            broken = interruption(result.failure)
            outcome = Outcome.MODEL_ERROR if result.failure.in_band else Outcome.FAILED_MID_STREAM
            return [*actions, InterruptStream(broken), self._finish(outcome, 200, broken, result, now)]
        error = self._error_of(result.failure)
        outcome = _outcome_of_failure(result.failure, error) if self.call.attempts else Outcome.REJECTED_NO_REPLICA
        return [*actions, SendError(error), self._finish(outcome, error.status, error, result, now)]

    def _error_of(self, failure: UpstreamFailure) -> TidegateError:
        assert self.call is not None
        assert self.request is not None
        if self.call.attempts:
            return failure_to_error(failure)
        return no_replica(self.request.model, failure.retry_after_s)

    # ── ends ──────────────────────────────────────────────────────────────────

    def _answer_models(self, principal: Principal, now: float) -> list[Action]:
        routes = self._policies.routes
        names = [name for name in routes.listed_models if routes.allows(principal.models, name)]
        created = self._policies.models_created_at
        if self.facts.operation is Operation.MODELS:
            return [Answer(models_list(names, created)), self._finish(Outcome.OK, 200, None, None, now)]
        wanted = self.facts.path_argument
        if wanted not in names:
            return self._reject(model_unknown(wanted, names), now)
        return [Answer(model_object(wanted, created)), self._finish(Outcome.OK, 200, None, None, now)]

    def _answer_count(self, count: TokenCount | None, now: float) -> list[Action]:
        if count is None:
            error = Overloaded("The token counter did not answer in time. Try again, or send a shorter text.", retry_after_s=1.0)
            return self._reject(error, now)
        return [Answer(token_count_answer(count, None)), self._finish(Outcome.OK, 200, None, None, now)]

    def _reject(self, error: TidegateError, now: float) -> list[Action]:
        return [SendError(error), self._finish(_outcome_of_refusal(error), error.status, error, None, now)]

    def _leave(self, outcome: Outcome, error: TidegateError | None, now: float) -> list[Action]:
        """End early: the client is gone (no error to send), or the process must end."""
        actions: list[Action] = []
        committed = False
        result = None
        if self.call is not None:
            committed = self.call.first_output_at is not None
            actions += self.call.abandon(now=now)
            if actions:  # between two attempts nothing runs: then nothing was used
                result = CallResult(None, committed)
        status = 200 if committed else 0
        if error is not None:
            actions.append(InterruptStream(error) if committed else SendError(error))
            status = 200 if committed else error.status
            if committed and outcome is Outcome.REJECTED_OVERLOAD:
                outcome = Outcome.FAILED_MID_STREAM
        return [*actions, self._finish(outcome, status, error, result, now)]

    def _finish(self, outcome: Outcome, status: int, error: TidegateError | None, result: CallResult | None, now: float) -> Finish:
        self.step = Step.OVER
        usage, evidence = self._used(result)
        if self.permit is not None:
            if result is None and self.facts.operation.is_call:
                self.permit.cancel(now=now)
            else:
                self.permit.settle(usage.total_tokens, now=now)
        self.record = self._record(outcome, status, error, result, usage, evidence, now)
        return Finish(self.record)

    def _used(self, result: CallResult | None) -> tuple[Usage, Evidence]:
        """Give what the request used, by the best evidence there is."""
        call, request = self.call, self.request
        if result is None or call is None or request is None or not call.attempts:
            return Usage(), Evidence.ESTIMATED
        if result.usage is not None:
            return result.usage, Evidence.REPORTED
        if result.failure is not None and not result.committed:
            return Usage(), Evidence.ESTIMATED  # the upstream produced nothing: nothing is charged
        prompt = self._prompt_tokens or guess_tokens(len(request.body))
        completion = call.progress.chunks or guess_tokens(result.output_bytes)
        return Usage(prompt_tokens=prompt, completion_tokens=completion), self._evidence

    def _record(
        self,
        outcome: Outcome,
        status: int,
        error: TidegateError | None,
        result: CallResult | None,
        usage: Usage,
        evidence: Evidence,
        now: float,
    ) -> RequestRecord:
        facts, call, request, principal = self.facts, self.call, self.request, self.principal
        choice = call.choice if call is not None else None
        first_output_at = call.first_output_at if call is not None else None
        return RequestRecord(
            request_id=facts.request_id,
            started_at=facts.started_at,
            operation=facts.operation,
            outcome=outcome,
            status=status,
            duration_s=now - self._received_at,
            key_id=principal.key_id if principal is not None else "",
            tenant=principal.tenant if principal is not None else "",
            user=principal.user if principal is not None else "",
            tier=principal.tier if principal is not None else "",
            model=request.model if request is not None else facts.path_argument,
            route=self._route.pattern if self._route is not None else "",
            upstream=choice.replica.upstream if choice is not None else "",
            upstream_model=choice.model if choice is not None else "",
            stream=request.stream if request is not None else False,
            error_code=error.code if error is not None else None,
            cause=_cause(error, result),
            ttft_s=first_output_at - self._received_at if first_output_at is not None else None,
            upstream_s=sum(attempt.duration_s for attempt in call.attempts) if call is not None else 0.0,
            usage=usage,
            evidence=evidence,
            reserved_tokens=self._reserved,
            prompt_tokens_bound=request.prompt_tokens_bound if request is not None else 0,
            finish_reason=result.finish_reason if result is not None else None,
            chunks=call.progress.chunks if call is not None else 0,
            degraded=call.degraded if call is not None else None,
            attempts=tuple(call.attempts) if call is not None else (),
            trace_id=facts.trace_id,
            client_retry=facts.client_retry,
        )


def _cause(error: TidegateError | None, result: CallResult | None) -> str | None:
    """Give what went wrong in the words for operators: the upstream's failure, else what the client was told."""
    if result is not None and result.failure is not None:
        return result.failure.message[:_LONGEST_CAUSE]
    return error.message[:_LONGEST_CAUSE] if error is not None else None


def _draining() -> Draining:
    return Draining("This gateway process is shutting down. Send the request again: another process will take it.", retry_after_s=1.0)


def _internal() -> InternalError:
    return InternalError("A fault of the gateway ended this request. The gateway's log has the details under the same x-request-id.")


_BY_FINISH_REASON: dict[str | None, Outcome] = {
    FinishReason.LENGTH: Outcome.TRUNCATED,
    FinishReason.CONTENT_FILTER: Outcome.CONTENT_FILTER,
    FinishReason.ERROR: Outcome.MODEL_ERROR,
}


def _outcome_of(finish_reason: str | None) -> Outcome:
    return _BY_FINISH_REASON.get(finish_reason, Outcome.OK)


def _outcome_of_failure(failure: UpstreamFailure, error: TidegateError) -> Outcome:
    if failure.content_filter:
        return Outcome.CONTENT_FILTER
    if isinstance(error, UpstreamRejected | ContextLengthExceeded):
        return Outcome.REJECTED_UPSTREAM
    if failure.in_band:
        return Outcome.MODEL_ERROR
    if failure.clock is not None:
        return Outcome.FAILED_TIMEOUT
    return Outcome.FAILED_UPSTREAM


def _outcome_of_refusal(error: TidegateError) -> Outcome:
    match error.status:
        case 401:
            return Outcome.REJECTED_UNAUTHENTICATED
        case 403:
            return Outcome.REJECTED_FORBIDDEN
        case 429:
            return Outcome.REJECTED_RATE_LIMIT
        case 503:
            return Outcome.REJECTED_OVERLOAD
        case _:
            return Outcome.REJECTED_INVALID
