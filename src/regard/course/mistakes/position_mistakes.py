"""Mistakes in sinusoidal positions."""

import numpy as np

from regard.course.mistakes.solution import Solution
from regard.course.mistakes.transformer_solution import Array

SECTION_3_5 = (
    "Vaswani et al. 2017, section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(the same)"
)
CONCATENATED = "This exercise's stub: the states, each followed by its position vector"


class DimensionsForPairs(Solution, paper=SECTION_3_5):
    """The exponent counts dimensions, but the paper's i counts pairs: 2i is the dimension, not twice it."""

    instead = (
        "Dimensions 2i and 2i + 1 share the frequency 10000^(-2i/d): i is 0 for the first pair, 1 for the second."
    )

    def sinusoidal_positions(self, length: int, width: int) -> Array:
        angles = self.positions(length)[:, None] * self.base ** -(2 * self.indices(width) / width)
        return np.where(np.arange(width) % 2 == 0, np.sin(angles), np.cos(angles))


class DimensionsFromOne(Solution, paper=SECTION_3_5):
    """Dimensions, or pairs of them, are counted from 1 in the exponent: no wave has the frequency 1."""

    instead = "Count from 0: the angle of the first pair grows by 1 in each step, 10000^0."
    first_index = 1


class FrequencyPerDimension(Solution, paper=SECTION_3_5):
    """Sine and cosine of a pair have different frequencies: the exponent uses the dimension's own number."""

    instead = "Dimensions 2i and 2i + 1 share one frequency: use 2 * (dimension // 2) in the exponent."

    def sinusoidal_positions(self, length: int, width: int) -> Array:
        angles = self.positions(length)[:, None] * self.base ** -(self.indices(width) / width)
        return np.where(np.arange(width) % 2 == 0, np.sin(angles), np.cos(angles))


class SinesThenCosines(Solution, paper=SECTION_3_5):
    """All sines come first and all cosines after them."""

    instead = "Alternate sine and cosine: sine at even dimensions, cosine at odd ones."

    def interleave(self, sines: Array, cosines: Array) -> Array:
        return np.concatenate([sines, cosines], -1)


class PositionsFromOne(Solution, paper=SECTION_3_5):
    """Positions are counted from 1."""

    instead = "Count from 0: the first row is 0, 1, 0, 1, ..."

    def positions(self, length: int) -> Array:
        return np.arange(1, length + 1)


class SineAndCosineSwapped(Solution, paper=SECTION_3_5):
    """Cosine is at even dimensions and sine at odd ones."""

    instead = "Sine at even dimensions, counted from 0, and cosine at odd ones."

    def interleave(self, sines: Array, cosines: Array) -> Array:
        return super().interleave(cosines, sines)


class OnlySine(Solution, paper=SECTION_3_5):
    """All dimensions are sines."""

    instead = "Use cosines at odd dimensions."

    def interleave(self, sines: Array, cosines: Array) -> Array:
        return super().interleave(sines, sines)


class BaseOneThousand(Solution, paper=SECTION_3_5):
    """The base is 1000."""

    instead = "The base is 10000."
    base = 1_000.0


class BaseHundredThousand(Solution, paper=SECTION_3_5):
    """The base is 100000."""

    instead = "The base is 10000."
    base = 100_000.0


class HalfExponent(Solution, paper=SECTION_3_5):
    """The exponent is i/d instead of 2i/d."""

    instead = "The exponent of pair i is 2i/d, which runs from 0 to nearly 1."

    def frequencies(self, width: int) -> Array:
        return self.base ** -(self.indices((width + 1) // 2) / width)


class DoubleExponent(Solution, paper=SECTION_3_5):
    """The exponent has the factor 2 twice: 2 times the even dimension, which is already 2i."""

    instead = "arange(0, d, 2) is already 2i: only divide it by d."

    def frequencies(self, width: int) -> Array:
        return self.base ** -(4 * self.indices((width + 1) // 2) / width)


class PositionMultiplied(Solution, paper=SECTION_3_5):
    """The position is multiplied by 10000^(2i/d) instead of divided by it."""

    instead = "Divide: later dimensions have lower frequencies, not higher ones."

    def frequencies(self, width: int) -> Array:
        return 1 / super().frequencies(width)


class OneFrequency(Solution, paper=SECTION_3_5):
    """All dimensions have the same frequency: the position is not divided by anything."""

    instead = "Divide the position by 10000^(2i/d)."

    def frequencies(self, width: int) -> Array:
        return np.ones((width + 1) // 2)


class WaveAcrossBatch(Solution, paper=SECTION_3_5):
    """The position is that in the batch: all steps of a sequence have the same position vector."""

    instead = "Positions belong to dimension 1, time: states are (B, T, D), batch first."

    def position_vectors(self, states: Array, width: int) -> Array:
        waves = self.sinusoidal_positions(len(states), width)
        return np.broadcast_to(waves[:, None], (*states.shape[:2], width))


class WavesFirst(Solution, paper=CONCATENATED):
    """The position vector comes before the state."""

    instead = "Put the state first, then the position vector."

    def concatenate_positions(self, states: Array, width: int) -> Array:
        return np.concatenate([self.position_vectors(states, width), states], -1)


class WavesAdded(Solution, paper=CONCATENATED):
    """The position vectors are added to the states, not concatenated."""

    instead = "Concatenate along the last dimension: the states become wider by `width`."

    def concatenate_positions(self, states: Array, width: int) -> Array:
        return states + self.position_vectors(states, width)


class WavesAlongTime(Solution, paper=CONCATENATED):
    """The position vectors follow the last step, as additional steps."""

    instead = "Concatenate along the last dimension, the width, and not along time."

    def concatenate_positions(self, states: Array, width: int) -> Array:
        return np.concatenate([states, self.position_vectors(states, width)], 1)


class WavesOnly(Solution, paper=CONCATENATED):
    """The result contains only the position vectors, without the states."""

    instead = "Concatenate the position vectors to the states."

    def concatenate_positions(self, states: Array, width: int) -> Array:
        return self.position_vectors(states, width)
