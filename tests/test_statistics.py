"""Intervals and tests: worked examples, agreement with SciPy, and simulated coverage at 3, 5 and 10 seeds."""

import re
from collections.abc import Callable
from pathlib import Path

import interval_coverage
import numpy as np
import pytest
from scipy import stats

from regard.statistics import (
    Interval,
    benjamini_hochberg,
    count_interval,
    describe_range,
    holm,
    mean_interval,
    median_interval,
    permutation_p,
    range_confidence,
    ratio_interval,
    seed_range,
    shift_interval,
    smallest_group,
    smallest_sample,
)

Draw = Callable[[np.random.Generator, int], np.ndarray]
FAMILIES: dict[str, tuple[Draw, float]] = {
    "normal": (lambda random, n: random.normal(2, 1, n), 2.0),
    "bounded": (lambda random, n: random.beta(4, 3, n), float(stats.beta(4, 3).median())),
    "bounded and skewed": (lambda random, n: random.beta(20, 0.2, n), float(stats.beta(20, 0.2).median())),
    "skewed": (lambda random, n: random.lognormal(0, 1, n), 1.0),
    "counts near 100 %": (lambda random, n: random.binomial(10_000, 0.9999, n) / 1e4, 0.9999),
    "one seed of ten fails": (lambda random, n: np.where(random.random(n) < 0.1, 0.5, 1.0), 1.0),
}
"""Distributions of one value per seed, with their medians."""


def _covers(interval: Interval, value: float) -> bool:
    assert interval.low is not None and interval.high is not None
    return interval.low <= value <= interval.high


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_range_covers_the_median_as_often_as_it_says(family: str, seeds: int) -> None:
    """For every distribution: the statement is exact, or too careful where values are equal."""
    draw, median = FAMILIES[family]
    random = np.random.default_rng(0)
    rate = np.mean([_covers(seed_range(draw(random, seeds).tolist()), median) for _ in range(1500)])
    assert rate >= range_confidence(seeds) - 0.025


def test_the_caption_states_the_confidence() -> None:
    for seeds, words in ((3, "75.0 % confidence (95 % need"), (6, "96.9 % confidence."), (10, "more than 99 %")):
        assert words in describe_range(seeds)


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_students_intervals_cover_for_values_that_vary_normally(seeds: int) -> None:
    random = np.random.default_rng(0)
    for draw, mean in ((FAMILIES["normal"][0], 2.0), (FAMILIES["bounded"][0], 4 / 7)):
        means = [_covers(mean_interval(draw(random, seeds).tolist()), mean) for _ in range(1000)]
        assert np.mean(means) >= 0.93


@pytest.mark.slow
def test_intervals_from_ranks_cover_as_often_as_they_say() -> None:
    """For every distribution of the table in docs/dev/claims.md, whose Student's intervals do not, and the table is
    the output of the program within a point, for sums in another order."""
    page = (Path(__file__).parent.parent / "docs" / "dev" / "claims.md").read_text(encoding="utf-8")
    printed = interval_coverage.table()
    for name, seeds, said, *shares in printed:
        (line,) = re.findall(rf"^\| {name} \| {seeds} \| {said} \| (.*) \|$", page, re.MULTILINE)
        for share, shown in zip(shares, line.split(" | "), strict=True):
            assert share == shown == "none" or abs(float(share) - float(shown)) <= 1.0, (name, seeds, said)
        for share in (shares[0], shares[1]):
            assert share == "none" or float(share) >= float(said) - 2.5, (name, seeds, said)
    assert min(float(row[-1]) for row in printed if row[-1] != "none") < 70


def test_a_mean_of_a_worked_example() -> None:
    """14, 15, 19: mean 16, deviation √7, Student's factor 4.303 with two degrees of freedom."""
    result = mean_interval([14.0, 15.0, 19.0])
    assert result.low is not None and result.high is not None
    assert result.value == 16 and result.high - 16 == pytest.approx(4.3027 * (7 / 3) ** 0.5, rel=1e-4)
    assert 16 - result.low == pytest.approx(result.high - 16)
    assert mean_interval([0.9, 1.0, 1.0], (0.0, 1.0)).high == 1.0


@pytest.mark.parametrize("sizes", [(3, 3), (4, 4), (5, 7), (8, 3), (10, 10)])
def test_intervals_exclude_zero_where_the_exact_tests_reject(sizes: tuple[int, int]) -> None:
    random = np.random.default_rng(0)
    for _ in range(100):
        first, second = random.normal(0.8, 1, sizes[0]), random.normal(0, 1, sizes[1])
        ranks = stats.mannwhitneyu(first, second, method="exact").pvalue
        signs = stats.binomtest(int((first > 0).sum()), len(first)).pvalue
        assert shift_interval(first.tolist(), second.tolist()).excludes_zero == (ranks <= 0.05)
        assert median_interval(first.tolist()).excludes_zero == (signs <= 0.05)


