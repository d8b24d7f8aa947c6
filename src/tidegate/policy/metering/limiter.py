"""Every limit a request is under: the rules of the configuration that match it, and its key's own ceilings.

Limits nest without knowing each other: a request must fit under its key's, its user's, its tenant's, its tier's, its model's and its
route's, all or none. Invariants: a refusal consumes nothing of any counter; a rule in shadow mode counts and tells, and never refuses;
outstanding permits and held tokens return to zero when all permits are ended.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import assert_never

from tidegate.domain.limits import (
    KEY_CONCURRENCY,
    KEY_REQUESTS,
    KEY_TOKENS,
    OWN_RULES,
    CounterSpec,
    LimitRule,
    LimitSubject,
    Meter,
    Resource,
    Scope,
    ScopeMatch,
)
from tidegate.domain.principal import Limits
from tidegate.domain.statistics import LimitLevel, fullness
from tidegate.policy.metering.counter import CounterSource
from tidegate.policy.metering.permit import Account, LimiterPermit, Line, RuleTally, level_of, refusal_of, take_all
from tidegate.ports import Denied, LimitState, LimitStatistics, RuleStatistics, Short

_EACH_KEY = (ScopeMatch(Scope.KEY),)
_MOST_ACCOUNTS = 16_384  # subjects seen lately; finding one's rules again costs some ten microseconds
_LOOKED_AT = 1_000  # subjects looked at for one list of levels: a few milliseconds, when somebody asks
_SHOWN_LEVELS = 200
_SWEEP_EVERY_S = 60.0  # an account that was not asked for in this time is let go, and its counters with it
_NAMELESS = frozenset({Scope.MODEL, Scope.ROUTE})
"""Scopes that a request without a value is outside of. A feature that is not named is one all the same: else not naming it would help."""
_SHOWN_VALUE = 64  # characters of a name in a refusal


class Limiter:
    """Implements `ports.LimitStore` over the counters of any source."""

    def __init__(self, source: CounterSource, rules: Sequence[LimitRule] = ()) -> None:
        self._source = source
        self._rules = tuple(rules)
        self._tallies: dict[str, RuleTally] = {}
        self._accounts: OrderedDict[LimitSubject, Account] = OrderedDict()
        self._own_rules: dict[tuple[Resource, int], LimitRule] = {}
        self._swept_at: float | None = None
        self.outstanding = 0
        self.held_tokens = 0

    def __repr__(self) -> str:
        return f"Limiter(rules={len(self._rules)}, outstanding={self.outstanding}, held_tokens={self.held_tokens})"

    def configure(self, rules: Sequence[LimitRule]) -> None:
        """Judge by other rules from now on; what is in use stays in use, and permits end by the rules they began with."""
        if self._rules == tuple(rules):
            return
        self._rules = tuple(rules)
        kept = {*OWN_RULES, *(rule.name for rule in rules)}
        self._tallies = {name: tally for name, tally in self._tallies.items() if name in kept}
        while self._accounts:
            self._accounts.popitem()[1].drop()
        self._own_rules.clear()

    def admit(self, subject: LimitSubject, limits: Limits, *, now: float) -> LimiterPermit | Denied | Short:
        account = self._account(subject, limits, now)
        lines = account.admission
        slots = take_all(lines, account.ones, now=now)
        if slots is None:
            line, refusal = refusal_of(lines, account.ones, now=now)
            if isinstance(refusal, Denied):
                line.tally.denied += 1
            return refusal
        account.open += 1
        self.outstanding += 1
        return LimiterPermit(self, account, slots)

    def state(self, subject: LimitSubject, limits: Limits, *, now: float) -> LimitState:
        return self._account(subject, limits, now).state(now=now)

    def levels(self, *, now: float, most_subjects: int = _LOOKED_AT) -> tuple[LimitLevel, ...]:
        """Say how full limits are, the fullest first, of the subjects that came last; for people."""
        levels: dict[str, LimitLevel] = {}
        for account in islice(reversed(self._accounts.values()), most_subjects):
            for line in (*account.admission, *account.reservation):
                if line.name not in levels:
                    levels[line.name] = level_of(line, now=now)
        return tuple(sorted(levels.values(), key=fullness, reverse=True)[:_SHOWN_LEVELS])

    def statistics(self, *, now: float) -> LimitStatistics:
        self._sweep(now)
        kept = self._source.statistics()
        rules = tuple(RuleStatistics(name, tally.denied, tally.would_deny) for name, tally in sorted(self._tallies.items()))
        return LimitStatistics(kept.counters, self.outstanding, self.held_tokens, rules, kept.shared)

    # ── accounts ──────────────────────────────────────────────────────────────

    def _account(self, subject: LimitSubject, limits: Limits, now: float) -> Account:
        if self._swept_at is None or now - self._swept_at >= _SWEEP_EVERY_S:
            self._sweep(now)
        account = self._accounts.get(subject)
        if account is None or (account.limits is not limits and account.limits != limits):
            return self._open(subject, limits, now)
        account.used = True
        for line in account.own:
            if line.counter.spec is not line.enforced:  # another account of this key has other limits
                line.use(self._source.counter(line.name, line.rule.spec, line.rule.on_store_down, now=now))
        return account

    def _open(self, subject: LimitSubject, limits: Limits, now: float) -> Account:
        """Find what applies to a subject, and keep it."""
        before = self._accounts.pop(subject, None)
        if before is None and len(self._accounts) >= _MOST_ACCOUNTS:
            before = self._accounts.popitem(last=False)[1]
        own = [line for rule in self._own(limits) if (line := self._line(rule, subject, now)) is not None]
        ruled = [line for rule in self._rules if (line := self._line(rule, subject, now)) is not None]
        account = self._accounts[subject] = Account(limits, own, ruled)
        if before is not None:
            before.drop()
        return account

    def _sweep(self, now: float) -> None:
        if self._swept_at is not None and now - self._swept_at < _SWEEP_EVERY_S:
            return
        self._swept_at = now
        for subject, account in list(self._accounts.items()):
            if account.used:
                account.used = False
            elif account.open == 0:
                del self._accounts[subject]
                account.drop()

    # ── rules ─────────────────────────────────────────────────────────────────

    def _own(self, limits: Limits) -> list[LimitRule]:
        """Give a key's own ceilings as rules."""
        ceilings = (
            (KEY_CONCURRENCY, Resource.CONCURRENCY, Meter.PLACES, limits.concurrency),
            (KEY_REQUESTS, Resource.REQUESTS, Meter.SLIDING, limits.requests_per_minute),
            (KEY_TOKENS, Resource.TOKENS, Meter.SLIDING, limits.tokens_per_minute),
        )
        rules = []
        for name, resource, meter, ceiling in ceilings:
            if ceiling is None:
                continue
            rule = self._own_rules.get((resource, ceiling))
            if rule is None:
                if len(self._own_rules) >= _MOST_ACCOUNTS:
                    self._own_rules.clear()
                rule = self._own_rules[resource, ceiling] = LimitRule(name, resource, CounterSpec(meter, ceiling), _EACH_KEY)
            rules.append(rule)
        return rules

    def _line(self, rule: LimitRule, subject: LimitSubject, now: float) -> Line | None:
        """Give a rule as it applies to a subject; None when it does not."""
        if not applies(rule, subject):
            return None
        name = counter_name(rule, subject)
        tally = self._tallies.get(rule.name)
        if tally is None:
            tally = self._tallies[rule.name] = RuleTally()
        counter = self._source.counter(name, rule.spec, rule.on_store_down, now=now)
        return Line(rule, counter, tally, name=name, whose=whose(rule, subject))


