"""Kinds of prompts that keep failing: when one is diverted, which is blamed, and how it comes back."""

from __future__ import annotations

from random import Random

import pytest

from tidegate.domain.features import PromptFeatures
from tidegate.domain.units import ModelName, UpstreamName
from tidegate.domain.upstream import Target
from tidegate.policy.degradation.class_health import ClassHealth, ClassSettings, ClassStatus, Diversion
from tidegate.policy.degradation.prompt_classes import classes_of

ROUTE = "qwen*"
FALLBACK = Target(UpstreamName("small"), ModelName("q4"))
SETTINGS = ClassSettings(FALLBACK, failure_ratio=0.3, window_s=60.0, min_calls=10, recover_after_s=30.0)


def prompt(*traits: str, tokens: int = 500, script: str = "latin") -> PromptFeatures:
    return PromptFeatures(tokens, frozenset(traits), ((script, 0.9), ("other", 0.1)))


TABLE = prompt("table", tokens=2_000)
PLAIN = prompt()


def health(settings: ClassSettings = SETTINGS) -> ClassHealth:
    return ClassHealth({ROUTE: settings})


def observe(classes: ClassHealth, features: PromptFeatures, count: int, *, failed: bool, now: float = 0.0) -> None:
    for _ in range(count):
        classes.observe(ROUTE, features, failed=failed, now=now)


def sick(settings: ClassSettings = SETTINGS) -> ClassHealth:
    """A route on which prompts with tables fail, and all others do not."""
    classes = health(settings)
    observe(classes, PLAIN, 30, failed=False)
    observe(classes, TABLE, 10, failed=True)
    return classes


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (PromptFeatures(0), ("under_1k",)),
        (PromptFeatures(999, frozenset({"code", "table", "json"})), ("table", "code", "under_1k")),
        (PromptFeatures(1_000, scripts=(("latin", 0.4), ("zh", 0.6))), ("1k_to_8k", "script_zh")),
        (PromptFeatures(8_000, scripts=(("latin", 0.5), ("zh", 0.5))), ("8k_to_32k", "script_latin")),
        (PromptFeatures(32_000), ("32k_to_128k",)),
        (PromptFeatures(128_000), ("over_128k",)),
    ],
)
def test_a_prompt_has_classes(features: PromptFeatures, expected: tuple[str, ...]) -> None:
    """Its tables and code, its length, and the script there is most of (the first of equals)."""
    assert expected == classes_of(features)


def test_a_class_that_keeps_failing_goes_to_the_fallback() -> None:
    """And only that class: others are served as ever."""
    classes = sick()
    assert Diversion("table", FALLBACK) == classes.diverted(ROUTE, TABLE, now=1.0)
    assert Diversion("table", FALLBACK) == classes.diverted(ROUTE, prompt("table", "code", script="zh"), now=1.0)
    assert classes.diverted(ROUTE, PLAIN, now=1.0) is None


def test_too_few_calls_prove_nothing() -> None:
    """One call short of `min_calls`, of the class or of the others, nothing is diverted."""
    few = health()
    observe(few, PLAIN, 30, failed=False)
    observe(few, TABLE, 9, failed=True)
    assert few.diverted(ROUTE, TABLE, now=0.0) is None
    alone = health()
    observe(alone, PLAIN, 9, failed=False)
    observe(alone, TABLE, 100, failed=True)
    assert alone.diverted(ROUTE, TABLE, now=0.0) is None


def test_a_route_that_is_down_has_no_bad_class() -> None:
    """When everything fails, or the others fail more than half as often, the class is not the cause."""
    down = health()
    for _ in range(50):
        observe(down, PLAIN, 1, failed=True)
        observe(down, TABLE, 1, failed=True)
    assert down.diverted(ROUTE, TABLE, now=0.0) is None
    shaky = health()
    observe(shaky, PLAIN, 400, failed=False)
    observe(shaky, PLAIN, 400, failed=True)
    observe(shaky, TABLE, 10, failed=False)
    observe(shaky, TABLE, 90, failed=True)
    assert shaky.diverted(ROUTE, TABLE, now=0.0) is None


