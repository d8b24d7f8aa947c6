"""Budgets begin where the books say they stood when the node started."""

from __future__ import annotations

from tidegate.adapters.books.ledger import Books
from tidegate.adapters.books.spent_before import Budgets, SpentBefore, spent_before, spent_since
from tidegate.domain.books import INCARNATION_CHARS, Dimensions, Entry, OperationId, Settle
from tidegate.domain.limits import CounterSpec, LimitRule, Meter, Period, Resource, Scope, ScopeMatch
from tidegate.domain.units import TenantId

MIDNIGHT = 20_000 * 86_400.0
STARTED_AT = MIDNIGHT + 10 * 3_600 + 60
DAY = CounterSpec(Meter.CALENDAR, 1_000, period=Period.DAY)
HOUR = CounterSpec(Meter.CALENDAR, 1_000, period=Period.HOUR)


def budget(name: str, *scopes: ScopeMatch, spec: CounterSpec = DAY) -> LimitRule:
    return LimitRule(name, Resource.COST, spec, scopes)


def settled(name: str, tenant: str, amount: int, at: float, *, feature: str = "") -> Settle:
    by = Dimensions(key=f"key-of-{tenant}", feature=feature, route="m*")
    return Settle(OperationId(name), 1, TenantId(tenant), amount, at, dimensions=by)


ENTRIES: tuple[Entry, ...] = (
    settled("op-1", "acme", 1, MIDNIGHT - 1.0),
    settled("op-2", "acme", 20, MIDNIGHT),
    settled("op-3", "acme", 300, STARTED_AT - 1.0, feature="chat"),
    settled("op-4", "acme", 4_000, STARTED_AT),
    settled("op-5", "beta", 50_000, MIDNIGHT + 5.0, feature="chat"),
    settled("op-6", "beta", 0, MIDNIGHT + 6.0, feature="free"),
)


def stood(books: Books, *rules: LimitRule) -> dict[str, int]:
    books.post(ENTRIES, now=STARTED_AT)
    return {each.counter: each.used for each in spent_before(books, Budgets(rules, STARTED_AT), now=STARTED_AT) if not each.worker}


def test_each_subject_has_spent_its_own(books: Books) -> None:
    """What was settled in the running period and before the start, by the names that the limiter gives its counters."""
    each, total = ScopeMatch(Scope.TENANT), ScopeMatch(Scope.FEATURE, "ch*", each=False)
    assert {"day;tenant=acme": 320, "day;tenant=beta": 50_000} == stood(books, budget("day", each))
    assert {"chat": 50_300} == stood(books, budget("chat", total))
    assert {"both;tenant=acme": 300, "both;tenant=beta": 50_000} == stood(books, budget("both", each, total))
    assert {"all": 50_320} == stood(books, budget("all"))
    assert {"hour": 300} == stood(books, budget("hour", spec=HOUR))


def test_what_was_spent_after_the_start_is_told_apart_by_the_worker_that_counted_it(books: Books) -> None:
    """So that a process that comes in place of a killed one can charge for the workers that are no more."""
    first, second = "a" * INCARNATION_CHARS, "b" * INCARNATION_CHARS
    books.post(
        [
            settled(f"{first}.1.x", "acme", 1, STARTED_AT - 1.0),
            settled(f"{first}.2.y", "acme", 20, STARTED_AT),
            settled(f"{first}.3.z", "beta", 300, STARTED_AT + 5.0),
            settled(f"{second}.3.z", "acme", 4_000, STARTED_AT + 9.0),
        ],
        now=STARTED_AT,
    )
    budgets = Budgets((budget("day", ScopeMatch(Scope.TENANT)), budget("all")), STARTED_AT)
    assert [SpentBefore("day;tenant=acme", DAY, 1), SpentBefore("all", DAY, 1)] == spent_before(books, budgets, now=STARTED_AT + 10.0)
    assert [
        SpentBefore("day;tenant=acme", DAY, 4_000, second),
        SpentBefore("day;tenant=beta", DAY, 300, first),
        SpentBefore("day;tenant=acme", DAY, 20, first),
        SpentBefore("all", DAY, 4_000, second),
        SpentBefore("all", DAY, 320, first),
    ] == spent_since(books, budgets, now=STARTED_AT + 10.0)


def test_a_budget_that_a_reload_added_has_spent_what_was_settled_before_it(books: Books) -> None:
    """Its workers tell only of what came after."""
    books.post(ENTRIES, now=STARTED_AT)
    budgets = Budgets((budget("day"), budget("late")), STARTED_AT, {"late": STARTED_AT + 1.0})
    assert [SpentBefore("day", DAY, 50_320), SpentBefore("late", DAY, 54_320)] == spent_before(books, budgets, now=STARTED_AT + 2.0)
    assert ["day"] == [each.counter for each in spent_since(books, budgets, now=STARTED_AT + 2.0)]


def test_what_was_spent_in_a_former_period_is_of_no_account(books: Books) -> None:
    """A process that is replaced in the next day starts with that day's use, not with the one in which the node was started."""
    books.post([settled("a.1", "acme", 700, MIDNIGHT + 1.0), settled("b.1", "acme", 5, MIDNIGHT + 86_400.0)], now=STARTED_AT)
    budgets = Budgets((budget("day"),), STARTED_AT)
    assert [] == spent_before(books, budgets, now=MIDNIGHT + 86_400.0)
    assert [SpentBefore("day", DAY, 5, "b.1")] == spent_since(books, budgets, now=MIDNIGHT + 86_400.0)


def test_what_the_books_do_not_know_begins_at_nothing(books: Books) -> None:
    """Tiers and the names of models that clients use; and limits that are no budgets have no place in the books at all."""
    tokens = LimitRule("tokens", Resource.TOKENS, DAY)
    sliding = LimitRule("sliding", Resource.COST, CounterSpec(Meter.SLIDING, 1_000))
    assert {} == stood(books, budget("tier", ScopeMatch(Scope.TIER)), budget("model", ScopeMatch(Scope.MODEL, "m")), tokens, sliding)
