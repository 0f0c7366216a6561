"""Differences between variants over seeds, and whether they are shown.

Each difference has Welch's interval, widened so that all intervals hold at once with 95 % confidence
(Bonferroni), if seeds vary normally. Seeds that succeed or fail do not vary normally: of six equal variants of
which half of the seeds fail, such intervals exclude zero for some pair in 29 % of comparisons with three seeds.
A verdict therefore is "different" only if the permutation test, which holds for every distribution, also
rejects (Holm's correction for the number of pairs).
"""

import itertools
from dataclasses import dataclass
from typing import Literal

from regard.arguments import public
from regard.statistics import LEVEL, Interval, holm, permutation_p, smallest_group, welch_difference
from regard.sweep.grid import Measurements, Variant

MAX_PAIRS = 15
"""Number of pairs above which each variant is compared only with the first variant."""
Verdict = Literal["different", "different if seeds vary normally", "not shown to differ", "unknown with one seed"]


@public
@dataclass(frozen=True, kw_only=True)
class Contrast:
    """The mean of variant `one` minus the mean of variant `other`."""

    one: Variant
    other: Variant
    interval: Interval
    """Welch's interval; without ends if the seeds of each variant agree, which leaves no spread to estimate
    it."""
    seeds: int
    """Number of seeds of the variant with fewer seeds."""
    p_value: float
    """P-value of the permutation test, corrected for the number of pairs."""

    @property
    def verdict(self) -> Verdict:
        """What the seeds show; see the module."""
        if self.seeds < 2:
            return "unknown with one seed"
        agree = self.interval.low is None
        if self.p_value <= 1 - LEVEL and (agree or self.interval.excludes_zero):
            return "different"
        return "different if seeds vary normally" if self.interval.excludes_zero else "not shown to differ"

    @property
    def shown(self) -> bool:
        """Whether a difference is shown for every distribution of the seeds."""
        return self.verdict == "different"


def differences(comparison: Measurements, quantity: str) -> list[Contrast]:
    """Return the differences of a quantity between all pairs of variants.

    With more than `MAX_PAIRS` pairs, only differences from the first variant are returned. Variants without
    values are omitted.
    """
    values = {variant.name: comparison.values(variant, quantity) for variant in comparison.variants}
    variants = [variant for variant in comparison.variants if values[variant.name]]
    pairs = list(itertools.combinations(variants, 2))
    if len(pairs) > MAX_PAIRS:
        pairs = [(variants[0], variant) for variant in variants[1:]]
    level = 1 - (1 - LEVEL) / max(len(pairs), 1)
    samples = [(values[first.name], values[second.name]) for first, second in pairs]
    return [
        Contrast(
            one=one,
            other=other,
            interval=welch_difference(*groups, level),
            seeds=min(map(len, groups)),
            p_value=p_value,
        )
        for (one, other), groups, p_value in zip(
            pairs, samples, holm([permutation_p(*groups) for groups in samples]), strict=True
        )
    ]


def describe_verdicts(contrasts: list[Contrast]) -> str:
    """Return a note that says what the verdicts mean for this number of seeds and pairs."""
    pairs, seeds = len(contrasts), min(contrast.seeds for contrast in contrasts)
    note = "different: by an exact permutation test with Holm's correction"
    if seeds < (least := smallest_group(pairs)):
        note += f", which needs {least} seeds for {pairs} pair{'s' * (pairs > 1)}"
    return f"{note}. Intervals assume that seeds vary normally, not that some succeed and others fail."