def test_a_share_below_the_threshold_is_tolerated() -> None:
    """A class may fail more often than others, up to `failure_ratio`."""
    classes = health()
    observe(classes, PLAIN, 1_000, failed=False)
    observe(classes, TABLE, 75, failed=False)
    observe(classes, TABLE, 25, failed=True)
    assert classes.diverted(ROUTE, TABLE, now=0.0) is None


def test_a_difference_that_may_be_an_accident_is_none() -> None:
    """Four failures in ten calls beside none in ten look bad and prove little; beside none in a hundred they do."""
    classes = health()
    observe(classes, PLAIN, 10, failed=False)
    observe(classes, TABLE, 6, failed=False)
    observe(classes, TABLE, 4, failed=True)
    assert classes.diverted(ROUTE, TABLE, now=0.0) is None
    observe(classes, PLAIN, 90, failed=False)
    observe(classes, TABLE, 1, failed=True)
    assert classes.diverted(ROUTE, TABLE, now=0.0) is not None


def test_failures_that_have_nothing_to_do_with_the_prompt_divert_nothing() -> None:
    """One call in ten fails, whatever the prompt: in 20,000 calls of five kinds no class is blamed."""
    rng, classes, diverted = Random(7), health(), 0
    kinds = [PLAIN, TABLE, prompt("code"), prompt(script="zh"), prompt(tokens=50_000)]
    for call in range(20_000):
        features, now = rng.choice(kinds), call / 10
        if classes.diverted(ROUTE, features, now=now) is None:
            classes.observe(ROUTE, features, failed=rng.random() < 0.1, now=now)
        else:
            diverted += 1
    assert 0 == diverted


def test_failures_leave_the_window() -> None:
    """What is older than `window_s` counts no more; a clock that went back loses nothing."""
    classes = health()
    observe(classes, PLAIN, 30, failed=False)
    observe(classes, TABLE, 9, failed=True)
    observe(classes, PLAIN, 30, failed=False, now=60.0)
    observe(classes, TABLE, 1, failed=True, now=60.0)
    assert classes.diverted(ROUTE, TABLE, now=60.0) is None
    observe(classes, TABLE, 9, failed=True, now=50.0)
    assert classes.diverted(ROUTE, TABLE, now=60.0) is not None


def test_only_the_worst_class_of_a_prompt_is_blamed() -> None:
    """Half of the Chinese prompts have tables, and those fail: Chinese ones without tables go the usual way."""
    classes = health()
    observe(classes, PLAIN, 30, failed=False)
    for _ in range(10):
        observe(classes, prompt(script="zh"), 1, failed=False)
        observe(classes, prompt("table", script="zh"), 1, failed=True)
    assert Diversion("table", FALLBACK) == classes.diverted(ROUTE, prompt("table", script="zh"), now=0.0)
    assert classes.diverted(ROUTE, prompt(script="zh"), now=0.0) is None


def test_one_call_finds_out_whether_the_class_works_again() -> None:
    """After `recover_after_s` one goes the usual way and the others wait for what becomes of it; a success ends the diversion."""
    classes = sick()
    assert classes.diverted(ROUTE, TABLE, now=29.9) is not None
    assert classes.diverted(ROUTE, TABLE, now=30.0) is None
    assert classes.diverted(ROUTE, TABLE, now=30.0) is not None
    classes.observe(ROUTE, TABLE, failed=False, now=31.0)
    assert [classes.diverted(ROUTE, TABLE, now=31.0) for _ in range(3)] == [None] * 3


def test_a_failed_try_waits_again() -> None:
    """The time counts from its failure."""
    classes = sick()
    assert classes.diverted(ROUTE, TABLE, now=30.0) is None
    classes.observe(ROUTE, TABLE, failed=True, now=40.0)
    assert classes.diverted(ROUTE, TABLE, now=69.9) is not None
    assert classes.diverted(ROUTE, TABLE, now=70.0) is None


