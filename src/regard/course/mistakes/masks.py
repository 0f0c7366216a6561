"""Usual mistakes with masks."""

import numpy as np

from regard.course.mistakes.solution import Solution
from regard.course.mistakes.transformer_solution import Array, Mask

SECTION_3_2_3 = "Vaswani et al. 2017, section 3.2.3: masked out are 'all values in the input of the softmax'"


class MaskAfterSoftmax(Solution):
    """The mask is applied after the softmax: what is left of a row no longer sums to 1."""

    instead = "Put -inf where the mask is False, before the softmax."
    paper = SECTION_3_2_3

    def masked_softmax(self, scores: Array, mask: Mask) -> Array:
        weights = self.softmax(scores)
        return weights if mask is None else weights * mask


class MaskInverted(Solution):
    """The mask is taken the other way round: hidden is what may be attended, and the rest is attended."""

    instead = "True means 'may be attended' here: hide where the mask is False."
    paper = SECTION_3_2_3

    def apply_mask(self, scores: Array, mask: Array) -> Array:
        return super().apply_mask(scores, ~mask)


class MaskIgnored(Solution):
    """The mask is not used: padding, or whatever it hides, is attended."""

    instead = "Put -inf where the mask is False, before the softmax."
    paper = SECTION_3_2_3

    def apply_mask(self, scores: Array, mask: Array) -> Array:
        return scores


class MaskMultiplied(Solution):
    """What is masked gets the score 0 (or -1e-9, which is 0): exp(0) is 1, so it is attended still."""

    instead = "Put -inf, or -1e9, where the mask is False: exp of that is 0."
    paper = SECTION_3_2_3

    def apply_mask(self, scores: Array, mask: Array) -> Array:
        return scores * mask


class MaskAdded(Solution):
    """The mask is added to the scores as 0 and 1: it favours a little, and hides nothing."""

    instead = "Add 0 where the mask is True and -inf where it is False."
    paper = SECTION_3_2_3

    def apply_mask(self, scores: Array, mask: Array) -> Array:
        return scores + mask


class MaskMinusOne(Solution):
    """What is masked gets the score -1, which hides nothing."""

    instead = "Put -inf, or -1e9, where the mask is False."
    paper = SECTION_3_2_3

    def apply_mask(self, scores: Array, mask: Array) -> Array:
        return np.where(mask, scores, -1.0)


class MaskTransposed(Solution):
    """The mask is turned round: it hides queries instead of keys."""

    instead = "The mask is (Tq, Tk), as the scores are: a row for each query."
    paper = SECTION_3_2_3

    def apply_mask(self, scores: Array, mask: Array) -> Array:
        return super().apply_mask(scores, np.swapaxes(mask, -2, -1))


class MaskOfFirst(Solution):
    """The mask of the batch's first element is used for all of it."""

    instead = "Each element of the batch has a mask of its own."
    paper = SECTION_3_2_3

    def apply_mask(self, scores: Array, mask: Array) -> Array:
        return super().apply_mask(scores, np.broadcast_to(mask[:1], mask.shape))


class AllMaskedNaN(Solution):
    """A row that may attend to nothing becomes NaN: the softmax of nothing but -inf is 0 / 0."""

    instead = "Give such a row zeros: put 0 where the mask hides, after a softmax that has no NaN in it."
    paper = "This exercise's stub: a row that may attend to nothing has zero weights"
    companion = True

    def zero_masked_rows(self, weights: Array, hidden: Array) -> Array:
        return weights


class AllMaskedUniform(Solution):
    """A row that may attend to nothing attends to everything alike, hidden or not: all of it has the same
    -1e9.
    """

    instead = "Give such a row zeros: multiply the weights by the mask after the softmax too."
    paper = "This exercise's stub: a row that may attend to nothing has zero weights"
    companion = True

    def zero_masked_rows(self, weights: Array, hidden: Array) -> Array:
        return np.where(np.isneginf(hidden) & np.isnan(weights), self.softmax(np.zeros_like(hidden)), weights)


class AllMaskedSeen(Solution):
    """A row that may attend to nothing attends as if nothing were hidden: -1e9 was added to all its scores, and a
    softmax does not see what is added to all.
    """

    instead = "Give such a row zeros: multiply the weights by the mask after the softmax too."
    paper = "This exercise's stub: a row that may attend to nothing has zero weights"
    companion = True

    def masked_softmax(self, scores: Array, mask: Mask) -> Array:
        weights = super().masked_softmax(scores, mask)
        if mask is None:
            return weights
        lost = ~np.broadcast_to(mask, scores.shape).any(-1, keepdims=True)
        return np.where(lost, self.softmax(scores), weights)
