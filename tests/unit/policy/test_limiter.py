"""Limits of a request: its key's own and every rule it is under; admission, reservation, and what is given back."""

from __future__ import annotations

import msgspec
import pytest

from tidegate.domain.demand import Demand
from tidegate.domain.limits import (
    CounterSpec,
    LimitMode,
    LimitRule,
    LimitSubject,
    Meter,
    Period,
    Resource,
    Scope,
    ScopeMatch,
    StoreDown,
)
from tidegate.domain.principal import Limits
from tidegate.domain.units import KeyId, ModelName, TenantId, UserId
from tidegate.policy.metering.counter import Counter, CounterStatistics
from tidegate.policy.metering.limiter import Limiter, applies, counter_name, whose
from tidegate.policy.metering.local_counters import LocalCounters
from tidegate.policy.metering.permit import LimiterPermit
from tidegate.policy.metering.sliding_window import SlidingWindow
from tidegate.ports import Denied, LimitState, LimitStatistics, RuleStatistics, Short, WindowState

SUBJECT = LimitSubject(KeyId("k1"), TenantId("acme"), UserId("u"), "gold", "chat", ModelName("m"), "m*")
LIMITS = Limits(tokens_per_minute=1000, requests_per_minute=5, concurrency=2)
NONE = Limits()


def rule(
    name: str,
    resource: Resource = Resource.TOKENS,
    ceiling: int = 1000,
    *scopes: ScopeMatch,
    meter: Meter = Meter.SLIDING,
    mode: LimitMode = LimitMode.ENFORCE,
) -> LimitRule:
    return LimitRule(name, resource, CounterSpec(meter, ceiling, burst=ceiling), scopes or (ScopeMatch(Scope.TENANT),), mode)


def limiter(*rules: LimitRule, workers: int = 1) -> Limiter:
    return Limiter(LocalCounters(workers=workers), rules)


def admit(store: Limiter, limits: Limits = LIMITS, *, subject: LimitSubject = SUBJECT, now: float = 0.0) -> LimiterPermit:
    permit = store.admit(subject, limits, now=now)
    assert isinstance(permit, LimiterPermit)
    return permit


def used(store: Limiter, name: str, spec: CounterSpec, *, now: float = 0.0) -> int:
    return spec.ceiling - store._source.counter(name, spec, StoreDown.DENY, now=now).available(now=now)


def other(**changes: str) -> LimitSubject:
    return msgspec.structs.replace(SUBJECT, **changes)


# ── a key's own ceilings ──────────────────────────────────────────────────────


def test_of_two_hundred_calls_at_a_limit_worth_ten_ten_are_admitted() -> None:
    """The check and the reservation are one step, so calls that have not answered yet count."""
    store = limiter()
    permits = [admit(store, Limits(tokens_per_minute=1000)) for _ in range(200)]
    assert sum(permit.reserve(Demand(60, 40), now=0.0) is None for permit in permits) == 10


def test_concurrency_is_refused_beyond_the_ceiling_and_returns() -> None:
    """The third call waits for one of the two to end."""
    store = limiter()
    first, _second = admit(store), admit(store)
    refused = Denied("key-concurrency", Resource.CONCURRENCY, 2, 0, 1, 1.0, "this key", CounterSpec(Meter.PLACES, 2))
    assert store.admit(SUBJECT, LIMITS, now=0.0) == refused
    first.settle(Demand(), now=0.0)
    admit(store)


def test_requests_are_refused_with_the_true_wait() -> None:
    """The sixth request of a minute may come when the first one leaves the window."""
    store = limiter()
    for second in range(5):
        admit(store, now=float(second)).settle(Demand(), now=float(second))
    denied = store.admit(SUBJECT, LIMITS, now=10.0)
    assert isinstance(denied, Denied)
    assert (denied.rule, denied.resource, denied.ceiling, denied.remaining, denied.requested) == ("key-requests", "requests", 5, 0, 1)
    assert denied.retry_after_s == pytest.approx(50.1)
    assert store.statistics(now=10.0).rules[1] == RuleStatistics("key-requests", denied=1)


