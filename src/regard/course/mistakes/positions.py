"""Usual mistakes in positions."""

import numpy as np

from regard.course.mistakes.solution import Solution
from regard.course.mistakes.transformer_solution import Array

SECTION_3_5 = (
    "Vaswani et al. 2017, section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(the same)"
)
CONCATENATED = "This exercise's stub: the states first, the waves behind them"


class DimensionsForPairs(Solution):
    """The exponent counts dimensions where the paper counts pairs: 2i is the dimension itself, not twice it."""

    instead = (
        "Dimensions 2i and 2i + 1 share one frequency, 10000^(-2i/d): the first pair has i = 0, the second 1."
    )
    paper = SECTION_3_5

    def sinusoidal_positions(self, length: int, width: int) -> Array:
        angles = self.positions(length)[:, None] * self.base ** -(2 * self.indices(width) / width)
        return np.where(np.arange(width) % 2 == 0, np.sin(angles), np.cos(angles))


class DimensionsFromOne(Solution):
    """Dimensions, or pairs of them, are counted from 1 in the exponent: no wave has the frequency 1."""

    instead = "Count from 0: the first pair turns by 1 in each step, 10000^0."
    paper = SECTION_3_5
    first = 1


class OwnFrequencyEach(Solution):
    """Sine and cosine of a pair turn at different speeds: each dimension has the exponent of its own number."""

    instead = "Dimensions 2i and 2i + 1 share one frequency: take 2 * (dimension // 2) in the exponent."
    paper = SECTION_3_5

    def sinusoidal_positions(self, length: int, width: int) -> Array:
        angles = self.positions(length)[:, None] * self.base ** -(self.indices(width) / width)
        return np.where(np.arange(width) % 2 == 0, np.sin(angles), np.cos(angles))


class Halves(Solution):
    """All sines come first and all cosines after them: two halves."""

    instead = "Sine and cosine take turns: even dimensions sine, odd ones cosine."
    paper = SECTION_3_5

    def interleave(self, sines: Array, cosines: Array) -> Array:
        return np.concatenate([sines, cosines], -1)


class FromOne(Solution):
    """Positions are counted from 1."""

    instead = "Count from 0: the first row is 0, 1, 0, 1, ..."
    paper = SECTION_3_5

    def positions(self, length: int) -> Array:
        return np.arange(1, length + 1)


class SineAndCosineSwapped(Solution):
    """Cosine stands at even dimensions and sine at odd ones."""

    instead = "Sine at even dimensions, which count from 0, cosine at odd ones."
    paper = SECTION_3_5

    def interleave(self, sines: Array, cosines: Array) -> Array:
        return super().interleave(cosines, sines)


class OnlySine(Solution):
    """All dimensions are sines."""

    instead = "Odd dimensions are cosines."
    paper = SECTION_3_5

    def interleave(self, sines: Array, cosines: Array) -> Array:
        return super().interleave(sines, sines)


class BaseOneThousand(Solution):
    """The longest wave is made with 1000."""

    instead = "The base is 10000."
    paper = SECTION_3_5
    base = 1_000.0


class BaseHundredThousand(Solution):
    """The longest wave is made with 100000."""

    instead = "The base is 10000."
    paper = SECTION_3_5
    base = 100_000.0


class HalfExponent(Solution):
    """The exponent is i/d where the paper has 2i/d."""

    instead = "Of pair i the exponent is 2i/d, which runs from 0 to nearly 1."
    paper = SECTION_3_5

    def frequencies(self, width: int) -> Array:
        return self.base ** -(self.indices((width + 1) // 2) / width)


class DoubleExponent(Solution):
    """The exponent has the factor 2 twice: 2 times the even dimension, which is 2i already."""

    instead = "arange(0, d, 2) is 2i already: divide it by d, and no more."
    paper = SECTION_3_5

    def frequencies(self, width: int) -> Array:
        return self.base ** -(4 * self.indices((width + 1) // 2) / width)


class Multiplied(Solution):
    """The position is multiplied by 10000^(2i/d) instead of divided by it."""

    instead = "Divide: later dimensions turn slower, not faster."
    paper = SECTION_3_5

    def frequencies(self, width: int) -> Array:
        return 1 / super().frequencies(width)


class NoFrequencies(Solution):
    """All dimensions turn at the same speed: the position is not divided by anything."""

    instead = "Divide the position by 10000^(2i/d)."
    paper = SECTION_3_5

    def frequencies(self, width: int) -> Array:
        return np.ones((width + 1) // 2)


class WaveAcrossBatch(Solution):
    """The position is that in the batch: all steps of a sequence get one wave, and its neighbours another."""

    instead = "Positions belong to dimension 1, time: states are (B, T, D), batch first."
    paper = SECTION_3_5

    def position_vectors(self, states: Array, width: int) -> Array:
        waves = self.sinusoidal_positions(len(states), width)
        return np.broadcast_to(waves[:, None], (*states.shape[:2], width))


class WavesFirst(Solution):
    """The waves come first and the states behind them."""

    instead = "Put the waves behind the states."
    paper = CONCATENATED

    def concatenate_positions(self, states: Array, width: int) -> Array:
        return np.concatenate([self.position_vectors(states, width), states], -1)


class WavesAdded(Solution):
    """The waves are added to the states, not put beside them."""

    instead = "Concatenate along the last dimension: the states get wider by the width of the waves."
    paper = CONCATENATED

    def concatenate_positions(self, states: Array, width: int) -> Array:
        return states + self.position_vectors(states, width)


class WavesAlongTime(Solution):
    """The waves are put behind the last step, as more steps."""

    instead = "Concatenate along the last dimension, the width, and not along time."
    paper = CONCATENATED

    def concatenate_positions(self, states: Array, width: int) -> Array:
        return np.concatenate([states, self.position_vectors(states, width)], 1)


class WavesOnly(Solution):
    """The waves come back without the states."""

    instead = "Concatenate the waves to the states."
    paper = CONCATENATED

    def concatenate_positions(self, states: Array, width: int) -> Array:
        return self.position_vectors(states, width)
