"""Differences between variants, and false differences between equal variants."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from regard.sweep.comparison import Comparison, Variant, differences
from regard.sweep.job import Measured


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


def _verdicts(values: dict[str, list[float]]) -> dict[str, str]:
    contrasts = differences(_comparison(values), "exact_match")
    return {f"{c.one.name[2:]}-{c.other.name[2:]}": c.verdict for c in contrasts}


def test_three_seeds_are_too_few() -> None:
    values = {"x": [0.90, 0.91, 0.92], "y": [0.91, 0.89, 0.93], "z": [0.1, 0.11, 0.12]}
    assert set(_verdicts(values).values()) == {"too few seeds"}
    text = str(_comparison(values))
    assert "needs 5 seeds for 3 pairs" in text.replace("\n", " ")
    assert "median of all seeds with 75.0 % confidence" in text.replace("\n", " ")


def test_five_seeds_show_a_difference_for_every_distribution() -> None:
    values = {"x": [0.9, 0.91, 0.92, 0.9, 0.95], "y": [0.91, 0.89, 0.93, 0.92, 0.9]}
    values["z"] = [0.1, 0.12, 0.3, 0.1, 0.2]
    assert _verdicts(values) == {"x-y": "not shown to differ", "x-z": "different", "y-z": "different"}


def test_four_seeds_are_enough_for_one_pair_and_too_few_for_three() -> None:
    """The p-value of two separate groups of four is 2/70; Holm's correction for three pairs makes it 6/70."""
    values = {"x": [0.90, 0.91, 0.92, 0.93], "y": [0.5, 0.51, 0.52, 0.53]}
    assert _verdicts(values) == {"x-y": "different"}
    values["z"] = [0.1, 0.11, 0.12, 0.13]
    assert set(_verdicts(values).values()) == {"too few seeds"}
    assert [contrast.p_value for contrast in differences(_comparison(values), "exact_match")] == pytest.approx(
        [6 / 70] * 3
    )


def test_one_error_of_many_is_no_difference_although_all_seeds_agree() -> None:
    for seeds in (2, 3):
        assert _verdicts({"x": [1.0] * seeds, "y": [0.9999] * seeds}) == {"x-y": "too few seeds"}
    assert _verdicts({"x": [1.0] * 5, "y": [0.9999] * 5}) == {"x-y": "different"}  # 5 of 5 seeds, all below
    assert _verdicts({"x": [1.0], "y": [0.5]}) == {"x-y": "too few seeds"}


NULLS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda random, seeds: random.normal(0.5, 0.1, (6, seeds)),
    "skewed": lambda random, seeds: random.lognormal(0, 1, (6, seeds)),
    "counts near 100 %": lambda random, seeds: random.binomial(10_000, 0.9999, (6, seeds)) / 1e4,
    "near 100 % and skewed": lambda random, seeds: random.beta(20, 0.2, (6, seeds)).round(4),
    "one seed of ten fails": lambda random, seeds: np.where(random.random((6, seeds)) < 0.1, 0.5, 1.0),
    "half of the seeds fail": lambda random, seeds: (
        np.where(random.random((6, seeds)) < 0.5, 0.5, 1.0) + random.normal(0, 0.002, (6, seeds))
    ),
}


@pytest.mark.parametrize("seeds", [2, 3, 5, 7])
@pytest.mark.parametrize("null", NULLS)
def test_equal_variants_are_seldom_different(null: str, seeds: int) -> None:
    """Of comparisons of six equal variants, at most 5 in 100 call any of the fifteen pairs different, and in at most 5
    some interval excludes zero."""
    random, wrong, excluded = np.random.default_rng(0), 0, 0
    repetitions = 100 if seeds < 7 else 40
    for _ in range(repetitions):
        values = {str(name): row for name, row in enumerate(NULLS[null](random, seeds).tolist())}
        contrasts = differences(_comparison(values), "exact_match")
        wrong += any(contrast.shown for contrast in contrasts)
        excluded += any(contrast.interval.excludes_zero for contrast in contrasts)
    assert wrong / repetitions <= 0.05
    assert excluded / repetitions <= 0.05


def test_many_variants_are_compared_with_the_first() -> None:
    result = differences(_comparison({str(name): [0.1 * name, 0.1] for name in range(8)}), "exact_match")
    assert len(result) == 7 and all(contrast.one.name == "a=0" for contrast in result)


def test_the_least_seed_is_shown() -> None:
    """A seed that fails is hidden by a mean and its interval, and shown by the range."""
    comparison = _comparison({"x": [1.0, 1.0, 1.0, 1.0, 0.5], "y": [0.99998] * 5})
    assert "90.00% (50.00% to 100.00%)" in str(comparison)
    assert "99.99%" in str(comparison) and comparison.table()
    [first, _] = comparison.json()["means"]
    assert first["exact_match"] == {"value": 0.9, "low": 0.5, "high": 1.0, "median_confidence": 0.9375}
    assert comparison.json()["differences"]["exact_match"][0]["verdict"] == "not shown to differ"
