"""Mistakes in scores, softmax and contexts."""

from typing import Any

import numpy as np

from regard_course.mistakes.solution import Solution, mistake, mistakes_in
from regard_course.mistakes.transformer_solution import Array, Mask

EQUATION_1 = "Vaswani et al. 2017, equation 1: softmax(Q Kᵀ / √d_k) V"
SECTION_3_2_1 = "Vaswani et al. 2017, section 3.2.1: 'a softmax function to obtain the weights on the values'"
LARGE_HIDDEN = "large hidden scores"
MASKED = frozenset(
    [
        *("a mask", "a square mask", "a batch of one", "gradients", "a fully masked row", "by hand"),
        *("equal scores", "one key", LARGE_HIDDEN),
    ]
)
"""Inputs with a mask, under which a sum over another dimension than the keys may be 0."""
BAHDANAU_6 = "Bahdanau et al. 2015, equation 6: exp(e_ij) over the sum of all exp(e_ik)"
scale = mistakes_in(Solution.scale, EQUATION_1)
softmax_section_3_2_1 = mistakes_in(Solution.softmax, SECTION_3_2_1)
softmax_equation_1 = mistakes_in(Solution.softmax, EQUATION_1)
softmax_bahdanau_6 = mistakes_in(Solution.softmax, BAHDANAU_6)
attend = mistakes_in(Solution.attend, EQUATION_1)


@scale("Divide q · k by the square root of the key's width before the softmax.")
def no_scale(self: Solution, query: Array, key: Array, heads: int) -> float:
    """The scores are not divided by √d_k."""
    return 1.0


@scale("Divide by √d_k: a sum of d_k products of unit size has a spread of √d_k.")
def scale_by_width(self: Solution, query: Array, key: Array, heads: int) -> float:
    """The scores are divided by d_k, not by its square root."""
    return float(query.shape[-1])


@scale("Divide by √d_k, so that wide keys do not make the softmax too sharp.")
def scale_multiplied(self: Solution, query: Array, key: Array, heads: int) -> float:
    """The scores are multiplied by √d_k instead of divided by it."""
    return float(query.shape[-1] ** -0.5)


@mistake(
    Solution.scale,
    "Vaswani et al. 2017, section 3.2.2: d_k = d_model / h",
    "Divide by √d_k with d_k = d_model / h, the width of the head's keys.",
)
def scale_by_whole_width(self: Solution, query: Array, key: Array, heads: int) -> float:
    """The scores of a head are divided by the root of the model's width, √d_model."""
    return float(np.sqrt(query.shape[-1] * heads))


@scale("Use the last dimension: query.shape[-1] is the width.")
def scale_by_time(self: Solution, query: Array, key: Array, heads: int) -> float:
    """The scores are divided by the root of the number of queries, query.shape[1]."""
    return float(np.sqrt(query.shape[-2] if query.ndim > 2 else query.shape[-1]))  # 2: no dimension of queries


@scale("Use the last dimension of the keys: key.shape[-1] is the width.")
def scale_by_keys(self: Solution, query: Array, key: Array, heads: int) -> float:
    """The scores are divided by the root of the number of keys: key.shape[1], or the length of a score row."""
    return float(np.sqrt(key.shape[-2]))


@attend("Use the width of the queries and keys, not of the values.")
def scale_by_value_width(
    self: Solution, query: Array, key: Array, value: Array, mask: Mask, heads: int = 1
) -> tuple[Array, Array]:
    """The scores are divided by the root of the value's width."""
    weights = self.masked_softmax(self.dot_products(query, key) / np.sqrt(value.shape[-1]), mask)
    return self.context(weights, value), weights


@scale("Use the last dimension: query.shape[-1] is the width.")
def scale_by_batch(self: Solution, query: Array, key: Array, heads: int) -> float:
    """The scores are divided by the root of the batch size: len(query), or query.shape[0]."""
    return float(np.sqrt(query.shape[0]))


