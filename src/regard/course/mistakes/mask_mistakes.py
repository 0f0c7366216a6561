"""Mistakes in masks."""

import numpy as np

from regard.course.mistakes.solution import Solution
from regard.course.mistakes.transformer_solution import Array, Mask

SECTION_3_2_3 = "Vaswani et al. 2017, section 3.2.3: masked out are 'all values in the input of the softmax'"
FULLY_MASKED = "This exercise's stub: a row in which no key is allowed has zero weights"


class MaskAfterSoftmax(Solution, paper=SECTION_3_2_3):
    """The mask is applied after the softmax: the remaining weights of a row no longer sum to 1."""

    instead = "Set scores to -inf where the mask is False, before the softmax."

    def masked_softmax(self, scores: Array, mask: Mask) -> Array:
        weights = self.softmax(scores)
        return weights if mask is None else weights * mask


class MaskInverted(Solution, paper=SECTION_3_2_3):
    """The mask is inverted: allowed keys are hidden, and hidden keys are attended to."""

    instead = "True means 'may attend' here: hide the keys where the mask is False."

    def apply_mask(self, scores: Array, mask: Array) -> Array:
        return super().apply_mask(scores, ~mask)


class MaskIgnored(Solution, paper=SECTION_3_2_3):
    """The mask is not used: hidden keys, such as padding, are attended to."""

    instead = "Set scores to -inf where the mask is False, before the softmax."

    def apply_mask(self, scores: Array, mask: Array) -> Array:
        return scores


class MaskMultiplied(Solution, paper=SECTION_3_2_3):
    """Hidden keys have the score 0 (or -1e-9, which is nearly 0): exp(0) is 1, so they still have weight."""

    instead = "Set scores to -inf, or -1e9, where the mask is False: their exp is 0."

    def apply_mask(self, scores: Array, mask: Array) -> Array:
        return scores * mask


class MaskAdded(Solution, paper=SECTION_3_2_3):
    """The mask is added to the scores as 0 and 1: it favours the allowed keys a little and hides none."""

    instead = "Add 0 where the mask is True and -inf where it is False."

    def apply_mask(self, scores: Array, mask: Array) -> Array:
        return scores + mask


class MaskMinusOne(Solution, paper=SECTION_3_2_3):
    """Hidden keys have the score -1, which does not hide them."""

    instead = "Set scores to -inf, or -1e9, where the mask is False."

    def apply_mask(self, scores: Array, mask: Array) -> Array:
        return np.where(mask, scores, -1.0)


class MaskTransposed(Solution, paper=SECTION_3_2_3):
    """The mask is transposed: it hides queries instead of keys."""

    instead = "The mask is (Tq, Tk) like the scores: a row for each query."

    def apply_mask(self, scores: Array, mask: Array) -> Array:
        return super().apply_mask(scores, np.swapaxes(mask, -2, -1))


class MaskOfFirst(Solution, paper=SECTION_3_2_3):
    """The mask of the first batch element is used for the whole batch."""

    instead = "Use each batch element's own mask."

    def apply_mask(self, scores: Array, mask: Array) -> Array:
        return super().apply_mask(scores, np.broadcast_to(mask[:1], mask.shape))


class AllMaskedNaN(Solution, paper=FULLY_MASKED):
    """A fully masked row is NaN: the softmax of a row of -inf is 0 / 0."""

    instead = "Set such a row to zeros: use a softmax without NaN, then write 0 where the mask is False."
    companion = True

    def zero_masked_rows(self, weights: Array, masked: Array) -> Array:
        return weights


class AllMaskedUniform(Solution, paper=FULLY_MASKED):
    """A fully masked row attends equally to all keys: all its scores are the same -1e9."""

    instead = "Set such a row to zeros: multiply the weights by the mask after the softmax as well."
    companion = True

    def zero_masked_rows(self, weights: Array, masked: Array) -> Array:
        return np.where(np.isneginf(masked) & np.isnan(weights), self.softmax(np.zeros_like(masked)), weights)


class AllMaskedSeen(Solution, paper=FULLY_MASKED):
    """A fully masked row attends as if no key were hidden: -1e9 is added to all its scores, which does not change
    the softmax.
    """

    instead = "Set such a row to zeros: multiply the weights by the mask after the softmax as well."
    companion = True

    def masked_softmax(self, scores: Array, mask: Mask) -> Array:
        weights = super().masked_softmax(scores, mask)
        if mask is None:
            return weights
        fully_masked = ~np.broadcast_to(mask, scores.shape).any(-1, keepdims=True)
        return np.where(fully_masked, self.softmax(scores), weights)
