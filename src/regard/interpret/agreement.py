"""Compare word links with reference links: alignment error rate, precision and recall.

    precision = |A and P| / |A|      recall = |A and S| / |S|
    alignment error rate = 1 - (|A and S| + |A and P|) / (|A| + |S|)      Och and Ney 2003, equations 11 to 13

A, S and P are the sets of predicted links, sure reference links and possible reference links. Counts are summed
over all sentences. Intervals come from a bootstrap over the sentences, as for translation scores (Koehn 2004).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.data.word_alignment import Link, WordAlignment
from regard.interpret.estimates import LEVEL, Estimate, resample_counts
from regard.result import Result


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


def agreement(
    predicted: Sequence[frozenset[Link]], known: Sequence[WordAlignment], *, seed: int = 0
) -> Agreement:
    """Compare the links of sentence pairs with their reference links."""
    counts = np.array([count_links(*pair) for pair in zip(predicted, known, strict=True)])
    return agreement_from_counts(counts, seed=seed)


def agreement_from_counts(counts: np.ndarray, *, seed: int = 0) -> Agreement:
    """Return the agreement for the counts (N, 4) that `count_links` returns for each sentence pair."""
    predicted, sure, hits, possible = counts.T.astype(np.float64)
    # Whole sentence pairs are resampled, because the links of a sentence depend on each other.
    draw = resample_counts(len(counts), seed)
    wrong = predicted + sure - hits - possible
    return Agreement(
        error_rate=_ratio(wrong, predicted + sure, draw),
        precision=_ratio(possible, predicted, draw),
        recall=_ratio(hits, sure, draw),
    )


def _ratio(part: np.ndarray, whole: np.ndarray, draw: np.ndarray) -> Estimate | None:
    """Return the ratio of two sums over sentences with its interval; `draw`: (R, N) from `resample_counts`."""
    if not whole.sum() or len(whole) < 2:
        return None
    # Each rate is a ratio of sums, not a mean of ratios, so that long sentences count more, as in the definition.
    wholes = draw @ whole
    ratios = (draw @ part)[wholes > 0] / wholes[wholes > 0]
    low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(mean=float(part.sum() / whole.sum()), low=float(low), high=float(high))
