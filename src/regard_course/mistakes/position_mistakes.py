"""Mistakes in sinusoidal positions."""

import numpy as np

from regard_course.mistakes.solution import Solution, mistake, mistakes_in
from regard_course.mistakes.transformer_solution import Array

SECTION_3_5 = (
    "Vaswani et al. 2017, section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(the same)"
)
CONCATENATED = "This exercise's stub: the states, each followed by its position vector"
sinusoidal_positions = mistakes_in(Solution.sinusoidal_positions, SECTION_3_5)
interleave = mistakes_in(Solution.interleave, SECTION_3_5)
frequencies = mistakes_in(Solution.frequencies, SECTION_3_5)
concatenate_positions = mistakes_in(Solution.concatenate_positions, CONCATENATED)


@sinusoidal_positions(
    "Dimensions 2i and 2i + 1 share the frequency 10000^(-2i/d): i is 0 for the first pair, 1 for the second.",
)
def dimensions_for_pairs(self: Solution, length: int, width: int) -> Array:
    """The exponent counts dimensions, but the paper's i counts pairs: 2i is the dimension, not twice it."""
    angles = self.positions(length)[:, None] * self.base ** -(2 * self.indices(width) / width)
    return np.where(np.arange(width) % 2 == 0, np.sin(angles), np.cos(angles))


class DimensionsFromOne(Solution, paper=SECTION_3_5):
    """Dimensions, or pairs of dimensions, are counted from 1 in the exponent: no wave has the frequency 1."""

    instead = "Count from 0: the angle of the first pair grows by 1 in each step, 10000^0."
    first_index = 1


@sinusoidal_positions("Dimensions 2i and 2i + 1 share one frequency: use 2 * (dimension // 2) in the exponent.")
def frequency_per_dimension(self: Solution, length: int, width: int) -> Array:
    """Sine and cosine of a pair have different frequencies: the exponent uses the number of the dimension."""
    angles = self.positions(length)[:, None] * self.base ** -(self.indices(width) / width)
    return np.where(np.arange(width) % 2 == 0, np.sin(angles), np.cos(angles))


@interleave("Alternate sine and cosine: sine at even dimensions, cosine at odd dimensions.")
def sines_then_cosines(self: Solution, sines: Array, cosines: Array) -> Array:
    """All sines come first and all cosines after them."""
    return np.concatenate([sines, cosines], -1)


@mistake(Solution.positions, SECTION_3_5, "Count from 0: the first row is 0, 1, 0, 1, ...")
def positions_from_one(self: Solution, length: int) -> Array:
    """Positions are counted from 1."""
    return np.arange(1, length + 1)


@interleave("Sine at even dimensions, counted from 0, and cosine at odd dimensions.")
def sine_and_cosine_swapped(self: Solution, sines: Array, cosines: Array) -> Array:
    """Cosine is at even dimensions and sine at odd dimensions."""
    return Solution.interleave(self, cosines, sines)


@interleave("Use cosines at odd dimensions.")
def only_sine(self: Solution, sines: Array, cosines: Array) -> Array:
    """All dimensions are sines."""
    return Solution.interleave(self, sines, sines)


class BaseOneThousand(Solution, paper=SECTION_3_5):
    """The base is 1000."""

    instead = "The base is 10000."
    base = 1_000.0


class BaseHundredThousand(Solution, paper=SECTION_3_5):
    """The base is 100000."""

    instead = "The base is 10000."
    base = 100_000.0


@frequencies("The exponent of pair i is 2i/d, which runs from 0 to nearly 1.")
def half_exponent(self: Solution, width: int) -> Array:
    """The exponent is i/d instead of 2i/d."""
    return self.base ** -(self.indices((width + 1) // 2) / width)


@frequencies("arange(0, d, 2) is already 2i: only divide it by d.")
def double_exponent(self: Solution, width: int) -> Array:
    """The exponent has the factor 2 twice: 2 times the even dimension, which is already 2i."""
    return self.base ** -(4 * self.indices((width + 1) // 2) / width)


@mistake(
    Solution.frequencies,
    SECTION_3_5,
    "Divide by d / 2, not by d / 2 - 1: the exponent of pair i is 2i/d.",
    broken=frozenset(["two dimensions"]),
)
def last_frequency_included(self: Solution, width: int) -> Array:
    """The exponent is i / (d/2 - 1), as in Tensor2Tensor and fairseq: the last pair has the frequency 1/10000."""
    pairs = (width + 1) // 2
    return self.base ** -(self.indices(pairs) / np.float64(pairs - 1))


@frequencies("Divide: later dimensions have lower frequencies, not higher frequencies.")
def position_multiplied(self: Solution, width: int) -> Array:
    """The position is multiplied by 10000^(2i/d) instead of divided by it."""
    return 1 / Solution.frequencies(self, width)


@frequencies("Divide the position by 10000^(2i/d).")
def one_frequency(self: Solution, width: int) -> Array:
    """All dimensions have the same frequency: the position is not divided by anything."""
    return np.ones((width + 1) // 2)


@mistake(
    Solution.position_vectors,
    SECTION_3_5,
    "Use dimension 1 for the positions: states have the shape (B, T, D), batch first.",
)
def wave_across_batch(self: Solution, states: Array, width: int) -> Array:
    """Positions are counted along the batch: all steps of a sequence have the same position vector."""
    waves = self.sinusoidal_positions(len(states), width)
    return np.broadcast_to(waves[:, None], (*states.shape[:2], width))


@concatenate_positions("Put the state first, then the position vector.")
def waves_first(self: Solution, states: Array, width: int) -> Array:
    """The position vector comes before the state."""
    return np.concatenate([self.position_vectors(states, width), states], -1)


@concatenate_positions("Concatenate along the last dimension: the states become wider by `width`.")
def waves_added(self: Solution, states: Array, width: int) -> Array:
    """The position vectors are added to the states, not concatenated."""
    return states + self.position_vectors(states, width)


@concatenate_positions("Concatenate along the last dimension, the width, and not along time.")
def waves_along_time(self: Solution, states: Array, width: int) -> Array:
    """The position vectors follow the last step, as additional steps."""
    return np.concatenate([states, self.position_vectors(states, width)], 1)


@concatenate_positions("Concatenate the position vectors to the states.")
def waves_only(self: Solution, states: Array, width: int) -> Array:
    """The result contains only the position vectors, without the states."""
    return self.position_vectors(states, width)
