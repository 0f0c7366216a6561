"""Mistakes in masks."""

import numpy as np

from regard_course.mistakes.attention_mistakes import LARGE_HIDDEN, MASKED
from regard_course.mistakes.solution import Solution, mistake, mistakes_in
from regard_course.mistakes.transformer_solution import Array, Mask

SECTION_3_2_3 = "Vaswani et al. 2017, section 3.2.3: masked out are 'all values in the input of the softmax'"
FULLY_MASKED = "This exercise's stub: a row in which no key is allowed has zero weights"
apply_mask = mistakes_in(Solution.apply_mask, SECTION_3_2_3)
zero_masked_rows = mistakes_in(Solution.zero_masked_rows, FULLY_MASKED)


@mistake(
    Solution.masked_softmax, SECTION_3_2_3, "Set scores to -inf where the mask is False, before the softmax."
)
def mask_after_softmax(self: Solution, scores: Array, mask: Mask) -> Array:
    """The mask is applied after the softmax: the remaining weights of a row no longer sum to 1."""
    weights = self.softmax(scores)
    return weights if mask is None else weights * mask


@mistake(
    Solution.masked_softmax,
    SECTION_3_2_3,
    "Set scores to -inf where the mask is False: exp(-inf) adds 0 to the sum.",
)
def hidden_keys_in_the_sum(self: Solution, scores: Array, mask: Mask) -> Array:
    """Hidden keys have the score 0, and their weights are removed after the softmax: exp(0) = 1 is in the sum."""
    return self.softmax(scores) if mask is None else self.softmax(scores * mask) * mask


@mistake(
    Solution.masked_softmax,
    SECTION_3_2_3,
    "Set scores to -inf where the mask is False first, before the maximum and exp.",
    broken=frozenset([LARGE_HIDDEN]),
)
def large_hidden_scores_count(self: Solution, scores: Array, mask: Mask) -> Array:
    """A large score of a hidden key changes the weights of allowed keys: it is the maximum that is subtracted,
    its exp overflows, or the number in place of -inf is too small."""
    if mask is None:
        return self.softmax(scores)
    weights = self.softmax(scores) * mask
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1, total)


@apply_mask("True means 'may attend' here: hide the keys where the mask is False.")
def mask_inverted(self: Solution, scores: Array, mask: Array) -> Array:
    """The mask is inverted: allowed keys are hidden, and hidden keys are attended to."""
    return Solution.apply_mask(self, scores, ~mask)


@apply_mask("Set scores to -inf where the mask is False, before the softmax.")
def mask_ignored(self: Solution, scores: Array, mask: Array) -> Array:
    """The mask is not used: hidden keys, such as padding, are attended to."""
    return scores


@apply_mask("Set scores to -inf, or -1e9, where the mask is False: their exp is 0.")
def mask_multiplied(self: Solution, scores: Array, mask: Array) -> Array:
    """Hidden keys have the score 0 (or -1e-9, which is nearly 0): exp(0) is 1, so they still get weight."""
    return scores * mask


@apply_mask("Add 0 where the mask is True and -inf where it is False.")
def mask_added(self: Solution, scores: Array, mask: Array) -> Array:
    """The mask is added to the scores as 0 and 1: it favors the allowed keys a little and hides none."""
    return scores + mask


@apply_mask("Set scores to -inf, or -1e9, where the mask is False.")
def mask_minus_one(self: Solution, scores: Array, mask: Array) -> Array:
    """Hidden keys have the score -1, which does not hide them."""
    return np.where(mask, scores, -1.0)


@apply_mask("The mask is (Tq, Tk) like the scores: a row for each query.")
def mask_transposed(self: Solution, scores: Array, mask: Array) -> Array:
    """The mask is transposed: it hides queries instead of keys."""
    return Solution.apply_mask(self, scores, np.swapaxes(mask, -2, -1))


@mistake(
    Solution.masked_softmax,
    "This exercise's stub: mask None: all may",
    "Use the mask only `if mask is not None`.",
)
def none_hides_all(self: Solution, scores: Array, mask: Mask) -> Array:
    """Without a mask no key is allowed: np.where(None, ...) treats None as False."""
    return Solution.masked_softmax(self, scores, np.zeros(scores.shape, bool) if mask is None else mask)


@mistake(
    Solution.attend,
    "Vaswani et al. 2017, section 3.2.3: a causal mask belongs to the decoder's self-attention only",
    "Use only the mask that is passed: the caller decides which keys are hidden.",
    broken=MASKED,
)
def always_causal(
    self: Solution, query: Array, key: Array, value: Array, mask: Mask, heads: int = 1
) -> tuple[Array, Array]:
    """The attention is always causal: a query never attends to later keys, whatever the mask is."""
    causal = np.tril(np.ones((query.shape[-2], key.shape[-2]), bool))
    return Solution.attend(self, query, key, value, causal if mask is None else mask & causal, heads)


@apply_mask("Use the mask of each batch element.")
def mask_of_first(self: Solution, scores: Array, mask: Array) -> Array:
    """The mask of the first batch element is used for the whole batch."""
    return Solution.apply_mask(self, scores, np.broadcast_to(mask[:1], mask.shape))


@zero_masked_rows(
    "Set such a row to zeros: use a softmax without NaN, then write 0 where the mask is False.",
    companion=True,
)
def all_masked_nan(self: Solution, weights: Array, masked: Array) -> Array:
    """A fully masked row is NaN: the softmax of a row of -inf is 0 / 0."""
    return weights


@zero_masked_rows(
    "Set such a row to zeros: multiply the weights by the mask after the softmax as well.",
    companion=True,
)
def all_masked_uniform(self: Solution, weights: Array, masked: Array) -> Array:
    """A fully masked row attends equally to all keys: all its scores are the same -1e9."""
    return np.where(np.isneginf(masked) & np.isnan(weights), self.softmax(np.zeros_like(masked)), weights)


@mistake(
    Solution.masked_softmax,
    FULLY_MASKED,
    "Set such a row to zeros: multiply the weights by the mask after the softmax as well.",
    companion=True,
)
def all_masked_seen(self: Solution, scores: Array, mask: Mask) -> Array:
    """A fully masked row attends as if no key were hidden: -1e9 is added to all its scores, which does not change
    the softmax."""
    weights = Solution.masked_softmax(self, scores, mask)
    if mask is None:
        return weights
    fully_masked = ~np.broadcast_to(mask, scores.shape).any(-1, keepdims=True)
    return np.where(fully_masked, self.softmax(scores), weights)