@scale("Divide by √d_k, the root of the width of a head's keys.")
def scale_by_heads(self: Solution, query: Array, key: Array, heads: int) -> float:
    """The scores are divided by the root of the number of heads."""
    return float(np.sqrt(heads)) if heads > 1 else Solution.scale(self, query, key, heads)


@softmax_section_3_2_1(
    "Apply the softmax to the last dimension, so that each query's weights over the keys sum to 1.",
)
def softmax_over_queries(self: Solution, scores: Array) -> Array:
    """The softmax is over the queries: the columns of the weights sum to 1, not the rows."""
    return self.softmax_over(scores, -2 if scores.ndim > 2 else -1)  # 2: a single query for each batch element


@mistake(
    Solution.softmax,
    SECTION_3_2_1,
    "Sum over the last dimension too, so that each query's weights over the keys sum to 1.",
    broken=MASKED | {"large scores"},
)
def divided_by_column_sums(self: Solution, scores: Array) -> Array:
    """The exps of a row, after the largest score of the row was subtracted, are divided by the sum of a column:
    the maximum is over the keys, but the sum is over the queries."""
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isneginf(top), 0, top))
    totals = powers.sum(-2 if scores.ndim > 2 else -1, keepdims=True)
    return np.asarray(powers / np.where(totals == 0, 1, totals))


@mistake(
    Solution.softmax,
    SECTION_3_2_1,
    "Apply the softmax to the last dimension, the keys: axis=1 of (B, H, Tq, Tk) contains the heads.",
    broken=MASKED,
)
def softmax_over_heads(self: Solution, scores: Array) -> Array:
    """The softmax is over the heads (axis 1): in each pair of query and key the heads share a weight of 1."""
    return self.softmax_over(scores, 1 if scores.ndim > 3 else -1)


@mistake(Solution.softmax, SECTION_3_2_1, "Apply the softmax to the last dimension, the keys.", broken=MASKED)
def softmax_over_batch(self: Solution, scores: Array) -> Array:
    """The softmax is over the batch: the weights of a row depend on the other elements of the batch."""
    return self.softmax_over(scores, 0)


@softmax_section_3_2_1("Apply the softmax to each row separately, over the last dimension.")
def softmax_over_all(self: Solution, scores: Array) -> Array:
    """A single softmax covers queries and keys: all weights of a sequence sum to 1."""
    return self.softmax_over(scores, (-2, -1) if scores.ndim > 2 else -1)


@softmax_section_3_2_1("Sum over the last dimension only, and keep it: sum(-1, keepdims=True).")
def softmax_over_everything(self: Solution, scores: Array) -> Array:
    """A single softmax covers the whole array, with all sequences: exp(x) / sum(exp(x)) without an axis."""
    return self.softmax_over(scores, tuple(range(scores.ndim)))


@softmax_equation_1(
    "Apply the softmax to the scores: the weights are then positive, and the weights of a query sum to 1.",
)
def no_softmax(self: Solution, scores: Array) -> Array:
    """The scores are used as weights: there is no softmax."""
    return np.where(np.isneginf(scores), 0.0, scores)


@softmax_bahdanau_6("Divide by the sum of the row, so that the weights of a query sum to 1.")
def not_normalized(self: Solution, scores: Array) -> Array:
    """The weights are exp of the scores, but are not divided by their sum."""
    return np.exp(scores)


@softmax_bahdanau_6(
    "Take exp first: scores may be negative, but weights may not.", broken=frozenset(["equal scores"])
)
def divided_without_exp(self: Solution, scores: Array) -> Array:
    """The scores are divided by their sum, without exp."""
    finite = np.where(np.isneginf(scores), 0.0, scores)
    return finite / finite.sum(-1, keepdims=True)