def test_of_several_limits_on_requests_the_scarcest_is_shown_and_the_first_of_equals_refuses() -> None:
    """One that has more left, or that refuses no longer, changes nothing of what is said."""
    store = limiter(rule("a", Resource.REQUESTS, 1), rule("b", Resource.REQUESTS, 1), rule("wide", Resource.REQUESTS, 9))
    requests = store.state(SUBJECT, NONE, now=0.0).requests
    assert requests is not None
    assert ("a", 1) == (requests.rule, requests.remaining)
    admit(store, NONE)
    refused = store.admit(SUBJECT, NONE, now=0.0)
    assert isinstance(refused, Denied)
    assert refused.rule == "a"


def test_a_refusal_consumes_nothing_anywhere() -> None:
    """A call refused by its tokens gives its request and its place back."""
    store = limiter()
    before = store.state(SUBJECT, LIMITS, now=0.0)
    for _ in range(20):
        permit = admit(store)
        spec = CounterSpec(Meter.SLIDING, 1000)
        assert permit.reserve(Demand(1001), now=0.0) == Denied("key-tokens", Resource.TOKENS, 1000, 1000, 1001, None, "this key", spec)
        permit.cancel(now=0.0)
    assert store.state(SUBJECT, LIMITS, now=0.0) == before
    assert (store.outstanding, store.held_tokens) == (0, 0)
    assert [one for one in store.statistics(now=0.0).rules if one.denied] == [RuleStatistics("key-tokens", denied=20)]


def test_a_refusal_that_an_exact_count_undid_is_none() -> None:
    """Statistics tell of requests refused, not of attempts to reserve."""
    store = limiter()
    permit = admit(store)
    assert permit.reserve(Demand(2000), now=0.0) is not None
    assert permit.reserve(Demand(200), now=0.0) is None
    permit.settle(Demand(200), now=0.0)
    assert sum(one.denied for one in store.statistics(now=0.0).rules) == 0


def test_settling_returns_what_was_not_used_and_charges_what_was_used_beyond() -> None:
    """The window ends with the true use, whichever way the estimate was wrong."""
    store = limiter()
    low, high = admit(store), admit(store)
    low.reserve(Demand(400, 100), now=0.0)
    high.reserve(Demand(100), now=0.0)
    assert store.held_tokens == 600
    low.settle(Demand(100, 20), now=1.0)
    high.settle(Demand(100, 150), now=1.0)
    tokens = store.state(SUBJECT, LIMITS, now=1.0).tokens
    assert tokens is not None
    assert (tokens.ceiling, tokens.remaining, tokens.rule) == (1000, 630, "key-tokens")
    assert tokens.reset_s == pytest.approx(60.1)
    assert store.held_tokens == 0


def test_use_without_a_reservation_is_charged() -> None:
    """What was never held is use all the same."""
    store = limiter()
    permit = admit(store)
    permit.settle(Demand(300), now=0.0)
    assert used(store, "key-tokens;key=k1", CounterSpec(Meter.SLIDING, 1000)) == 300


def test_a_permit_ends_once() -> None:
    """Ending twice is a broken contract, and so is a reservation after the end or a second one."""
    store = limiter()
    permit = admit(store)
    permit.reserve(Demand(1), now=0.0)
    with pytest.raises(AssertionError):
        permit.reserve(Demand(1), now=0.0)
    assert repr(permit) == "LimiterPermit(held_tokens=1, ended=False)"
    permit.settle(Demand(1), now=0.0)
    for again in (permit.reserve, permit.move, permit.settle):
        with pytest.raises(AssertionError):
            again(Demand(1), now=0.0)
    with pytest.raises(AssertionError):
        admit(store).move(Demand(1), now=0.0)


def test_without_ceilings_nothing_is_refused_and_nothing_reported() -> None:
    """A key without limits has no windows to report."""
    store = limiter()
    permit = admit(store, NONE)
    assert permit.remaining_tokens(now=0.0) is None
    assert (permit.ceiling_tokens(), permit.ceiling_output_tokens()) == (None, None)
    assert permit.reserve(Demand(10**9), now=0.0) is None
    assert store.state(SUBJECT, NONE, now=0.0) == LimitState(requests=None, tokens=None)
    permit.cancel(now=0.0)


