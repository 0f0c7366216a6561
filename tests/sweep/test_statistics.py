"""Means, differences and their intervals."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from regard.sweep import Comparison, Measured, Variant
from regard.sweep.statistics import difference, differences, mean


def test_a_mean_of_a_worked_example() -> None:
    """14, 15, 19: mean 16, deviation √7, Student's factor 4.303 with two degrees of freedom."""
    found = mean([14.0, 15.0, 19.0])
    assert found.low is not None and found.high is not None
    assert found.value == 16 and found.high - 16 == pytest.approx(4.3027 * (7 / 3) ** 0.5, rel=1e-4)
    assert 16 - found.low == pytest.approx(found.high - 16)


def test_what_is_never_below_zero_has_no_interval_there() -> None:
    assert mean([0.1, 2.0]).low == 0.0
    low = mean([-0.1, 2.0]).low
    assert low is not None and low < -1


def test_a_difference_is_welchs() -> None:
    one, other = [0.91, 0.95, 0.99, 0.97], [0.80, 0.92, 0.70]
    found = difference(one, other, 0.99)
    expected = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.99)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_intervals_hold_as_often_as_they_say() -> None:
    generator = np.random.default_rng(0)
    means = [mean(generator.normal(2, 1, 5).tolist()) for _ in range(1000)]
    assert 0.93 < np.mean([each.low < 2 < each.high for each in means]) < 0.97  # type: ignore[operator]
    both = [
        difference(generator.normal(1, 1, 6).tolist(), generator.normal(0, 3, 4).tolist()) for _ in range(1000)
    ]
    assert 0.92 < np.mean([each.low < 1 < each.high for each in both]) < 0.97  # type: ignore[operator]


def test_seeds_that_cannot_say() -> None:
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
        variant.name: list(map(measured, each)) for variant, each in zip(variants, values.values(), strict=True)
    }
    return Comparison("copy", Path(), variants, by_name)


def test_only_what_the_interval_shows_is_called_different() -> None:
    found = differences(
        _comparison({"x": [0.90, 0.91, 0.92], "y": [0.91, 0.89, 0.93], "z": [0.1, 0.11, 0.12]}), "exact_match"
    )
    assert [(each.one.name, each.other.name, each.shown) for each in found] == [
        ("a=x", "a=y", False),
        ("a=x", "a=z", True),
        ("a=y", "a=z", True),
    ]


def test_many_pairs_are_seldom_called_different_by_chance() -> None:
    """Six variants that are the same: of fifteen pairs, one is called different in at most about 5 of 100."""
    generator = np.random.default_rng(0)
    wrong = 0
    for _ in range(200):
        values = {str(name): generator.normal(0.5, 0.1, 5).tolist() for name in range(6)}
        wrong += any(each.shown for each in differences(_comparison(values), "exact_match"))
    assert wrong / 200 < 0.09


def test_very_many_variants_are_compared_with_the_first() -> None:
    found = differences(_comparison({str(name): [0.1 * name, 0.1] for name in range(8)}), "exact_match")
    assert len(found) == 7 and all(each.one.name == "a=0" for each in found)
