"""Intervals and tests, over training seeds, over counts, and over many hypotheses.

Seeds are few, and their results are seldom normal: exact match is bounded, and some seeds fail. No interval of
the mean of 3 to 10 such values covers the true mean in 95 % of cases (docs/dev/claims.md). Therefore statements on
seeds are about the median, or about a shift, with intervals from ranks: `seed_range`, `median_interval` and
`shift_interval` hold for every distribution. `permutation_p` is exact for every distribution. Student's interval
(`mean_interval`) assumes normal values.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from regard.arguments import public

LEVEL = 0.95
MAX_ARRANGEMENTS = 13_000
"""Largest number of arrangements that a permutation test enumerates, enough for two groups of 8; else random ones."""
DRAWN_ARRANGEMENTS = 19_999
BLOCK = 100_000
"""Number of values that are permuted at once. All arrangements of hundreds of seeds would need hundreds of MB."""


@public
@dataclass(frozen=True, kw_only=True)
class Interval:
    """A value and its interval. `low` and `high` are None if the values do not determine an interval."""

    value: float
    low: float | None
    high: float | None

    @property
    def excludes_zero(self) -> bool:
        """Whether zero is outside the interval; False without an interval."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def seed_range(values: Sequence[float]) -> Interval:
    """Return the mean of one value per seed, and the smallest and the largest value.

    The range contains the median of all seeds with `range_confidence(len(values))`, for every distribution
    (Conover 1999, "Practical Nonparametric Statistics", section 3.2).

    >>> seed_range([0.5, 0.75, 1.0])
    Interval(value=0.75, low=0.5, high=1.0)
    """
    middle = statistics.fmean(values)
    if len(values) < 2:
        return Interval(value=middle, low=None, high=None)
    return Interval(value=middle, low=min(values), high=max(values))


def format_interval(interval: Interval, form: Callable[[float], str]) -> str:
    """Format a value, and its interval if the printed digits of its ends differ.

    >>> format_interval(seed_range([1, 2]), "{:.1f}".format), format_interval(seed_range([2, 2]), "{:.0f}".format)
    ('1.5 (1.0 to 2.0)', '2')
    """
    value = form(interval.value)
    if interval.low is None or interval.high is None or form(interval.low) == form(interval.high):
        return value
    return f"{value} ({form(interval.low)} to {form(interval.high)})"


def range_confidence(seeds: int, rank: int = 1) -> float:
    """Return the probability (0 to 1) that the range of `seeds` values contains the median of all seeds; with a `rank`,
    the range from the value with this rank to the one with the same rank from above.

    >>> range_confidence(5), range_confidence(9, 2)
    (0.9375, 0.9609375)
    """
    return 1.0 - 2.0 * sum(math.comb(seeds, below) for below in range(rank)) / 2.0**seeds