def test_a_key_that_never_called_has_its_whole_limit() -> None:
    """State of an unknown key is a full window."""
    requests, tokens = WindowState(5, 5, 0.0, "key-requests"), WindowState(1000, 1000, 0.0, "key-tokens")
    assert limiter().state(SUBJECT, LIMITS, now=0.0) == LimitState(requests, tokens, (requests, tokens))


def test_workers_share_every_ceiling() -> None:
    """Four workers together give the limit once, and clients see the whole limit."""
    store = limiter(workers=4)
    permit = admit(store, Limits(tokens_per_minute=1000, concurrency=2))
    assert permit.ceiling_tokens() == 250
    assert permit.reserve(Demand(200), now=0.0) is None
    assert permit.remaining_tokens(now=0.0) == 50
    tokens = store.state(SUBJECT, LIMITS, now=0.0).tokens
    assert tokens is not None
    assert (tokens.ceiling, tokens.remaining) == (1000, 200)
    assert isinstance(store.admit(SUBJECT, Limits(concurrency=2), now=0.0), Denied)


def test_a_key_whose_limits_change_keeps_its_use() -> None:
    """By whichever model it comes, and also when the change is taken back."""
    store = limiter()
    wide, narrow = Limits(tokens_per_minute=1000), Limits(tokens_per_minute=500)
    elsewhere = other(model="other")
    permit = admit(store, wide)
    assert permit.reserve(Demand(400), now=0.0) is None
    assert admit(store, narrow, subject=elsewhere).remaining_tokens(now=0.0) == 100
    assert admit(store, wide).remaining_tokens(now=0.0) == 600
    assert admit(store, narrow, subject=elsewhere).remaining_tokens(now=0.0) == 100
    assert admit(store, narrow).remaining_tokens(now=0.0) == 100
    permit.settle(Demand(400), now=0.0)


def test_accounts_of_the_idle_are_let_go_and_those_of_the_busy_are_not() -> None:
    """Memory follows the subjects in use, and so do the counters."""
    source = LocalCounters()
    store = Limiter(source)
    admit(store, now=0.0).settle(Demand(10), now=0.0)
    busy = admit(store, subject=other(key="busy"))
    assert store.statistics(now=30.0).counters == 6
    for now in (60.0, 120.0, 180.0):
        store.statistics(now=now)
    source._register.sweep(now=240.0)
    assert store.statistics(now=240.0) == LimitStatistics(
        3, 1, 0, tuple(RuleStatistics(name) for name in ("key-concurrency", "key-requests", "key-tokens"))
    )
    busy.cancel(now=241.0)
    assert repr(store) == "Limiter(rules=0, outstanding=0, held_tokens=0)"


