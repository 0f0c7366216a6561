"""What many seeds say: means, differences, and how far each can be trusted.

Intervals are Student's for a mean and Welch's (1947) for a difference of two, by SciPy. Two variants are called
different only where the interval of their difference leaves out zero; where several pairs are looked at, each
interval is widened so that all of them hold at once 95 times of 100 (Bonferroni).
"""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from regard.sweep.grid import Measurements, Variant

LEVEL = 0.95
MOST_PAIRS = 15
"""Pairs above which each variant is compared with the first one only."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A value and its 95 % interval; `low` and `high` are None where one seed cannot say."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """The mean of one variant less that of another."""

    one: Variant
    other: Variant
    interval: Interval

    @property
    def shown(self) -> bool:
        """Whether the interval leaves out zero."""
        low, high = self.interval.low, self.interval.high
        return low is not None and high is not None and (low > 0 or high < 0)


def mean(values: Sequence[float], level: float = LEVEL, *, share: bool = False) -> Interval:
    """Return the mean and its interval at `level`: of a `share`, one that stays from 0 to 1; of values that are
    nowhere below zero, one that is not either.

    That of a share is worked out for the arcsine of the shares' roots, whose spread hardly depends on the mean,
    and turned back.
    """
    from scipy.special import stdtrit  # of which scipy.stats makes the same, in half a second more

    middle = statistics.fmean(values)
    if len(values) < 2:
        return Interval(value=middle, low=None, high=None)
    width = float(stdtrit(len(values) - 1, (1 + level) / 2))
    if share:
        turned = [math.asin(min(max(value, 0.0), 1.0) ** 0.5) for value in values]
        half = width * statistics.stdev(turned) / len(turned) ** 0.5
        ends = (statistics.fmean(turned) + side * half for side in (-1, 1))
        low, high = (math.sin(min(max(end, 0.0), math.pi / 2)) ** 2 for end in ends)
        return Interval(value=middle, low=min(low, middle), high=max(high, middle))
    half = width * statistics.stdev(values) / len(values) ** 0.5
    low = max(middle - half, 0.0) if min(values) >= 0 else middle - half
    return Interval(value=middle, low=low, high=middle + half)


def difference(one: Sequence[float], other: Sequence[float], level: float = LEVEL) -> Interval:
    """Return the mean of `one` less that of `other`, and its interval at `level` (Welch's)."""
    from scipy.special import stdtrit

    value = statistics.fmean(one) - statistics.fmean(other)
    if len(one) < 2 or len(other) < 2:
        return Interval(value=value, low=None, high=None)
    if len({*one}) == len({*other}) == 1:  # every seed came to the same: there is no variance to divide by
        return Interval(value=value, low=value, high=value)
    parts = [(statistics.variance(each) / len(each), len(each) - 1) for each in (one, other)]
    error = sum(part for part, _ in parts)
    if not error:  # the seeds of each came to nearly the same
        return Interval(value=value, low=value, high=value)
    freedom = error**2 / sum(part**2 / free for part, free in parts)
    half = float(stdtrit(freedom, (1 + level) / 2)) * error**0.5
    return Interval(value=value, low=value - half, high=value + half)


def differences(comparison: Measurements, quantity: str) -> list[Contrast]:
    """Return the differences of a quantity between variants: of all pairs, or, where these are many, with the
    first variant. Variants without values are left out."""
    variants = [each for each in comparison.variants if comparison.values(each, quantity)]
    pairs = list(itertools.combinations(variants, 2))
    if len(pairs) > MOST_PAIRS:
        pairs = [(variants[0], each) for each in variants[1:]]
    level = 1 - (1 - LEVEL) / max(len(pairs), 1)
    return [
        Contrast(
            one=one,
            other=other,
            interval=difference(comparison.values(one, quantity), comparison.values(other, quantity), level),
        )
        for one, other in pairs
    ]
