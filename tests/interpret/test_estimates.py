"""Coverage of intervals over samples, and limits of intervals of fractions."""

from collections.abc import Callable

import numpy as np
import pytest

from regard.interpret.estimates import Estimate, estimate, resample_counts, unseen_share


def _coverage(
    draw: Callable[[np.random.Generator], np.ndarray],
    mean: float,
    samples: int,
    repetitions: int,
    bounds: tuple[float, float] | None = None,
) -> float:
    random, resamples, held = np.random.default_rng(1), resample_counts(samples, 0), 0
    for _ in range(repetitions):
        result = estimate(draw(random), resamples, bounds)
        assert result is not None and result.low <= result.mean <= result.high
        held += result.low <= mean <= result.high
    return held / repetitions


@pytest.mark.parametrize("samples", [3, 5, 10, 20, 50])
def test_intervals_of_shares_have_their_coverage(samples: int) -> None:
    def near_one(random: np.random.Generator) -> np.ndarray:
        return random.beta(20, 0.2, samples)

    assert _coverage(lambda random: random.beta(4, 3, samples), 4 / 7, samples, 200, (0, 1)) >= 0.92
    assert _coverage(near_one, 20 / 20.2, samples, 200, (0, 1)) >= 0.92
    assert _coverage(lambda random: random.random(samples) < 0.98, 0.98, samples, 200, (0, 1)) >= 0.92


@pytest.mark.parametrize("samples", [200, 1000])
def test_intervals_of_skewed_values_have_their_coverage(samples: int) -> None:
    def rare(random: np.random.Generator) -> np.ndarray:
        return np.where(random.random(samples) < 0.02, random.exponential(1, samples), 0.0)

    repetitions = 200 if samples < 1000 else 60
    assert _coverage(lambda random: random.lognormal(0, 1, samples), float(np.exp(0.5)), samples, repetitions) >= 0.9
    assert _coverage(rare, 0.02, samples, repetitions) >= 0.9


def test_nats_are_not_clipped_and_shares_are() -> None:
    """An interval does not depend on whether all values happen to lie between 0 and 1."""
    draw = resample_counts(3, 0)
    result, shifted = estimate([0.9, 0.01, 0.005], draw), estimate([1.9, 1.01, 1.005], draw)
    assert result is not None and shifted is not None and result.low < 0 and result.high > 1
    assert (result.low + 1, result.high + 1) == pytest.approx((shifted.low, shifted.high))
    share = estimate([0.9, 0.01, 0.005], draw, (0, 1))
    assert share is not None and (share.low, share.high) == (0, 1)


def test_shares_at_a_bound_allow_for_values_that_no_sample_shows() -> None:
    result = estimate([1.0] * 200, resample_counts(200, 0), (0, 1))
    assert result is not None and result.high == 1 and result.low == pytest.approx(0.025 ** (1 / 200))
    assert unseen_share(1000) == pytest.approx(3.69 / 1000, rel=0.01)
    middle = estimate([1 / 3] * 200, resample_counts(200, 0), (0, 1))
    assert middle is not None and (middle.low, middle.high) == (middle.mean, middle.mean)


def test_samples_without_a_value_do_not_count() -> None:
    assert estimate([float("nan")] * 3, resample_counts(3, 0)) is None


def test_few_values_with_spread_are_limited_by_the_observed_values() -> None:
    """Of 30 values, one differs: most resamples have no variance, and do not make an end infinite."""
    result = estimate([0.0] * 29 + [3.0], resample_counts(30, 0))
    assert result is not None and result.low <= 0.1 and result.high == 3.0


def test_estimates_do_not_print_negative_zeros_or_a_rounded_100_percent() -> None:
    result = Estimate(mean=0.99998, low=-0.0001, high=1.0)
    assert result.percent == "99.9% (0.0% to 100.0%)"
    assert str(Estimate(mean=-0.0001, low=-0.2, high=0.0)) == "0.000 (-0.200 to 0.000)"