def test_many_subjects_push_out_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded; who is pushed out while it runs still settles with its own counters."""
    monkeypatch.setattr("tidegate.policy.metering.limiter._MOST_ACCOUNTS", 2)
    store = limiter()
    first = admit(store, Limits(tokens_per_minute=1))
    first.reserve(Demand(1), now=0.0)
    for number in range(2, 5):
        admit(store, Limits(tokens_per_minute=number), subject=other(key=f"k{number}")).cancel(now=0.0)
    assert len(store._accounts) == 2
    first.settle(Demand(9), now=0.0)
    assert admit(store, Limits(tokens_per_minute=1)).remaining_tokens(now=0.0) == 0
    assert used(store, "key-tokens;key=k1", CounterSpec(Meter.SLIDING, 1), now=0.0) == 1


# ── rules ─────────────────────────────────────────────────────────────────────


def test_a_request_must_fit_under_every_rule() -> None:
    """The tenant's limit refuses what the key's would allow; nothing of either is used then."""
    others = rule("others", Resource.TOKENS, 1, ScopeMatch(Scope.TENANT, "b"))
    store = limiter(rule("t", ceiling=500), rule("wide", ceiling=5000), others)
    permit = admit(store)
    assert (permit.remaining_tokens(now=0.0), permit.ceiling_tokens()) == (500, 500)
    denied = permit.reserve(Demand(501), now=0.0)
    assert denied == Denied("t", Resource.TOKENS, 500, 500, 501, None, "tenant acme", CounterSpec(Meter.SLIDING, 500, burst=500))
    assert used(store, "key-tokens;key=k1", CounterSpec(Meter.SLIDING, 1000)) == 0


def test_two_keys_of_a_tenant_use_one_limit() -> None:
    """And a third of another tenant has its own."""
    store = limiter(rule("t", ceiling=100))
    assert admit(store, NONE).reserve(Demand(60), now=0.0) is None
    assert isinstance(admit(store, NONE, subject=other(key="k2")).reserve(Demand(60), now=0.0), Denied)
    assert admit(store, NONE, subject=other(key="k3", tenant="b")).reserve(Demand(60), now=0.0) is None


def test_of_several_refusals_the_longest_is_told() -> None:
    """A client that comes back when it is told to is not refused by the other limit."""
    store = limiter(rule("rate", ceiling=100, meter=Meter.GCRA), rule("window", ceiling=100))
    admit(store).reserve(Demand(90), now=0.0)
    denied = admit(store).reserve(Demand(90), now=10.0)
    assert isinstance(denied, Denied)
    assert (denied.rule, denied.remaining) == ("window", 10)
    assert denied.retry_after_s == pytest.approx(50.1)


def test_input_and_output_have_limits_of_their_own() -> None:
    """An input rule bounds the prompt, an output rule the answer; neither sees the other's tokens."""
    store = limiter(rule("in", Resource.INPUT_TOKENS, 100), rule("out", Resource.OUTPUT_TOKENS, 50, meter=Meter.GCRA))
    permit = admit(store, NONE)
    assert (permit.remaining_tokens(now=0.0), permit.ceiling_tokens(), permit.ceiling_output_tokens()) == (100, None, 50)
    refused = permit.reserve(Demand(100, 51), now=0.0)
    assert isinstance(refused, Denied)
    assert (refused.rule, refused.requested) == ("out", 51)
    assert permit.reserve(Demand(100, 50), now=0.0) is None
    assert store.state(SUBJECT, NONE, now=0.0) == LimitState(None, None)


def test_a_demand_of_nothing_is_not_refused_by_a_limit_in_debt() -> None:
    """A model without a price may be used when the budget is spent."""
    store = limiter(rule("money", Resource.COST, 10, meter=Meter.CALENDAR))
    permit = admit(store, NONE)
    permit.settle(Demand(cost_micro=99), now=0.0)
    assert admit(store, NONE).reserve(Demand(5, 5), now=0.0) is None
    refused = admit(store, NONE).reserve(Demand(cost_micro=1), now=0.0)
    assert isinstance(refused, Denied)
    assert (refused.rule, refused.resource, refused.remaining) == ("money", Resource.COST, 0)


def test_a_refusal_returns_only_what_was_taken() -> None:
    """Nothing was taken of a budget by a request without a price."""
    money = rule("money", Resource.COST, 10)
    store = limiter(money, rule("t", ceiling=5))
    assert isinstance(admit(store, NONE).reserve(Demand(6), now=0.0), Denied)
    assert used(store, "money;tenant=acme", money.spec) == 0


def test_a_shadow_rule_counts_and_never_refuses() -> None:
    """What it would have refused it does not count as used either, as if it had refused."""
    requests = rule("r", Resource.REQUESTS, 2, mode=LimitMode.SHADOW)
    tokens = rule("t", Resource.TOKENS, 100, mode=LimitMode.SHADOW)
    store = limiter(requests, tokens)
    for _ in range(3):
        permit = admit(store, NONE)
        assert permit.reserve(Demand(60), now=0.0) is None
        assert permit.move(Demand(60, 50), now=0.0) is None
        permit.settle(Demand(60, 10), now=0.0)
    told = {one.rule: (one.denied, one.would_deny) for one in store.statistics(now=0.0).rules}
    assert told == {"r": (0, 1), "t": (0, 3)}
    assert used(store, "t;tenant=acme", tokens.spec) == 70
    assert store.state(SUBJECT, NONE, now=0.0).windows == ()
    admit(store, NONE).cancel(now=0.0)


