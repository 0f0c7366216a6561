"""When two answers are the same: in shape, in what is no number, and in numbers up to rounding in 32 bits."""

from collections.abc import Sequence

import numpy as np

from regard.course.exercises.exercise import Array, Case

ROUNDING = 2e-4
"""Largest difference that 32 bits may make, of the largest number there or of 1."""
SLOPE_ROUNDING = 5e-3
"""The same for slopes, which sum up many roundings."""

Outputs = Sequence[Array]


def alike(one: Array, other: Array, counts: Array | None = None) -> bool:
    """Whether two arrays are the same, where `counts` (B, T) is True."""
    if one.shape != other.shape:
        return False
    if counts is not None and one.shape[: counts.ndim] == counts.shape:
        one, other = one[counts], other[counts]
    if one.size == 0:
        return True
    finite = np.isfinite(one)
    if not np.array_equal(finite, np.isfinite(other)):
        return False
    if not np.array_equal(np.isnan(one), np.isnan(other)):
        return False
    scale = max(1.0, float(np.abs(other[finite]).max(initial=0)))
    return float(np.abs(one[finite] - other[finite]).max(initial=0)) <= ROUNDING * scale


def agree(case: Case, given: Outputs, known: Outputs) -> bool:
    """Whether all outputs that were given are those known; more of them than known do not count."""
    pairs = list(zip(given, known, strict=False))
    return bool(pairs) and all(alike(one, other, case.counts) for one, other in pairs)


def same_slope(given: float | None, known: tuple[float, float]) -> bool:
    """Whether a slope is the one that was measured, or lies between its two sides: at a kink, rounding decides on
    which side the learner's numbers are.
    """
    low, high = sorted(known)
    rounding = SLOPE_ROUNDING * max(1.0, abs(low), abs(high))
    return given is not None and low - rounding <= given <= high + rounding
