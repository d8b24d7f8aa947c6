"""Checking prices and budgets, reading a price file, and what wiring makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.cli.main import main
from tidegate.config.check import check
from tidegate.config.check_limits import MOST_RULES
from tidegate.config.environment import with_environment
from tidegate.config.load import Loaded, load_text
from tidegate.config.prepare import prepare, readable_file
from tidegate.config.problem import Problem, Severity
from tidegate.config.schema import Configuration
from tidegate.domain.limits import CounterSpec, LimitMode, LimitRule, Meter, Period, Resource, Scope, ScopeMatch, StoreDown
from tidegate.domain.money import EVERY_DAY, HybridPlan, Price, PriceBook, PriceEntry, PriceTier, TimeWindow, UnbilledColor
from tidegate.wiring.prices import budget_rules, price_book_of, pricing_of, unbilled_colors

UPSTREAM = """\
upstreams: {dashscope: {dialect: dashscope, base_url: "https://dashscope.example/v1", api_key: k, models: [qwen3.6-plus]}}
"""
PLUS = "{model: qwen3.6-plus, upstream: dashscope, input: 2, output: 12"
TERMS = "free_tokens: 1, memory_hour: 1, traffic_gb: 1"
SOUND = f"prices: {{version: '1', currency: CNY, models: [{PLUS}}}]}}\n"


def loaded(text: str) -> Loaded:
    found = load_text(UPSTREAM + text, {})
    assert isinstance(found, Loaded), found
    return found


def problems(text: str) -> list[Problem]:
    found = loaded(text)
    return check(with_environment(found.configuration, {}), found.source, file_exists=lambda _: True)


def listed(more: str = "", *, models: str = "") -> str:
    """Write a price list whose first entry is `PLUS` with more settings."""
    return f"prices: {{version: '1', models: [{PLUS}{more}}}{models}]}}\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        SOUND,
        listed(", cached: 0.4, tiers: [{above_tokens: 10, input: 4}, {above_tokens: 20, output: 13}]"),
        listed(", time_windows: [{hours: '16:30-00:30', days: [mon, sun], factor: 0.5}, {factor: 0.9}], batch_ratio: 0.5"),
        listed(models=", {model: '*', input: 0, output: 0}"),
        SOUND + "budgets: [{name: all, amount: 5}, {name: day, amount: 0.5, per: day, scope: {tenant: each, tier: default, model: qwen*}}]",
        SOUND + "budgets: [{name: r, amount: 5, scope: {route: qwen3.6-plus, model: each, key: tg-*}}]",
        "prices: {version: '1', hybrid: [{tenant: acme, free_tokens: 1, memory_hour: 1, traffic_gb: 1}]}",
        SOUND + "unbilled: [{color: bench, tenant: load-*}, {color: bench, tenant: qa}]",
    ],
)
def test_sensible_settings_pass_without_a_word(text: str) -> None:
    """Neither errors nor warnings."""
    assert [] == problems(text)


@pytest.mark.parametrize(
    ("text", "path", "message", "hint"),
    [
        (listed().replace("version: '1', ", ""), "prices.version", "no version", "2026-11"),
        (SOUND.replace("CNY", "yuan"), "prices.currency", "three capital letters", "CNY"),
        (listed(models=", {model: a, upstream: dashscop, input: 1, output: 1}"), "prices.models[1].upstream", "no upstream", "dashscope"),
        (listed(models=", {model: a, upstream: zzz, input: 1, output: 1}"), "prices.models[1].upstream", "no upstream", "there are: dash"),
        (listed(models=", {model: ' a', input: 1, output: 1}"), "prices.models[1].model", "empty or has spaces", "pattern"),
        (listed(", cached: 0.0000001"), "prices.models[0].cached", "more than 6 decimals", "round"),
        (listed(", tiers: [{above_tokens: 5, input: 2.0000001}]"), "prices.models[0].tiers[0].input", "more than 6 decimals", "round"),
        (listed(models=f", {PLUS}}}"), "prices.models[1].model", "no call can have this price", "move it up"),
        (listed(", tiers: [{above_tokens: 5}, {above_tokens: 5}]"), "prices.models[0].tiers[1].above_tokens", "stands after", "shortest"),
        (listed(", tiers: [{above_tokens: 5, output: 11}]"), "prices.models[0].tiers[0]", "output falls from 12 to 11", "only rise"),
        (listed(", tiers: [{above_tokens: 5, cached: 1}]"), "prices.models[0].tiers[0]", "cached falls from 2 to 1", "only rise"),
        (listed(", time_windows: [{hours: 24:30-01:00, factor: 1}]"), "prices.models[0].time_windows[0].hours", "span of hours", "UTC"),
        (listed(", time_windows: [{days: [mo], factor: 1}]"), "prices.models[0].time_windows[0].days[0]", 'no day "mo"', '"mon"'),
        (listed(", time_windows: [{days: [x], factor: 1}]"), "prices.models[0].time_windows[0].days[0]", 'no day "x"', "mon, tue"),
        (SOUND + "budgets: [{name: key-tokens, amount: 5}]", "budgets[0].name", "a ceiling that every key has", "another name"),
        (SOUND + "budgets: [{name: a b, amount: 5}]", "budgets[0].name", "cannot name a budget", "letters"),
        (SOUND + "budgets: [{name: a, amount: 5}, {name: a, amount: 5}]", "budgets[1].name", "two budgets", "name of its own"),
        (SOUND + "budgets: [{name: a, amount: 0.0000005}]", "budgets[0].amount", "more than 6 decimals", "round"),
        (SOUND + "budgets: [{name: a, amount: 5, scope: {key: ' '}}]", "budgets[0].scope.key", "empty or has spaces", "each"),
        (SOUND.replace("version", "file: p.yaml, version"), "prices.version", "stands beside prices.file", "one of the two"),
        (
            "prices: {version: '1', hybrid: [{tenant: '', free_tokens: 1, memory_hour: 1, traffic_gb: 1}]}",
            "prices.hybrid[0].tenant",
            "empty",
            "name",
        ),
        (
            f"prices: {{version: '1', hybrid: [{{tenant: '*', {TERMS}}}, {{tenant: a, {TERMS}}}]}}",
            "prices.hybrid[1].tenant",
            "no tenant can have",
            "move it up",
        ),
        ("unbilled: [{color: be nch, tenant: a}]", "unbilled[0].color", "no request can have", "64 letters"),
        ("unbilled: [{color: bench, tenant: ' a'}]", "unbilled[0].tenant", "has spaces around it", "pattern"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_nearest(text: str, path: str, message: str, hint: str) -> None:
    """With its place in the file and what to do."""
    problem = problems(text)[0]
    assert (path, Severity.ERROR) == (problem.path, problem.severity)
    assert message in problem.message
    assert hint in (problem.hint or "")


@pytest.mark.parametrize("tenant", ["default", "*", "d*"])
def test_letting_off_everybody_is_warned_of(tenant: str) -> None:
    """A key that was made without a tenant has the tenant `default`."""
    [problem] = problems(f"unbilled: [{{color: bench, tenant: '{tenant}'}}]")
    assert (Severity.WARNING, "unbilled[0].tenant") == (problem.severity, problem.path)
    assert "leave its bill unpaid" in problem.message


def test_grants_are_given_to_the_flow_as_they_are() -> None:
    """In their order; a configuration without any lets nobody off."""
    text = SOUND + "unbilled: [{color: bench, tenant: load-*}]"
    assert (UnbilledColor("bench", "load-*"),) == unbilled_colors(loaded(text).configuration)
    assert () == unbilled_colors(loaded(SOUND).configuration)


@pytest.mark.parametrize(
    ("scope", "path", "message", "hint"),
    [
        ("tier: defalt", "budgets[0].scope.tier", 'no tier is called "defalt"', 'did you mean "default"?'),
        ("route: zz", "budgets[0].scope.route", 'no route is called "zz"', "qwen3.6-plus"),
        ("model: qwen3.6-pls", "budgets[0].scope.model", "this budget never holds", 'did you mean "qwen3.6-plus"?'),
        ("model: zz", "budgets[0].scope.model", 'no route takes requests for "zz"', "add a route"),
    ],
)
def test_budgets_that_hold_for_nobody_are_warned_of(scope: str, path: str, message: str, hint: str) -> None:
    """As limits are: a token may bring a tier that the configuration does not know."""
    [problem] = problems(SOUND + f"budgets: [{{name: a, amount: 5, scope: {{{scope}}}}}]")
    assert (Severity.WARNING, path) == (problem.severity, problem.path)
    assert message in problem.message
    assert hint in (problem.hint or "")


def test_there_may_not_be_too_many_budgets() -> None:
    """Each is looked at for everybody."""
    budgets = ", ".join(f"{{name: b{number}, amount: 1}}" for number in range(MOST_RULES + 1))
    [problem] = problems(f"{SOUND}budgets: [{budgets}]")
    assert (Severity.ERROR, f"there are {MOST_RULES + 1} budgets, more than {MOST_RULES}") == (problem.severity, problem.message)


def test_budgets_without_prices_are_warned_of() -> None:
    """They could never be used up."""
    [problem] = problems("budgets: [{name: a, amount: 5}]")
    assert (Severity.WARNING, "budgets") == (problem.severity, problem.path)


def test_models_without_a_price_are_named_in_one_warning() -> None:
    """The local engine is free and is not among them; a pattern route counts for the names that its upstream lists."""
    names = ", ".join(f"qwen-{number}" for number in range(10))
    text = (
        f"upstreams: {{a: {{dialect: vllm, base_url: 'http://127.0.0.1:1/v1', models: [{names}, 'x*']}}}}\n"
        "routes: [{model: 'qwen-*', targets: [{upstream: a}, {upstream: local}]}, {model: b, targets: [{upstream: a, model: c}], "
        "ladder: {smaller: {upstream: a, model: q4}}}]\n"
        "prices: {version: '1', models: [{model: qwen-0, input: 1, output: 1}]}\n"
    )
    found = load_text(text, {})
    assert isinstance(found, Loaded), found
    [problem] = check(found.configuration, found.source, file_exists=lambda _: True)
    assert (Severity.WARNING, "prices.models") == (problem.severity, problem.path)
    assert "qwen-1 at a, qwen-2 at a" in problem.message
    assert "and 3 more" in problem.message


def test_an_upstream_pattern_that_matches_none_is_a_warning() -> None:
    """Upstreams come and go with the environment; a name is refused, a pattern is not."""
    found = problems(listed(models=", {model: a, upstream: 'open*', input: 1, output: 1}"))
    assert [Severity.WARNING] == [problem.severity for problem in found]


# ── a price file ──────────────────────────────────────────────────────────────


def written(directory: Path, list_text: str) -> Path:
    """Write a configuration and the price list that it names."""
    (directory / "prices.yaml").write_text(list_text)
    file = directory / "tidegate.yaml"
    file.write_text(UPSTREAM + f"prices: {{file: {directory / 'prices.yaml'}}}\n")
    return file


def test_a_price_file_stands_for_the_section(tmp_path: Path) -> None:
    """Same settings, same book."""
    body = SOUND.removeprefix("prices: ")
    found = prepare(written(tmp_path, body), {}, file_exists=readable_file)
    assert found.configuration is not None, found.problems
    assert () == found.problems
    assert price_book_of(loaded(SOUND).configuration) == price_book_of(found.configuration)


@pytest.mark.parametrize(
    ("list_text", "message"),
    [
        ("version: [", "prices.yaml:"),
        ("versoin: '1'", 'prices.yaml:1:1 unknown key "versoin"'),
        ("models: [{model: qwen3.6-plus, input: 1, output: 2}]", "the price list has no version"),
        ("version: '1'\nmodels: [{model: a, upstream: dashscop, input: 1, output: 2}]", 'prices.yaml:2:31 there is no upstream "dashscop"'),
    ],
)
def test_faults_in_a_price_file_refuse_the_configuration(tmp_path: Path, list_text: str, message: str) -> None:
    """They are told where the file is named, with their own line."""
    found = prepare(written(tmp_path, list_text), {}, file_exists=readable_file)
    assert found.configuration is None
    assert any(message in problem.message and problem.path == "prices.file" and problem.line == 2 for problem in found.problems)


def test_a_price_file_that_is_not_there_refuses_the_configuration(tmp_path: Path) -> None:
    """A gateway without its prices would give everything away."""
    file = written(tmp_path, "")
    (tmp_path / "prices.yaml").unlink()
    found = prepare(file, {}, file_exists=readable_file)
    assert found.configuration is None
    assert "does not exist" in found.problems[0].message


# ── wiring ────────────────────────────────────────────────────────────────────


def test_the_price_book_has_the_settings_in_whole_numbers() -> None:
    """A class of tokens that one tier prices apart is priced apart in all."""
    text = listed(
        ", tiers: [{above_tokens: 262144, input: 4, cached: 4}], image: 0.0015, request: 0.00001, batch_ratio: 0.5, "
        "time_windows: [{hours: '16:30-00:30', days: [mon, sun], factor: 0.5}, {factor: 1.25}]"
    )
    tiers = (PriceTier(2_000_000, 12_000_000, 2_000_000), PriceTier(4_000_000, 12_000_000, 4_000_000, above_tokens=262_144))
    windows = (TimeWindow(500_000, 990, 30, frozenset({0, 6})), TimeWindow(1_250_000, 0, 1440, EVERY_DAY))
    price = Price(tiers, 1500, 10, windows, 500_000)
    assert PriceBook("1", "USD", (PriceEntry("dashscope", "qwen3.6-plus", price),)) == price_book_of(loaded(text).configuration)


def test_the_terms_of_billing_by_resources_are_in_the_book() -> None:
    """Memory for a token may be written as a size."""
    text = (
        "prices: {version: '1', hybrid: [{tenant: a, free_tokens: 5, memory_hour: 0.02, traffic_gb: 0.1, memory_per_token_bytes: 64KiB}]}"
    )
    assert (HybridPlan("a", 5, 20_000, 100_000, 65_536),) == price_book_of(loaded(text).configuration).hybrid


def test_without_prices_nothing_is_asked_what_calls_cost() -> None:
    """The request path does not even look."""
    assert None is pricing_of(Configuration())
    pricing = pricing_of(loaded(SOUND).configuration)
    assert pricing is not None
    assert "CNY" == pricing.book.currency


def test_budgets_become_limits_of_the_calendar() -> None:
    """`each` counts apart, a pattern all that match together, no scope everybody."""
    text = SOUND + (
        "budgets: [{name: day, amount: 0.5, per: day, mode: shadow, scope: {tenant: each, model: qwen*}}, "
        "{name: all, amount: 99_999_999.999999}]"
    )
    expected = (
        LimitRule(
            "day",
            Resource.COST,
            CounterSpec(Meter.CALENDAR, 500_000, period=Period.DAY),
            (ScopeMatch(Scope.TENANT), ScopeMatch(Scope.MODEL, "qwen*", each=False)),
            LimitMode.SHADOW,
            StoreDown.DENY,
        ),
        LimitRule("all", Resource.COST, CounterSpec(Meter.CALENDAR, 99_999_999_999_999, period=Period.MONTH), on_store_down=StoreDown.DENY),
    )
    assert expected == budget_rules(loaded(text).configuration)


def test_check_shows_prices_and_budgets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And which models have no price."""
    file = written(
        tmp_path,
        f"version: '2026-11'\ncurrency: CNY\nmodels: [{PLUS}, cached: 0.4, image: 0.1, request: 0.2, batch_ratio: 0.5, "
        "tiers: [{above_tokens: 262144, input: 4}], time_windows: [{hours: '16:30-00:30', days: [mon], factor: 0.5}]}]\n"
        "hybrid: [{tenant: acme, free_tokens: 1000, memory_hour: 0.02, traffic_gb: 0.1}]\n",
    )
    with file.open("a") as text:
        text.write(
            "budgets: [{name: day, amount: 5, per: day, mode: shadow, scope: {tenant: each}}, {name: all, amount: 100}, "
            "{name: small, amount: 0.00003}, {name: large, amount: 1_234_567.5}]\n"
        )
    assert 0 == main(["check", "--config", str(file)])
    shown = capsys.readouterr().out
    for line in (
        "version 2026-11, in CNY per million tokens (from ",
        "qwen3.6-plus at dashscope  2 in, 12 out, 0.4 cached; above 262,144: 4 in; 0.1 a picture; 0.2 a call; x 0.5 16:30-00:30 UTC mon",
        "tenant acme: 1,000 tokens a month free, then 0.02 a GB of GPU memory and hour, 0.1 a GB of traffic",
        "day  5 CNY per day for each tenant, only watched",
        "all  100 CNY per month for everybody together",
        "small  0.00003 CNY per month for everybody together",
        "large  1,234,567.5 CNY per month for everybody together",
    ):
        assert line in shown