def test_headers_tell_of_the_tightest_window() -> None:
    """Among a key's own and the rules', for requests and for tokens; every window is named."""
    store = limiter(
        rule("t", ceiling=500), rule("wide", ceiling=5000), rule("day", Resource.REQUESTS, 3, meter=Meter.CALENDAR),
        rule("hidden", Resource.INPUT_TOKENS),
    )  # fmt: skip
    state = store.state(SUBJECT, LIMITS, now=0.0)
    assert state.requests == WindowState(3, 3, 0.0, "day", 86_400)
    assert state.tokens == WindowState(500, 500, 0.0, "t")
    assert [window.rule for window in state.windows] == ["key-requests", "key-tokens", "t", "wide", "day"]


def test_more_output_is_held_while_it_flows() -> None:
    """Every token rule must give it, or none does; what was not used comes back to the slots it came from."""
    store = limiter(rule("t", ceiling=500), rule("out", Resource.OUTPUT_TOKENS, 200), rule("money", Resource.COST, 9))
    permit = admit(store)
    permit.reserve(Demand(100, 50, 1), now=0.0)
    assert permit.move(Demand(100, 100, 1), now=5.0) is None
    assert permit.move(Demand(100, 150, 1), now=10.0) is None
    assert store.held_tokens == 250
    denied = permit.move(Demand(100, 210, 1), now=10.0)
    assert isinstance(denied, Denied)
    assert (denied.rule, denied.requested, denied.remaining) == ("out", 60, 50)
    assert used(store, "t;tenant=acme", CounterSpec(Meter.SLIDING, 500, burst=500), now=10.0) == 250
    permit.settle(Demand(100, 60, 1), now=20.0)
    spec = CounterSpec(Meter.SLIDING, 200, burst=200)
    assert [used(store, "out;tenant=acme", spec, now=now) for now in (20.0, 60.2, 65.2)] == [60, 10, 0]


def test_what_is_held_may_move() -> None:
    """More of one and less of another, in one step; a refusal leaves what was held."""
    store = limiter(rule("in", Resource.INPUT_TOKENS, 100), rule("out", Resource.OUTPUT_TOKENS, 100))
    permit = admit(store)
    permit.reserve(Demand(80, 20), now=0.0)
    assert permit.move(Demand(20, 90), now=1.0) is None
    assert store.held_tokens == 110
    assert permit.remaining_tokens(now=1.0) == 80
    assert isinstance(permit.move(Demand(100, 101), now=1.0), Denied)
    assert permit.remaining_tokens(now=1.0) == 80
    permit.settle(Demand(20, 90), now=2.0)
    assert used(store, "key-tokens;key=k1", CounterSpec(Meter.SLIDING, 1000), now=2.0) == 110


def test_a_reload_judges_by_other_rules_and_forgets_no_use() -> None:
    """Permits end by the rules they began with; statistics of rules that went, go."""
    store = limiter(rule("t", ceiling=500), rule("gone"))
    permit = admit(store)
    permit.reserve(Demand(100), now=0.0)
    store.configure([rule("t", ceiling=300)])
    assert admit(store).remaining_tokens(now=0.0) == 200
    permit.settle(Demand(50), now=0.0)
    assert admit(store).remaining_tokens(now=0.0) == 250
    assert "gone" not in {one.rule for one in store.statistics(now=0.0).rules}


def test_a_reload_that_changes_no_rule_changes_nothing() -> None:
    """Not even what is remembered of subjects."""
    store = limiter(rule("t"))
    admit(store, NONE).cancel(now=0.0)
    (account,) = store._accounts.values()
    store.configure([rule("t")])
    assert list(store._accounts.values()) == [account]
    assert repr(account.reservation[0]) == "Line(t;tenant=acme: SlidingWindow(1000 in 60 s, total=0, debt=0))"


