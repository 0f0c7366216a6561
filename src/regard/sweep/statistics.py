"""Statistics over seeds: means and differences with confidence intervals.

Means have Student's intervals, and differences of two means have Welch's intervals (1947), computed with SciPy.
Two variants are called different only if the interval of their difference excludes zero. For several pairs,
each interval is widened so that all intervals hold at once with 95 % confidence (Bonferroni).
"""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from regard.sweep.grid import Measurements, Variant

LEVEL = 0.95
MAX_PAIRS = 15
"""Number of pairs above which each variant is compared only with the first variant."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A value and its 95 % interval. `low` and `high` are None for a single seed."""

    value: float
    low: float | None
    high: float | None

    @property
    def excludes_zero(self) -> bool:
        """Whether zero is outside the interval; False for a single seed."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """The mean of variant `one` minus the mean of variant `other`."""

    one: Variant
    other: Variant
    interval: Interval

    @property
    def shown(self) -> bool:
        """Whether the interval excludes zero, which shows a difference."""
        return self.interval.excludes_zero


def mean(values: Sequence[float], level: float = LEVEL, *, share: bool = False) -> Interval:
    """Return the mean and its interval at `level`.

    The interval of a `share` is limited to the range from 0 to 1, and the interval of non-negative values has
    no negative bounds.

    >>> mean([14.0, 15.0, 19.0]).value
    16.0
    """
    from scipy.special import (
        stdtrit,
    )  # scipy.stats gives the same numbers, but its import takes half a second longer

    middle = statistics.fmean(values)
    if len(values) < 2:
        return Interval(value=middle, low=None, high=None)
    width = float(stdtrit(len(values) - 1, (1 + level) / 2))
    if share:
        # The variance of arcsin(sqrt(share)) hardly depends on the mean, so the interval is computed for this
        # transformed value.
        angles = [math.asin(min(max(value, 0.0), 1.0) ** 0.5) for value in values]
        half = width * statistics.stdev(angles) / len(angles) ** 0.5
        ends = (statistics.fmean(angles) + side * half for side in (-1, 1))
        low, high = (math.sin(min(max(end, 0.0), math.pi / 2)) ** 2 for end in ends)
        return Interval(value=middle, low=min(low, middle), high=max(high, middle))
    half = width * statistics.stdev(values) / len(values) ** 0.5
    low = max(middle - half, 0.0) if min(values) >= 0 else middle - half
    return Interval(value=middle, low=low, high=middle + half)


def difference(first: Sequence[float], second: Sequence[float], level: float = LEVEL) -> Interval:
    """Return the mean of `first` minus the mean of `second`, with Welch's interval at `level`."""
    from scipy.special import stdtrit

    value = statistics.fmean(first) - statistics.fmean(second)
    if len(first) < 2 or len(second) < 2:
        return Interval(value=value, low=None, high=None)
    if len({*first}) == len({*second}) == 1:  # no variance to divide by
        return Interval(value=value, low=value, high=value)
    parts = [(statistics.variance(values) / len(values), len(values) - 1) for values in (first, second)]
    error = sum(part for part, _ in parts)
    if not error:  # variances that round to zero
        return Interval(value=value, low=value, high=value)
    freedom = error**2 / sum(part**2 / free for part, free in parts)
    half = float(stdtrit(freedom, (1 + level) / 2)) * error**0.5
    return Interval(value=value, low=value - half, high=value + half)


def paired_mean(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Return the mean of paired differences, one per seed, and its Student's interval at `level`.

    >>> paired_mean([1.0, 2.0, 3.0]).value
    2.0
    """
    from scipy.special import stdtrit

    middle = statistics.fmean(values)
    if len(values) < 2:
        return Interval(value=middle, low=None, high=None)
    half = float(stdtrit(len(values) - 1, (1 + level) / 2)) * statistics.stdev(values) / len(values) ** 0.5
    return Interval(value=middle, low=middle - half, high=middle + half)


def differences(comparison: Measurements, quantity: str) -> list[Contrast]:
    """Return the differences of a quantity between all pairs of variants.

    With more than `MAX_PAIRS` pairs, only differences from the first variant are returned. Variants without
    values are omitted.
    """
    variants = [variant for variant in comparison.variants if comparison.values(variant, quantity)]
    pairs = list(itertools.combinations(variants, 2))
    if len(pairs) > MAX_PAIRS:
        pairs = [(variants[0], variant) for variant in variants[1:]]
    level = 1 - (1 - LEVEL) / max(len(pairs), 1)
    return [
        Contrast(
            one=first,
            other=second,
            interval=difference(comparison.values(first, quantity), comparison.values(second, quantity), level),
        )
        for first, second in pairs
    ]
