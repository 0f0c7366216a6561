"""Means over samples, with how far they can be trusted: bootstrap over the samples (Efron 1979)."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
LEVEL = 0.95
ENOUGH = 50
"""Samples that an interval needs to hold the mean about as often as it says, of skewed values too."""


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
        """The same in percent."""
        return f"{self.mean:.1%} ({self.low:.1%} to {self.high:.1%})"


def describe_interval(samples: int) -> str:
    """Say what the intervals of so many samples are."""
    if samples >= ENOUGH:
        return "95 % interval over the samples"
    return f"interval over the samples, too narrow for 95 %: ask {ENOUGH} or more"


NOT_MEASURED = "not measured"


def said(found: Estimate | None, form: Callable[[Estimate], str] = str) -> str:
    """Write an estimate, or that there is none."""
    return NOT_MEASURED if found is None else form(found)


def resample_counts(samples: int, seed: int) -> np.ndarray:
    """Return (R, N): how often each of N samples is drawn in each of R resamples."""
    random = np.random.default_rng(seed)
    return random.multinomial(samples, np.full(samples, 1 / samples), size=RESAMPLES)


def estimate(values: Sequence[float] | np.ndarray, draw: np.ndarray) -> Estimate | None:
    """Return the mean of values and its interval by `draw` (R, N): how often each of N samples is drawn.

    A sample without a value (NaN) counts in neither. Of fewer than two samples nothing is known: None.
    """
    values = np.asarray(values, dtype=np.float64)
    known = ~np.isnan(values)
    if known.sum() < 2:
        return None
    counts = draw[:, known]
    total = counts.sum(1)
    means = (counts @ values[known])[total > 0] / total[total > 0]
    mean, count = float(values[known].mean()), int(known.sum())
    wider = _wider(count)
    low, high = (
        mean + wider * (float(end) - mean) for end in np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    )
    if values[known].min() >= 0 and values[known].max() <= 1:  # shares
        low, high = max(low, 0.0), min(high, 1.0)
    return Estimate(mean=mean, low=low, high=high)


@functools.cache
def _wider(count: int) -> float:
    """Return how much wider an interval of few samples has to be than the bootstrap's: what Student's is beyond
    the normal distribution's, and what a variance loses that is taken around the samples' own mean."""
    from scipy import special  # of which scipy.stats makes the same, in half a second more

    student, normal = special.stdtrit(count - 1, (1 + LEVEL) / 2), special.ndtri((1 + LEVEL) / 2)
    return float(student / normal * (count / (count - 1)) ** 0.5)