# ── which rules, whose counter ────────────────────────────────────────────────


def test_a_rule_applies_when_all_its_scopes_match() -> None:
    """Patterns are shell-style; a request without a model is outside of every model's limits, one without a feature is not."""
    both = rule("r", Resource.TOKENS, 1, ScopeMatch(Scope.TIER, "g*"), ScopeMatch(Scope.MODEL))
    assert applies(both, SUBJECT)
    assert not applies(both, other(tier="silver"))
    assert not applies(both, other(model=""))
    assert applies(rule("f", Resource.TOKENS, 1, ScopeMatch(Scope.FEATURE)), other(feature=""))
    assert applies(LimitRule("all", Resource.TOKENS, CounterSpec(Meter.SLIDING, 1)), SUBJECT)


def test_counters_are_named_by_what_counts_apart() -> None:
    """And no name that a client chose can be taken for two."""
    scopes = (ScopeMatch(Scope.TENANT), ScopeMatch(Scope.FEATURE), ScopeMatch(Scope.MODEL, each=False))
    assert counter_name(rule("r", Resource.TOKENS, 1, *scopes), other(feature="a;b%")) == "r;tenant=acme;feature=a%3Bb%25"


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        (ScopeMatch(Scope.KEY), "this key"),
        (ScopeMatch(Scope.USER), "this user"),
        (ScopeMatch(Scope.TENANT), "tenant acme"),
        (ScopeMatch(Scope.TENANT, each=False), "all tenants together"),
        (ScopeMatch(Scope.TENANT, "a*", each=False), "all tenants a* together"),
        (ScopeMatch(Scope.TENANT, "acme", each=False), "tenant acme"),
        (ScopeMatch(Scope.TIER), "tier gold"),
        (ScopeMatch(Scope.FEATURE), "feature chat"),
        (ScopeMatch(Scope.MODEL), "model m"),
        (ScopeMatch(Scope.ROUTE), "route m*"),
    ],
)
def test_a_limit_says_whose_it_is(scope: ScopeMatch, words: str) -> None:
    """In the words of whoever reads the refusal."""
    assert words == whose(rule("r", Resource.TOKENS, 1, scope), SUBJECT)


def test_a_limit_of_nobody_in_particular_is_everybodys() -> None:
    """And one without a feature says so."""
    assert whose(LimitRule("all", Resource.TOKENS, CounterSpec(Meter.SLIDING, 1)), SUBJECT) == "everybody together"
    assert whose(rule("r", Resource.TOKENS, 1, ScopeMatch(Scope.FEATURE)), other(feature="")) == "no feature"


# ── counters that are leased ──────────────────────────────────────────────────


class Leased(SlidingWindow):
    """A counter that has nothing until the next exchange gives it something."""

    def may_come(self, amount: int, *, now: float, is_patient: bool = False) -> bool:
        del amount, now, is_patient
        return True


class LeasedSource:
    """Gives `Leased` counters that are full, so that everything has to come."""

    def __init__(self) -> None:
        self.counters: dict[str, Leased] = {}

    def counter(self, name: str, spec: CounterSpec, on_store_down: StoreDown, *, now: float) -> Counter:
        del on_store_down
        if name not in self.counters:
            self.counters[name] = Leased(spec, origin=now)
            self.counters[name].take(spec.ceiling, now=now)
        return self.counters[name]

    def statistics(self) -> CounterStatistics:
        return CounterStatistics(len(self.counters), shared=2)


def test_what_leases_do_not_cover_is_short_and_not_denied() -> None:
    """For a request and for its tokens, with what to say if it is short again."""
    source = LeasedSource()
    store = Limiter(source, [rule("r", Resource.REQUESTS, 10), rule("t", Resource.TOKENS, 1000)])
    short = store.admit(SUBJECT, NONE, now=0.0)
    assert isinstance(short, Short)
    assert (short.denied.rule, short.denied.retry_after_s) == ("r", 1.0)
    source.counters["r;tenant=acme"].give_back(10, 0, now=0.0)
    permit = admit(store, NONE)
    assert isinstance(permit.reserve(Demand(10), now=0.0), Short)
    assert isinstance(permit.reserve(Demand(1001), now=0.0), Denied)
    source.counters["t;tenant=acme"].give_back(10, 0, now=0.0)
    assert permit.reserve(Demand(10), now=0.0) is None
    assert store.statistics(now=0.0).shared == 2


