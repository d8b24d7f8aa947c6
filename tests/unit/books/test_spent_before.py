"""Budgets begin where the books say they stood when the node started."""

from __future__ import annotations

from tidegate.adapters.books.ledger import Books
from tidegate.adapters.books.spent_before import Budgets, SpentBefore, spent_before
from tidegate.domain.books import Dimensions, Entry, OperationId, Settle
from tidegate.domain.limits import CounterSpec, LimitRule, Meter, Period, Resource, Scope, ScopeMatch
from tidegate.domain.units import TenantId

MIDNIGHT = 20_000 * 86_400.0
STARTED_AT = MIDNIGHT + 10 * 3_600 + 60
DAY = CounterSpec(Meter.CALENDAR, 1_000, period=Period.DAY)
HOUR = CounterSpec(Meter.CALENDAR, 1_000, period=Period.HOUR)


def budget(name: str, *scopes: ScopeMatch, spec: CounterSpec = DAY) -> LimitRule:
    return LimitRule(name, Resource.COST, spec, scopes)


def settled(number: int, tenant: str, amount: int, at: float, *, feature: str = "") -> Settle:
    by = Dimensions(key=f"key-of-{tenant}", feature=feature, route="m*")
    return Settle(OperationId(f"op-{number}"), 1, TenantId(tenant), amount, at, dimensions=by)


ENTRIES: tuple[Entry, ...] = (
    settled(1, "acme", 1, MIDNIGHT - 1.0),
    settled(2, "acme", 20, MIDNIGHT),
    settled(3, "acme", 300, STARTED_AT - 1.0, feature="chat"),
    settled(4, "acme", 4_000, STARTED_AT),
    settled(5, "beta", 50_000, MIDNIGHT + 5.0, feature="chat"),
    settled(6, "beta", 0, MIDNIGHT + 6.0, feature="free"),
)


def stood(books: Books, *rules: LimitRule) -> dict[str, int]:
    books.post(ENTRIES, now=STARTED_AT)
    return {each.counter: each.used for each in spent_before(books, Budgets(rules, STARTED_AT))}


def test_each_subject_has_spent_its_own(books: Books) -> None:
    """What was settled in the running period and before the start, by the names that the limiter gives its counters."""
    each, total = ScopeMatch(Scope.TENANT), ScopeMatch(Scope.FEATURE, "ch*", each=False)
    assert {"day;tenant=acme": 320, "day;tenant=beta": 50_000} == stood(books, budget("day", each))
    assert {"chat": 50_300} == stood(books, budget("chat", total))
    assert {"both;tenant=acme": 300, "both;tenant=beta": 50_000} == stood(books, budget("both", each, total))
    assert {"all": 50_320} == stood(books, budget("all"))
    assert [SpentBefore("hour", HOUR, 300)] == spent_before(books, Budgets((budget("hour", spec=HOUR),), STARTED_AT))


def test_what_the_books_do_not_know_begins_at_nothing(books: Books) -> None:
    """Tiers and the names of models that clients use; and limits that are no budgets have no place in the books at all."""
    tokens = LimitRule("tokens", Resource.TOKENS, DAY)
    sliding = LimitRule("sliding", Resource.COST, CounterSpec(Meter.SLIDING, 1_000))
    assert {} == stood(books, budget("tier", ScopeMatch(Scope.TIER)), budget("model", ScopeMatch(Scope.MODEL, "m")), tokens, sliding)
