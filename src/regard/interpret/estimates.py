"""Means over samples with bootstrap intervals (Efron 1979)."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
"""Number of resamples; 50 resamples then lie beyond each end of a 95 % interval."""
LEVEL = 0.95
MIN_SAMPLES = 50
"""Smallest number of samples for which a 95 % interval contains the mean in about 95 % of cases, also for skewed
values."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Estimate:
    """A mean over samples and its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} ({self.low:.3f} to {self.high:.3f})"

    def __repr__(self) -> str:
        return f"<Estimate: {self}>"

    @property
    def percent(self) -> str:
        """The estimate as a percentage."""
        return f"{self.mean:.1%} ({self.low:.1%} to {self.high:.1%})"


def describe_interval(samples: int) -> str:
    """Return a caption for the intervals over `samples` samples.

    >>> describe_interval(200)
    '95 % interval over the samples'
    """
    if samples >= MIN_SAMPLES:
        return "95 % interval over the samples"
    return f"interval over the samples, too narrow for 95 %: use at least {MIN_SAMPLES} samples"


NOT_MEASURED = "not measured"


def format_estimate(estimate: Estimate | None, form: Callable[[Estimate], str] = str) -> str:
    """Format an estimate, or return "not measured".

    >>> format_estimate(Estimate(mean=0.5, low=0.4, high=0.6))
    '0.500 (0.400 to 0.600)'
    """
    return NOT_MEASURED if estimate is None else form(estimate)


def resample_counts(samples: int, seed: int) -> np.ndarray:
    """Return the number of times that each of N samples is drawn in each of R resamples, (R, N)."""
    # The result contains counts instead of indices, so that one matrix product computes the means of all
    # resamples.
    random = np.random.default_rng(seed)
    return random.multinomial(samples, np.full(samples, 1 / samples), size=RESAMPLES)


def estimate(values: Sequence[float] | np.ndarray, draw: np.ndarray) -> Estimate | None:
    """Return the mean of values (N) and its interval; `draw`: (R, N) from `resample_counts`. Samples without a
    value (NaN) are ignored. The result is None for fewer than two values.

    >>> estimate([1.0, 1.0, float("nan")], resample_counts(3, seed=0))
    <Estimate: 1.000 (1.000 to 1.000)>
    """
    values = np.asarray(values, dtype=np.float64)
    known = ~np.isnan(values)
    if known.sum() < 2:
        return None
    # A resample that contains only samples without a value has no mean and is left out.
    counts = draw[:, known]
    total = counts.sum(1)
    means = (counts @ values[known])[total > 0] / total[total > 0]
    mean, count = float(values[known].mean()), int(known.sum())
    factor = _widening_factor(count)
    low, high = (
        mean + factor * (float(end) - mean) for end in np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    )
    if values[known].min() >= 0 and values[known].max() <= 1:  # shares: widening must not leave their range
        low, high = max(low, 0.0), min(high, 1.0)
    return Estimate(mean=mean, low=low, high=high)


@functools.cache
def _widening_factor(count: int) -> float:
    """Return the factor by which the bootstrap interval of few samples is widened.

    A bootstrap interval of few samples is too narrow for two reasons. The bootstrap uses the normal distribution
    instead of Student's, and its variance is taken around the samples' own mean, so it is too small by the factor
    (n - 1) / n.
    """
    from scipy import special  # scipy.stats gives the same numbers, but its import takes half a second longer

    student, normal = special.stdtrit(count - 1, (1 + LEVEL) / 2), special.ndtri((1 + LEVEL) / 2)
    return float(student / normal * (count / (count - 1)) ** 0.5)