def test_a_stream_is_not_cut_for_want_of_an_exchange() -> None:
    """What the store could still grant goes on unheld, and is charged at the end."""
    source = LeasedSource()
    store = Limiter(source, [rule("t", Resource.TOKENS, 1000)])
    window = source.counter("t;tenant=acme", CounterSpec(Meter.SLIDING, 1000), StoreDown.DENY, now=0.0)
    window.give_back(10, 0, now=0.0)
    permit = admit(store, NONE)
    assert permit.reserve(Demand(10), now=0.0) is None
    assert permit.move(Demand(10, 50), now=0.0) is None
    permit.settle(Demand(10, 40), now=0.0)
    assert window.wait_s(1000, now=0.0) == pytest.approx(2 * 60.1)


def test_a_shadow_rule_waits_for_no_lease_and_counts_all_the_same() -> None:
    """What is only on its way is no refusal: requests, places and tokens are charged."""
    source = LeasedSource()
    shadow = LimitMode.SHADOW
    rules = (
        rule("r", Resource.REQUESTS, 10, mode=shadow),
        rule("c", Resource.CONCURRENCY, 10, mode=shadow),
        rule("t", Resource.TOKENS, 1000, mode=shadow),
    )
    store = Limiter(source, rules)
    permit = admit(store, NONE)
    assert permit.reserve(Demand(10, 90), now=0.0) is None
    assert permit.move(Demand(10, 140), now=0.0) is None
    permit.settle(Demand(10, 30), now=0.0)
    assert all(one.would_deny == 0 for one in store.statistics(now=0.0).rules)
    debts = {name: counter._debt for name, counter in source.counters.items()}
    assert debts == {"r;tenant=acme": 1, "c;tenant=acme": 1, "t;tenant=acme": 40}


def test_a_lease_that_comes_between_two_looks_is_a_short() -> None:
    """Refused a moment ago and fitting now: ask again."""

    class Sudden(Leased):
        def wait_s(self, amount: int, *, now: float) -> float | None:
            del amount, now
            return 0.0

    class SuddenSource(LeasedSource):
        def counter(self, name: str, spec: CounterSpec, on_store_down: StoreDown, *, now: float) -> Counter:
            del name, on_store_down
            full = Sudden(spec, origin=now)
            full.take(spec.ceiling, now=now)
            return full

    assert isinstance(Limiter(SuddenSource(), [rule("r", Resource.REQUESTS, 1)]).admit(SUBJECT, NONE, now=0.0), Short)


def test_periods_have_a_length_for_headers() -> None:
    """Those of the calendar, and any other in whole seconds."""
    month = LimitRule("m", Resource.TOKENS, CounterSpec(Meter.CALENDAR, 9, period=Period.MONTH))
    brief = LimitRule("b", Resource.TOKENS, CounterSpec(Meter.SLIDING, 9, 0.25))
    state = limiter(month, brief).state(SUBJECT, NONE, now=0.0)
    assert [window.span_s for window in state.windows] == [2_678_400, 1]


def test_a_permit_follows_the_ceiling_of_its_counter() -> None:
    """The key's limits changed while the request ran: from then on the larger ceiling counts for it, too."""
    store = limiter()
    permit = admit(store, Limits(tokens_per_minute=100))
    assert 100 == permit.ceiling_tokens()
    admit(store, Limits(tokens_per_minute=200), subject=other(model="n"))
    assert 200 == permit.ceiling_tokens()
    assert permit.ceiling_output_tokens() is None


def test_a_permit_tells_the_state_of_what_it_is_under() -> None:
    """The same as the limiter tells of its subject."""
    store = limiter()
    permit = admit(store)
    assert store.state(SUBJECT, LIMITS, now=0.0) == permit.state(now=0.0)
