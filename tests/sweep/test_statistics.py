"""Means and differences with their intervals."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from regard.sweep import Comparison, Measured, Variant
from regard.sweep.statistics import difference, differences, mean


def test_a_mean_of_a_worked_example() -> None:
    """14, 15, 19: mean 16, deviation √7, Student's factor 4.303 with two degrees of freedom."""
    result = mean([14.0, 15.0, 19.0])
    assert result.low is not None and result.high is not None
    assert result.value == 16 and result.high - 16 == pytest.approx(4.3027 * (7 / 3) ** 0.5, rel=1e-4)
    assert 16 - result.low == pytest.approx(result.high - 16)


def test_intervals_of_non_negative_values_are_not_negative() -> None:
    assert mean([0.1, 2.0]).low == 0.0
    low = mean([-0.1, 2.0]).low
    assert low is not None and low < -1


def test_a_difference_matches_welchs_interval() -> None:
    first, second = [0.91, 0.95, 0.99, 0.97], [0.80, 0.92, 0.70]
    result = difference(first, second, 0.99)
    expected = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.99)
    assert (result.low, result.high) == pytest.approx((expected.low, expected.high))


def test_intervals_have_their_coverage() -> None:
    generator = np.random.default_rng(0)
    means = [mean(generator.normal(2, 1, 5).tolist()) for _ in range(1000)]
    assert 0.93 < np.mean([interval.low < 2 < interval.high for interval in means]) < 0.97  # type: ignore[operator]
    both = [
        difference(generator.normal(1, 1, 6).tolist(), generator.normal(0, 3, 4).tolist()) for _ in range(1000)
    ]
    assert 0.92 < np.mean([interval.low < 1 < interval.high for interval in both]) < 0.97  # type: ignore[operator]


def test_a_single_seed_and_equal_seeds() -> None:
    assert mean([0.5]).low is None and difference([0.5], [0.1, 0.2]).high is None
    same = difference([1.0, 1.0], [1.0, 1.0])
    assert (same.value, same.low, same.high) == (0.0, 0.0, 0.0)
    apart = difference([1.0, 1.0], [0.5, 0.5])
    assert (apart.low, apart.high) == (0.5, 0.5)


def _comparison(values: dict[str, list[float]]) -> Comparison:
    def measured(value: float) -> Measured:
        return Measured(
            exact_match=value,
            steps_to_99=None,
            parameters=1,
            seconds=1.0,
            loss=1.0,
            relevance=None,
            uniform=None,
            alignment_error=None,
        )

    variants = [Variant({"a": name}) for name in values]
    by_name = {
        variant.name: list(map(measured, seeds)) for variant, seeds in zip(variants, values.values(), strict=True)
    }
    return Comparison("copy", Path(), variants, by_name)


def test_different_only_if_the_interval_excludes_zero() -> None:
    result = differences(
        _comparison({"x": [0.90, 0.91, 0.92], "y": [0.91, 0.89, 0.93], "z": [0.1, 0.11, 0.12]}), "exact_match"
    )
    assert [(contrast.one.name, contrast.other.name, contrast.shown) for contrast in result] == [
        ("a=x", "a=y", False),
        ("a=x", "a=z", True),
        ("a=y", "a=z", True),
    ]


def test_many_pairs_are_seldom_different_by_chance() -> None:
    """For six equal variants, at most about 5 of 100 comparisons report a difference in any of the fifteen
    pairs."""
    generator = np.random.default_rng(0)
    wrong = 0
    for _ in range(200):
        values = {str(name): generator.normal(0.5, 0.1, 5).tolist() for name in range(6)}
        wrong += any(contrast.shown for contrast in differences(_comparison(values), "exact_match"))
    assert wrong / 200 < 0.09


def test_many_variants_are_compared_with_the_first() -> None:
    result = differences(_comparison({str(name): [0.1 * name, 0.1] for name in range(8)}), "exact_match")
    assert len(result) == 7 and all(contrast.one.name == "a=0" for contrast in result)
