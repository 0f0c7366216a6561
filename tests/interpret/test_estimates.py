"""Coverage of intervals for few samples, and limits of intervals of fractions."""

import numpy as np
import pytest

from regard.interpret.estimates import estimate, resample_counts
from regard.sweep.statistics import mean


@pytest.mark.parametrize(("samples", "least"), [(5, 0.90), (20, 0.92)])
def test_intervals_of_few_samples_have_their_coverage(samples: int, least: float) -> None:
    random, draw, held = np.random.default_rng(1), resample_counts(samples, 0), 0
    for _ in range(200):
        result = estimate(random.beta(4, 3, samples), draw)
        assert result is not None and 0 <= result.low <= result.mean <= result.high <= 1
        held += result.low <= 4 / 7 <= result.high
    assert held / 200 >= least


def test_intervals_of_shares_over_seeds_stay_within_0_and_1() -> None:
    values = [0.999, 1.0, 0.93, 1.0, 1.0]
    plain, share = mean(values), mean(values, share=True)
    assert plain.high is not None and plain.high > 1
    assert share.low is not None and share.high is not None
    assert 0.85 < share.low < share.value == plain.value < share.high <= 1
    spread = mean([0.4, 0.5, 0.6], share=True)
    assert spread.low == pytest.approx(mean([0.4, 0.5, 0.6]).low, abs=0.01)