def test_a_try_of_which_nothing_is_heard_is_followed_by_another() -> None:
    """Its client may have left: the class is not lost for it."""
    classes = sick()
    assert classes.diverted(ROUTE, TABLE, now=30.0) is None
    assert classes.diverted(ROUTE, TABLE, now=59.9) is not None
    assert classes.diverted(ROUTE, TABLE, now=60.0) is None


def test_late_news_of_calls_before_the_diversion_change_nothing() -> None:
    """Neither for the class nor for the other classes of those prompts."""
    classes = sick()
    observe(classes, TABLE, 50, failed=False, now=1.0)
    observe(classes, prompt("table", script="zh"), 50, failed=True, now=1.0)
    assert classes.diverted(ROUTE, TABLE, now=2.0) is not None
    assert (ClassStatus(ROUTE, "table", 0, 0, diverted=True),) == classes.statistics(now=2.0)


def test_a_prompt_of_two_diverted_classes_tries_when_both_are_due() -> None:
    """Its success speaks for both of them."""
    classes = sick()
    observe(classes, PLAIN, 30, failed=False, now=10.0)
    observe(classes, prompt("code"), 30, failed=True, now=10.0)
    both = prompt("table", "code")
    assert Diversion("code", FALLBACK) == classes.diverted(ROUTE, both, now=35.0)
    assert classes.diverted(ROUTE, both, now=40.0) is None
    classes.observe(ROUTE, both, failed=False, now=41.0)
    assert classes.diverted(ROUTE, TABLE, now=41.0) is None
    assert classes.diverted(ROUTE, prompt("code"), now=41.0) is None


def test_a_route_without_classes_is_left_alone() -> None:
    """Nothing is kept for it."""
    classes = sick()
    classes.observe("other", TABLE, failed=True, now=0.0)
    assert (True, False) == (classes.watches(ROUTE), classes.watches("other"))
    assert classes.diverted("other", TABLE, now=0.0) is None


def test_classes_are_bounded() -> None:
    """A thousand scripts take no more room than 32 classes; those that came first are watched on."""
    classes = health()
    observe(classes, PLAIN, 30, failed=False)
    for number in range(1_000):
        classes.observe(ROUTE, PromptFeatures(5, scripts=((f"s{number}", 1.0),)), failed=False, now=0.0)
    assert 32 == len(classes.statistics(now=0.0))
    for _ in range(20):
        classes.observe(ROUTE, PromptFeatures(2_000, scripts=(("unknown", 1.0),)), failed=True, now=0.0)
    assert not any(status.diverted for status in classes.statistics(now=0.0))
    observe(classes, PromptFeatures(5, scripts=(("s3", 1.0),)), 30, failed=True)
    assert ClassStatus(ROUTE, "script_s3", 0, 0, diverted=True) in classes.statistics(now=0.0)


def test_a_reload_keeps_what_was_learned() -> None:
    """For routes whose settings stay; the others begin afresh."""
    before = sick()
    same = ClassHealth({ROUTE: SETTINGS, "other": SETTINGS}, before=before)
    assert same.diverted(ROUTE, TABLE, now=1.0) is not None
    changed = ClassHealth({ROUTE: ClassSettings(FALLBACK, min_calls=11)}, before=before)
    assert changed.diverted(ROUTE, TABLE, now=1.0) is None


def test_statistics_show_calls_failures_and_diversions() -> None:
    """By class; what left the window is gone."""
    classes = health()
    assert () == classes.statistics(now=0.0)
    observe(classes, TABLE, 2, failed=False)
    observe(classes, TABLE, 1, failed=True)
    assert ("1k_to_8k", "script_latin", "table") == tuple(status.prompt_class for status in classes.statistics(now=1.0))
    assert {(3, 1)} == {(status.calls, status.failures) for status in classes.statistics(now=1.0)}
    assert () == classes.statistics(now=60.0)
    assert "ClassHealth(qwen*: ['table'])" == repr(sick())