@mistake(
    Solution.softmax_over,
    "Vaswani et al. 2017, section 3.2.1: 'the dot products grow large in magnitude'",
    "Subtract the largest score of the row first: the softmax stays the same, and exp stays small.",
    broken=frozenset(["large scores", LARGE_HIDDEN]),
)
def overflow(self: Solution, scores: Array, axis: int | tuple[int, ...]) -> Array:
    """exp of large scores overflows, or a whole row is 0, because the largest score of the row is not subtracted:
    the result is inf / inf or 0 / 0, which is NaN."""
    powers = np.exp(scores)
    return np.asarray(powers / powers.sum(axis, keepdims=True))


@attend("Multiply the weights by the values.")
def keys_as_values(
    self: Solution, query: Array, key: Array, value: Array, mask: Mask, heads: int = 1
) -> tuple[Array, Array]:
    """The weights are multiplied by the keys: the values are not used."""
    return Solution.attend(self, query, key, key, mask, heads)


@attend("Compare the queries with the keys, and multiply the weights by the values.")
def keys_and_values_swapped(
    self: Solution, query: Array, key: Array, value: Array, mask: Mask, heads: int = 1
) -> tuple[Array, Array]:
    """Keys and values are swapped: the queries are compared with the values."""
    return Solution.attend(self, query, value, key, mask, heads)


@mistake(Solution.context, EQUATION_1, "Multiply weights (Tq, Tk) by values (Tk, D) without transposing.")
def weights_transposed(self: Solution, weights: Array, value: Array) -> Array:
    """The weights are transposed before they are multiplied by the values: Wᵀ V."""
    return np.swapaxes(weights, -2, -1) @ value


@mistake(
    Solution.attention,
    "This exercise's stub: returns context, and the weights",
    "Return the context first, then the weights.",
)
def weights_first(self: Solution, query: Array, key: Array, value: Array, mask: Mask = None) -> tuple[Array, ...]:
    """The weights are returned first and the context second."""
    return self.attend(query, key, value, mask)[::-1]


class ScoresReturned(Solution, paper="This exercise's stub: returns the weights"):
    """The scores are returned instead of the weights."""

    instead = "Return the weights, the result of the softmax."
    scores: Array

    def masked_softmax(self, scores: Array, mask: Mask) -> Array:
        self.scores = scores if mask is None else self.apply_mask(scores, mask)
        return super().masked_softmax(scores, mask)

    def attention(self, query: Array, key: Array, value: Array, mask: Mask = None) -> tuple[Array, ...]:
        return self.attend(query, key, value, mask)[0], self.scores

    def bahdanau_step(self, *inputs: Any, **named: Any) -> tuple[Array, ...]:
        return super().bahdanau_step(*inputs, **named)[0], self.scores

    def luong_step(self, *inputs: Any, **named: Any) -> tuple[Array, ...]:
        return *super().luong_step(*inputs, **named)[:2], self.scores


class UnmaskedScoresReturned(ScoresReturned):
    """The scores, before the mask, are returned instead of the weights."""

    def masked_softmax(self, scores: Array, mask: Mask) -> Array:
        self.scores = scores
        return Solution.masked_softmax(self, scores, mask)


@attend("Divide the scores, before the softmax.")
def scale_after_softmax(
    self: Solution, query: Array, key: Array, value: Array, mask: Mask, heads: int = 1
) -> tuple[Array, Array]:
    """The weights are divided by √d_k after the softmax, instead of the scores before it."""
    weights = self.masked_softmax(self.dot_products(query, key), mask) / np.sqrt(query.shape[-1])
    return self.context(weights, value), weights


@softmax_equation_1("Use the softmax: all keys contribute, and gradients reach the scores.")
def hard_attention(self: Solution, scores: Array) -> Array:
    """Only the largest score counts: argmax instead of softmax."""
    best = np.eye(scores.shape[-1])[scores.argmax(-1)]
    return np.where(np.isneginf(scores).all(-1, keepdims=True), np.nan, best)
