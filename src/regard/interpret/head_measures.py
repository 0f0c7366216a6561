"""What one head attends to, beside relevance and beside other explanations of the same inputs.

Each function compares with another sample as well: a head that attends to the same positions in every input
agrees with another sample's values as much as with its own.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from regard.interpret.estimates import Estimate, estimate, p_above
from regard.interpret.probing import Probe
from regard.interpret.relevance import attention_mass

SHARE = (0.0, 1.0)
"""Bounds of a fraction."""
STEADY = 0.1
"""Largest fraction of the attention that differs between samples if a head attends to fixed positions."""


class RelevanceClaim(NamedTuple):
    """What the attention on relevant inputs supports."""

    kind: str
    """Kind of sentence in `regard.interpret.sentence_errors`."""
    value: float
    """The measured value that must exceed the threshold of the kind."""


def claim_relevance(
    beyond_uniform: Estimate, beyond_permuted: Estimate, moved: float | None
) -> RelevanceClaim | None:
    """Return what the attention on relevant inputs supports; None if it is not shown to exceed uniform attention.

    The whole intervals must be above 0.
    """
    if beyond_uniform.low <= 0:
        return None
    if beyond_permuted.low > 0:
        return RelevanceClaim("relevant inputs", min(beyond_uniform.low, beyond_permuted.low))
    if moved is not None and moved < STEADY:
        return RelevanceClaim("fixed positions", 1 - moved)
    return None


def measure_relevance(
    weights: list[np.ndarray],
    relevance: Sequence[np.ndarray],
    even: np.ndarray,
    others: list[int],
    draw: np.ndarray,
) -> dict[str, Any]:
    """Return the fraction of a head's attention on relevant inputs; `even` (N,): the fraction under uniform
    attention in each sample. `relevance_p`: p-value that it exceeds uniform attention and another sample's.
    """
    shares = [share(w, r) for w, r in zip(weights, relevance, strict=True)]
    permuted = [share(w, relevance[other]) for w, other in zip(weights, others, strict=True)]
    return {
        "relevance": estimate(shares, draw, SHARE),
        # Use differences within each sample: the variation that both fractions share cancels out.
        "beyond_uniform": estimate(shares - even, draw),
        "beyond_permuted": estimate(np.subtract(shares, permuted), draw),
        # Both must hold, so the p-value is the larger one (Berger 1982, intersection-union test).
        "relevance_p": max(p_above(shares - even, 0.0), p_above(np.subtract(shares, permuted), 0.0)),
    }


def measure_movement(weights: list[np.ndarray], others: list[int]) -> float:
    """Return the mean total variation distance between the attention of a head on different samples."""
    # Half of the summed absolute differences is the total variation distance.
    shares = []
    for own, other in zip(weights, (weights[index] for index in others), strict=True):
        steps, inputs = (min(sizes) for sizes in zip(own.shape, other.shape, strict=True))
        shares.append(float(np.abs(own[:steps, :inputs] - other[:steps, :inputs]).sum(1).mean()) / 2)
    return float(np.mean(shares))


def measure_ranking(
    weights: list[np.ndarray], probes: Sequence[Probe], others: list[int], draw: np.ndarray
) -> dict[str, Estimate | None]:
    """Return the rank correlation of a head's weights with the dependence on each input."""
    own = [correlation(w, sample.dependence) for w, sample in zip(weights, probes, strict=True)]
    permuted = [correlation(w, probes[other].dependence) for w, other in zip(weights, others, strict=True)]
    return {
        "ranking": estimate(own, draw),
        "ranking_permuted": estimate(permuted, draw),
        # Both correlations are of the same weights, so their difference has a smaller variance than each.
        "ranking_beyond": estimate(np.subtract(own, permuted), draw),
    }


def share(weights: np.ndarray, relevant: np.ndarray) -> float:
    """Return the mean mass on relevant inputs, over the steps that depend on any input; NaN without such
    steps.
    """
    steps, inputs = (min(sizes) for sizes in zip(weights.shape, relevant.shape, strict=True))
    relevant = relevant[:steps, :inputs]
    counted = relevant.any(1)
    if not counted.any():
        return float("nan")
    return float(attention_mass(weights[:steps, :inputs], relevant)[counted].mean())


def correlation(weights: np.ndarray, measure: np.ndarray) -> float:
    """Return Spearman's rank correlation of weights and a measure (Tq, Tk) over the inputs, averaged over the
    steps.

    If the samples differ in length, only their common steps and inputs are used. Steps at which the weights or
    the measure are constant are ignored. Returns NaN if all steps are ignored.

    >>> correlation(np.array([[0.1, 0.2, 0.7]]), np.array([[1.0, 2.0, 3.0]]))
    1.0
    """
    steps, inputs = (min(sizes) for sizes in zip(weights.shape, measure.shape, strict=True))
    x, y = _ranks(weights[:steps, :inputs]), _ranks(measure[:steps, :inputs])
    x, y = x - x.mean(1, keepdims=True), y - y.mean(1, keepdims=True)
    size = np.sqrt((x**2).sum(1) * (y**2).sum(1))
    counted = size > 0
    if not counted.any():
        return float("nan")
    return float(((x * y).sum(1)[counted] / size[counted]).mean())


def _ranks(rows: np.ndarray) -> np.ndarray:
    """Return the rank of each value in its row; tied values get the mean of their ranks.

    Values are tied if they are equal to five significant digits; otherwise rounding errors would rank equal
    weights.
    """
    # Digits are counted from each value's first one: with six decimals, gradients of 1e-6 would all be tied.
    scale = 10.0 ** np.floor(np.log10(np.maximum(np.abs(rows), np.finfo(np.float64).tiny)))
    ranks = np.empty(rows.shape)
    for row, values in zip(ranks, (rows / scale).round(4) * scale, strict=True):
        _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
        row[:] = (counts.cumsum() - (counts - 1) / 2)[which]
    return ranks
