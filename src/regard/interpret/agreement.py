"""Compare word links with reference links: alignment error rate, precision and recall.

    precision = |A and P| / |A|      recall = |A and S| / |S|
    alignment error rate = 1 - (|A and S| + |A and P|) / (|A| + |S|)      Och and Ney 2003, equations 11 to 13

A, S and P are the sets of predicted links, sure reference links and possible reference links. Counts are summed
over all sentences. Intervals are those of counts that depend on each other within a sentence (Korn and Graubard
1998, see `regard.statistics`): a bootstrap over ten sentences covers an error rate of 0.5 % in 37 % of cases
only.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.arguments import public
from regard.data.word_alignment import Link, WordAlignment
from regard.interpret.estimates import Estimate
from regard.result import Result
from regard.statistics import ratio_interval


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Agreement(Result):
    """Agreement of predicted links with reference links; a ratio without a denominator is None."""

    error_rate: Estimate | None
    """Alignment error rate. 0: all sure links and only possible links were predicted; 1: all predicted links
    are incorrect.
    """
    precision: Estimate | None
    """Fraction (0 to 1) of the predicted links that are possible."""
    recall: Estimate | None
    """Fraction (0 to 1) of the sure links that were predicted."""


def count_links(predicted: frozenset[Link], known: WordAlignment) -> tuple[int, int, int, int]:
    """Return |A|, |S|, |A and S| and |A and P| of one sentence pair.

    >>> count_links(frozenset({(0, 0), (1, 2)}), WordAlignment.of([(0, 0)], [(1, 1)]))
    (2, 1, 1, 1)
    """
    return len(predicted), len(known.sure), len(predicted & known.sure), len(predicted & known.possible)


def alignment_error_rate(counts: np.ndarray) -> np.ndarray:
    """Return the error rate for counts (..., 4) from `count_links`, summed over sentences.

    The rate is 1 if the counts contain neither predicted nor sure links.

    >>> float(alignment_error_rate(np.array([2, 1, 1, 1])).round(3))
    0.333
    """
    predicted, sure, hits, possible = np.moveaxis(counts, -1, 0)
    total = predicted + sure
    # A head without links gets the worst rate, 1, instead of NaN, so that it is last in a comparison.
    rate: np.ndarray = 1 - np.divide(hits + possible, total, out=np.zeros(total.shape), where=total > 0)
    return rate


def agreement(predicted: Sequence[frozenset[Link]], known: Sequence[WordAlignment]) -> Agreement:
    return agreement_from_counts(np.array([count_links(*pair) for pair in zip(predicted, known, strict=True)]))


def agreement_from_counts(counts: np.ndarray) -> Agreement:
    """Return the agreement for the counts (N, 4) that `count_links` returns for each sentence pair."""
    predicted, sure, hits, possible = counts.T.astype(np.float64)
    wrong = predicted + sure - hits - possible
    return Agreement(
        error_rate=_ratio(wrong, predicted + sure),
        precision=_ratio(possible, predicted),
        recall=_ratio(hits, sure),
    )


def _ratio(part: np.ndarray, whole: np.ndarray) -> Estimate | None:
    # Each rate is a ratio of sums, not a mean of ratios, so that long sentences count more, as in the definition.
    interval = ratio_interval(part, whole)
    if interval is None or interval.low is None or interval.high is None:
        return None
    return Estimate(mean=interval.value, low=interval.low, high=interval.high)