def median_rank(seeds: int, level: float = LEVEL) -> int:
    """Return the largest rank whose `range_confidence` is at least `level`; 0 if there is none.

    >>> median_rank(5), median_rank(9)
    (0, 2)
    """
    # Rounding of `level`, which is often 1 minus a small number, must not exclude a rank.
    return max((rank for rank in range(1, seeds // 2 + 1) if range_confidence(seeds, rank) >= level - 1e-12), default=0)


def describe_range(seeds: int) -> str:
    """Return a sentence on what the range of `seeds` values covers.

    >>> describe_range(3)
    'The range of 3 seeds contains the median of all seeds with 75.0 % confidence (95 % need 6 seeds).'
    """
    if seeds < 2:
        return "One seed has no range: train more seeds."
    confidence = f"{100 * range_confidence(seeds):.1f}" if seeds < 10 else "more than 99"
    more = " (95 % need 6 seeds)" if seeds < 6 else ""
    return f"The range of {seeds} seeds contains the median of all seeds with {confidence} % confidence{more}."


def mean_interval(values: Sequence[float], bounds: tuple[float, float] | None = None, level: float = LEVEL) -> Interval:
    """Return the mean of one value per seed, and Student's interval at `level`, clipped to `bounds`.

    Use it for figures that vary about normally, and `seed_range` for exact match and other figures of which most
    seeds are near a bound. Measured coverage at 3 to 10 seeds: normal 0.95, Beta(4, 3) 0.94, lognormal 0.83,
    Beta(20, 0.2) 0.67 to 0.77. Equal values have no spread, and no interval.

    >>> mean_interval([14.0, 15.0, 19.0]).value
    16.0
    """
    middle = statistics.fmean(values)
    if len(values) < 2 or _spread(values) == 0:
        return Interval(value=middle, low=None, high=None)
    half = _student(len(values) - 1, level) * _spread(values) / len(values) ** 0.5
    low, high = bounds or (-math.inf, math.inf)
    return Interval(value=middle, low=max(middle - half, low), high=min(middle + half, high))


def median_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Return the median of one value per seed, and the interval of the sign test for the median of all seeds.

    Its ends are two of the values. It covers with `level` or more for every distribution, also a skewed one and one
    with failed seeds (Conover 1999, section 3.2). It has no ends for fewer than `smallest_sample(level)` values.

    >>> median_interval([1.0, 2.0, 3.0, 4.0, 9.0, 5.0])
    Interval(value=3.5, low=1.0, high=9.0)
    """
    ordered, rank = sorted(values), median_rank(len(values), level)
    low, high = (ordered[rank - 1], ordered[-rank]) if rank else (None, None)
    return Interval(value=statistics.median(values), low=low, high=high)


def smallest_sample(level: float = LEVEL) -> int:
    """Return the number of seeds from which `median_interval` has ends.

    >>> smallest_sample(), smallest_sample(1 - 0.05 / 25)
    (6, 10)
    """
    return next(seeds for seeds in itertools.count(2) if median_rank(seeds, level))


def shift_interval(first: Sequence[float], second: Sequence[float], level: float = LEVEL) -> Interval:
    """Return the median of all differences of a value of `first` and one of `second`, and the interval of the rank
    test of Mann and Whitney (1947) for the shift between two groups (Hodges and Lehmann 1963).

    It covers with `level` or more if the distributions of the groups differ by a shift only, whatever their form. It
    has no ends if no arrangement of groups of these sizes is rare enough. Groups of more than 40 values use the normal
    approximation of the ranks.

    >>> shift_interval([3.0, 4.0, 5.0, 6.0], [0.0, 0.0, 0.0, 0.0])
    Interval(value=4.5, low=3.0, high=6.0)
    """
    pairs = np.subtract.outer(np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)).ravel()
    pairs.sort()
    m, n = len(first), len(second)
    if max(m, n) > 40:
        width = statistics.NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(m * n * (m + n + 1) / 12)
        outside = max(0, math.floor(m * n / 2 - width))
    else:
        # chances[j] has the probabilities of the number of pairs with a positive difference, for groups of i and j
        chances = [np.ones(1)] * (n + 1)
        for i in range(1, m + 1):
            for j in range(1, n + 1):
                chance = np.zeros(i * j + 1)
                chance[j:] += i * chances[j]
                chance[: len(chances[j - 1])] += j * chances[j - 1]
                chances[j] = chance / (i + j)
        outside = int((2 * chances[n].cumsum() <= 1 - level + 1e-12).sum())
    low, high = (float(pairs[outside - 1]), float(pairs[-outside])) if outside else (None, None)
    return Interval(value=float(np.median(pairs)), low=low, high=high)


def permutation_p(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the p-value of the permutation test (Fisher 1935; Pitman 1937) that two groups have one distribution.

    It is the fraction of all assignments of the values to the groups for which the means differ at least as much. It
    holds for every distribution. Of more than `MAX_ARRANGEMENTS` assignments, random ones are drawn, and the observed
    one is counted among them (Phipson and Smyth 2010).

    >>> permutation_p([1.0, 1.0, 1.0], [0.9999, 0.9999, 0.9999])
    0.1
    """
    values, size = np.array([*first, *second], dtype=np.float64), len(first)
    values -= values.mean()
    observed = abs(values[:size].sum())
    tolerance = 1e-9 * float(np.abs(values).sum())  # sums in another order differ by rounding
    if math.comb(len(values), size) <= MAX_ARRANGEMENTS:
        chosen = np.array(list(itertools.combinations(range(len(values)), size)))
        return float((np.abs(values[chosen].sum(1)) >= observed - tolerance).mean())
    random, extreme = np.random.default_rng(0), 1
    rows = 1 + BLOCK // len(values)
    for begin in range(0, DRAWN_ARRANGEMENTS, rows):
        block = np.tile(values, (min(rows, DRAWN_ARRANGEMENTS - begin), 1))
        sums = random.permuted(block, axis=1, out=block)[:, :size].sum(1)
        extreme += int((np.abs(sums) >= observed - tolerance).sum())
    return extreme / (1 + DRAWN_ARRANGEMENTS)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number (Holm 1979): rejecting those up to 0.05 makes any false rejection
    at most 5 % likely.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min((len(p_values) - rank) * p_values[index], 1.0))
        adjusted[index] = largest
    return adjusted


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted so that rejecting those up to q keeps the expected fraction of false rejections
    at q or below (Benjamini and Hochberg 1995; valid for independent and positively dependent tests).

    >>> benjamini_hochberg([0.01, 0.5, 0.03, 0.04])
    [0.04, 0.5, 0.05333333333333334, 0.05333333333333334]
    """
    count, smallest = len(p_values), 1.0
    adjusted = [1.0] * count
    for rank, index in reversed(list(enumerate(sorted(range(count), key=lambda i: p_values[i]), 1))):
        smallest = min(smallest, p_values[index] * count / rank)
        adjusted[index] = smallest
    return adjusted


def count_interval(successes: float, trials: float, level: float = LEVEL) -> Interval:
    """Return the share `successes / trials` and its exact interval (Clopper and Pearson 1934).

    Fractional counts are allowed, for effective sample sizes.

    >>> interval = count_interval(0, 100)
    >>> interval.low, round(interval.high, 4)
    (0.0, 0.0362)
    """
    from scipy.special import betaincinv  # SciPy takes long to import

    tail = (1 - level) / 2
    low = 0.0 if successes <= 0 else float(betaincinv(successes, trials - successes + 1, tail))
    high = 1.0 if successes >= trials else float(betaincinv(successes + 1, trials - successes, 1 - tail))
    return Interval(value=successes / trials, low=low, high=high)


def ratio_interval(parts: np.ndarray, wholes: np.ndarray, level: float = LEVEL) -> Interval | None:
    """Return the share `parts.sum() / wholes.sum()` of counts (N,) by cluster, with its interval; None for fewer
    than two clusters, or if all wholes are 0.

    Counts of one cluster (the links of a sentence) depend on each other. The interval is the exact one of an
    effective number of trials (Korn and Graubard 1998, "Confidence intervals for proportions with small expected
    number of positive counts", Survey Methodology 24): p (1 - p) / variance, with the variance of a ratio over
    clusters, at most the number of trials. If all counts are 0, or all are complete, the variance is unknown, and
    the effective number is the number of clusters.

    >>> ratio_interval(np.array([0, 1, 0, 0]), np.array([10, 10, 10, 10])).value
    0.025
    """
    total, clusters = float(wholes.sum()), len(wholes)
    if clusters < 2 or not total:
        return None
    share = float(parts.sum()) / total
    residuals = parts - share * wholes
    variance = clusters / (clusters - 1) * float(residuals @ residuals) / total**2
    trials = float(clusters)
    if variance > 0 and 0 < share < 1:
        trials = min(share * (1 - share) / variance, total)
        trials *= (_student(max(total - 1, 1), level) / _student(clusters - 1, level)) ** 2
    interval = count_interval(share * trials, trials, level)
    return Interval(value=share, low=interval.low, high=interval.high)


def auroc(scores: np.ndarray, truth: np.ndarray) -> float | None:
    """Return the area under the ROC curve of scores (N,) for truth (N,) bool; None if the truth has one class.

    It is the probability that a true item has a larger score than a false one; ties count one half (Hanley and
    McNeil 1982).

    Computed from average ranks as the statistic of Mann and Whitney (1947). Scores may be infinite. Raises
    `ValueError` for NaN.

    >>> auroc(np.array([0.1, 0.9, 0.5]), np.array([False, True, True]))
    1.0
    >>> auroc(np.array([1.0, 1.0]), np.array([False, True]))
    0.5
    """
    scores, truth = np.asarray(scores, dtype=np.float64), np.asarray(truth, dtype=bool)
    if np.isnan(scores).any():
        raise ValueError("scores contain NaN")
    positive = int(truth.sum())
    negative = len(truth) - positive
    if not positive or not negative:
        return None
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]  # equal scores share the mean of their ranks
    wins = ranks[truth].sum() - positive * (positive + 1) / 2
    return float(wins / (positive * negative))


def smallest_group(pairs: int, level: float = LEVEL) -> int:
    """Return the number of seeds per group from which `permutation_p` can show a difference for `pairs` pairs at once.

    >>> smallest_group(1), smallest_group(15)
    (4, 6)
    """
    return next(size for size in itertools.count(2) if 2 * pairs / math.comb(2 * size, size) <= 1 - level + 1e-12)


def _spread(values: Sequence[float]) -> float:
    """Return the standard deviation of values; 0 if they differ by rounding only."""
    deviation = statistics.stdev(values)
    return 0.0 if deviation <= 1e-12 * max(map(abs, values)) else deviation


def _student(freedom: float, level: float) -> float:
    # scipy.stats gives the same numbers, but its import takes half a second longer.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2))