def test_many_seeds_use_a_normal_approximation_that_agrees() -> None:
    random = np.random.default_rng(0)
    first, second = random.normal(0.5, 1, 40).tolist(), random.normal(0, 1, 40).tolist()
    exact, normal = shift_interval(first, second), shift_interval([*first, first[0]], [*second, second[0]])
    assert exact.low == pytest.approx(normal.low, abs=0.1) and exact.high == pytest.approx(normal.high, abs=0.1)


def test_too_few_or_equal_values_have_no_interval() -> None:
    for interval in (
        seed_range([0.5]),
        mean_interval([0.5]),
        mean_interval([1.0, 1.0]),
        median_interval([0.0001] * 5),  # the sign test of five seeds has p = 0.0625
        shift_interval([1.0] * 3, [0.0] * 3),  # the rank test has p = 0.1
    ):
        assert interval.low is None and interval.high is None and not interval.excludes_zero
    assert median_interval([0.0001] * 6).excludes_zero and shift_interval([1.0] * 4, [0.0] * 4).excludes_zero
    assert not median_interval([0.0] * 6).excludes_zero
    assert smallest_sample() == 6 and median_interval([1.0] * 6).low == 1.0


def test_permutation_tests_match_scipy() -> None:
    random = np.random.default_rng(0)
    for sizes in ((3, 3), (4, 5), (8, 8)):
        first, second = random.normal(0.8, 1, sizes[0]).tolist(), random.normal(0, 1, sizes[1]).tolist()
        expected = stats.permutation_test(
            (first, second),
            lambda a, b, axis: abs(a.mean(axis) - b.mean(axis)),
            n_resamples=np.inf,
            vectorized=True,
            alternative="greater",
        )
        assert permutation_p(first, second) == pytest.approx(expected.pvalue)


def test_permutation_tests_of_many_values_draw_arrangements() -> None:
    """Random arrangements give the p-value of a normal approximation within a few percent."""
    random = np.random.default_rng(1)
    first, second = random.normal(0.3, 1, 40).tolist(), random.normal(0, 1, 40).tolist()
    assert permutation_p(first, second) == pytest.approx(stats.ttest_ind(first, second).pvalue, rel=0.15)
    assert permutation_p([1.0] * 20, [0.0] * 20) == 1 / 20_000


def test_smallest_groups_of_a_permutation_test() -> None:
    assert [smallest_group(pairs) for pairs in (1, 6, 15)] == [4, 5, 6]
    assert permutation_p([1.0] * 4, [0.0] * 4) <= 0.05 < permutation_p([1.0] * 3, [0.0] * 3)


def test_corrections_for_many_tests_match_scipy() -> None:
    p_values = [0.01, 0.04, 0.03, 0.5, 0.01]
    assert holm(p_values) == pytest.approx([0.05, 0.09, 0.09, 0.5, 0.05])
    assert benjamini_hochberg(p_values) == pytest.approx(stats.false_discovery_control(p_values))
    assert holm([]) == benjamini_hochberg([]) == []


@pytest.mark.parametrize("successes", [0, 1, 37, 100])
def test_a_count_has_the_exact_interval(successes: int) -> None:
    expected = stats.binomtest(successes, 100).proportion_ci(method="exact")
    result = count_interval(successes, 100)
    assert (result.low, result.high) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("clusters", [5, 10, 20])
@pytest.mark.parametrize(("rate", "correlation"), [(0.25, 0), (0.25, 0.2), (0.005, 0), (0.005, 0.2), (0.95, 0.1)])
def test_shares_of_clustered_counts_have_their_coverage(clusters: int, rate: float, correlation: float) -> None:
    """Also for errors that come together in one sentence, and for samples without any error."""
    random, held = np.random.default_rng(0), 0
    for _ in range(300):
        wholes = random.integers(4, 15, clusters)
        scale = 1 / correlation - 1 if correlation else 0
        rates = random.beta(rate * scale, (1 - rate) * scale, clusters) if scale else np.full(clusters, rate)
        interval = ratio_interval(random.binomial(wholes, rates).astype(float), wholes.astype(float))
        assert interval is not None
        held += _covers(interval, rate)
    assert held / 300 >= 0.92


def test_a_ratio_of_one_cluster_has_no_interval() -> None:
    assert ratio_interval(np.array([1.0]), np.array([2.0])) is None
    assert ratio_interval(np.zeros(3), np.zeros(3)) is None
