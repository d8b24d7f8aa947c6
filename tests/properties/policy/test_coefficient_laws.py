"""Laws of what is learned: the truth is found, no request can push it far, and time plays no part."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.domain.features import AnswerWishes, ContentType
from tidegate.domain.units import TenantId
from tidegate.policy.metering.coefficients import Coefficients, Expected, Ratio

TENANT = TenantId("t")
COUNTS = st.integers(0, 10**9)
WISHES = st.builds(AnswerWishes, temperature=st.none() | st.floats(0, 2), json=st.booleans(), tools=st.booleans(), stream=st.booleans())
KINDS = st.sampled_from(ContentType)


@given(truth=st.floats(0.02, 10.0), default=st.sampled_from([1.0, 1.05, 1.42, 2.2]), sizes=st.lists(st.integers(200, 50_000), min_size=1))
def test_law_the_ratio_of_equal_requests_is_found(truth: float, default: float, sizes: list[int]) -> None:
    """Whatever was believed before, and whatever their sizes, some hundred requests of one ratio show it to within 3 %."""
    ratio = Ratio(default)
    for turn in range(400):
        size = sizes[turn % len(sizes)]
        ratio.observe(size, round(size * truth))
    assert abs(ratio.value - truth) <= 0.03 * truth + 0.5 / 200


@given(
    alpha=st.floats(0.8, 2.5),
    beta=st.floats(0.1, 1.5),
    kind=KINDS,
    wishes=WISHES,
    sizes=st.lists(st.integers(200, 5_000), min_size=5, max_size=20),
)
def test_law_totals_converge_on_a_synthetic_truth(
    alpha: float, beta: float, kind: ContentType, wishes: AnswerWishes, sizes: list[int]
) -> None:
    """After some hundred requests the estimated total is within 3 % of what is reported, whatever the request is made of."""
    learned = Coefficients()
    for turn in range(400):
        expected = Expected(kind, wishes, sizes[turn % len(sizes)], 400)
        learned.observe(
            TENANT,
            "r",
            expected,
            prompt_tokens=round(expected.input_tokens * alpha),
            completion_tokens=round(expected.output_tokens * beta),
        )
    expected = Expected(kind, wishes, 1_000, 400)
    truth = 1_000 * alpha + 400 * beta
    assert abs(learned.estimate(TENANT, "r", expected).total_tokens - truth) <= 0.03 * truth + 3


@given(before=st.lists(st.tuples(COUNTS, COUNTS), max_size=30), odd=st.tuples(COUNTS, COUNTS))
def test_law_one_request_moves_a_coefficient_by_less_than_its_bound(before: list[tuple[int, int]], odd: tuple[int, int]) -> None:
    """However senseless a report is, a coefficient stays positive and moves by less than a factor of two (or from nothing to little)."""
    ratio = Ratio(1.42)
    for expected, reported in before:
        ratio.observe(expected, reported)
    value = ratio.value
    ratio.observe(*odd)
    assert value / 2 < ratio.value < 2 * max(value, 0.01)
    assert 0.0 <= ratio.default_share <= 1.0


@given(observed=st.lists(st.tuples(KINDS, WISHES, COUNTS, COUNTS, COUNTS), max_size=20))
def test_law_the_same_requests_teach_the_same(observed: list[tuple[ContentType, AnswerWishes, int, int, int]]) -> None:
    """Nothing but the requests and their order matters: no clock, no chance."""

    def learn() -> list[object]:
        learned, seen = Coefficients(), list[object]()
        for kind, wishes, counted, prompt, completion in observed:
            expected = Expected(kind, wishes, counted, 100)
            seen.append((learned.is_due(TENANT, "r", now=0.0), learned.estimate(TENANT, "r", expected)))
            learned.observe(TENANT, "r", expected, prompt_tokens=prompt, completion_tokens=completion)
        return seen

    assert learn() == learn()


@given(kind=KINDS, wishes=WISHES, counted=COUNTS, cap=st.none() | st.integers(1, 10**6), choices=st.integers(1, 128))
def test_law_the_parts_of_an_estimate_add_up(kind: ContentType, wishes: AnswerWishes, counted: int, cap: int | None, choices: int) -> None:
    """Whoever multiplies what is shown gets the total that is shown."""
    shown = Coefficients().estimate(TENANT, "r", Expected(kind, wishes, counted, cap, choices))
    overhead = round(shown.input_tokens * shown.alpha) + round(shown.output_tokens * shown.beta)
    assert (overhead, overhead + round(overhead * shown.gamma)) == (shown.overhead_tokens, shown.total_tokens)