def applies(rule: LimitRule, subject: LimitSubject) -> bool:
    """Tell whether a request of this subject is under a rule: all of its scopes must match."""
    for match in rule.scopes:
        value = _value(subject, match.scope)
        if (not value and match.scope in _NAMELESS) or not fnmatchcase(value, match.pattern):
            return False
    return True


def counter_name(rule: LimitRule, subject: LimitSubject) -> str:
    """Name the counter of a rule for a subject: its own by every scope that counts `each` value apart."""
    return ";".join((rule.name, *(f"{match.scope}={_quoted(_value(subject, match.scope))}" for match in rule.scopes if match.each)))


def whose(rule: LimitRule, subject: LimitSubject) -> str:
    """Say in words whose limit it is."""
    return ", ".join(_whose(match, _value(subject, match.scope)) for match in rule.scopes) or "everybody together"


def _whose(match: ScopeMatch, value: str) -> str:
    if not match.each and any(wild in match.pattern for wild in "*?["):
        return f"all {match.scope}s together" if match.pattern == "*" else f"all {match.scope}s {match.pattern} together"
    if match.scope in (Scope.KEY, Scope.USER):
        return f"this {match.scope}"
    return f"{match.scope} {value[:_SHOWN_VALUE]}" if value else f"no {match.scope}"


def _value(subject: LimitSubject, scope: Scope) -> str:
    match scope:
        case Scope.KEY:
            return subject.key
        case Scope.USER:
            return subject.user
        case Scope.TENANT:
            return subject.tenant
        case Scope.TIER:
            return subject.tier
        case Scope.FEATURE:
            return subject.feature
        case Scope.MODEL:
            return subject.model
        case Scope.ROUTE:
            return subject.route
        case _:
            assert_never(scope)


def _quoted(value: str) -> str:
    """Keep a name that a client chose from reading as more than one part."""
    return value.replace("%", "%25").replace(";", "%3B")
