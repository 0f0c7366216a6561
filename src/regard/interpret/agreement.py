"""How well links agree with known ones: error rate, precision and recall, with intervals over the sentences.

    precision = |A and P| / |A|      recall = |A and S| / |S|
    alignment error rate = 1 - (|A and S| + |A and P|) / (|A| + |S|)      Och and Ney 2003, equations 11 to 13

A links found, S sure ones, P possible ones. All sentences are counted together; intervals are of a bootstrap over
them, as translations' scores have theirs (Koehn 2004).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.data.links import KnownLinks, Link
from regard.interpret.estimates import LEVEL, Estimate, resample_counts
from regard.result import Result


@dataclass(frozen=True, kw_only=True, repr=False)
class Agreement(Result):
    """How well some links agree with known ones; None where nothing was found, or nothing is sure."""

    error_rate: Estimate | None
    """0: all that is sure was found, and nothing that is not possible; 1: nothing right was found."""
    precision: Estimate | None
    """Share (0 to 1) of what was found that is possible."""
    recall: Estimate | None
    """Share (0 to 1) of what is sure that was found."""


def count_links(found: frozenset[Link], known: KnownLinks) -> tuple[int, int, int, int]:
    """Return |A|, |S|, |A and S| and |A and P| of one pair of sentences."""
    return len(found), len(known.sure), len(found & known.sure), len(found & known.possible)


def alignment_error_rate(counts: np.ndarray) -> np.ndarray:
    """Return the error rate of counts (..., 4) as `count_links` has them, summed over sentences; 1 where there is
    nothing to be found, and nothing was."""
    found, sure, hits, possible = np.moveaxis(counts, -1, 0)
    total = found + sure
    rate: np.ndarray = 1 - np.divide(hits + possible, total, out=np.zeros(total.shape), where=total > 0)
    return rate


def agreement(found: Sequence[frozenset[Link]], known: Sequence[KnownLinks], *, seed: int = 0) -> Agreement:
    """Return how well links agree with known ones, over pairs of sentences."""
    return agreement_from_counts(np.array([count_links(*each) for each in zip(found, known, strict=True)]), seed=seed)


def agreement_from_counts(counts: np.ndarray, *, seed: int = 0) -> Agreement:
    """Return the same of what `count_links` found of each pair, (N, 4)."""
    found, sure, hits, possible = counts.T.astype(np.float64)
    draw = resample_counts(len(counts), seed)
    wrong = found + sure - hits - possible
    return Agreement(
        error_rate=_ratio(wrong, found + sure, draw),
        precision=_ratio(possible, found, draw),
        recall=_ratio(hits, sure, draw),
    )


def _ratio(part: np.ndarray, whole: np.ndarray, draw: np.ndarray) -> Estimate | None:
    """Return the ratio of two sums over sentences, and its interval by `draw` (R, N): how often each is drawn."""
    if not whole.sum() or len(whole) < 2:
        return None
    wholes = draw @ whole
    ratios = (draw @ part)[wholes > 0] / wholes[wholes > 0]
    low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(mean=float(part.sum() / whole.sum()), low=float(low), high=float(high))
