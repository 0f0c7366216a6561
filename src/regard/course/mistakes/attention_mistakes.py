"""Mistakes in scores, softmax and contexts."""

import numpy as np

from regard.course.mistakes.solution import Solution
from regard.course.mistakes.transformer_solution import Array, Mask

EQUATION_1 = "Vaswani et al. 2017, equation 1: softmax(Q Kᵀ / √d_k) V"
SECTION_3_2_1 = "Vaswani et al. 2017, section 3.2.1: 'a softmax function to obtain the weights on the values'"
BAHDANAU_6 = "Bahdanau et al. 2015, equation 6: exp(e_ij) over the sum of all exp(e_ik)"


class NoScale(Solution, paper=EQUATION_1):
    """The scores are not divided by √d_k."""

    instead = "Divide q · k by the square root of the key's width before the softmax."

    def scale(self, query: Array, key: Array, heads: int) -> float:
        return 1.0


class ScaleByWidth(Solution, paper=EQUATION_1):
    """The scores are divided by d_k, not by its square root."""

    instead = "Divide by √d_k: a sum of d_k products of unit size has a spread of √d_k."

    def scale(self, query: Array, key: Array, heads: int) -> float:
        return float(query.shape[-1])


class ScaleMultiplied(Solution, paper=EQUATION_1):
    """The scores are multiplied by √d_k instead of divided by it."""

    instead = "Divide by √d_k, so that wide keys do not make the softmax too sharp."

    def scale(self, query: Array, key: Array, heads: int) -> float:
        return float(query.shape[-1] ** -0.5)


class ScaleByWholeWidth(Solution, paper="Vaswani et al. 2017, section 3.2.2: d_k = d_model / h"):
    """The scores of a head are divided by the root of the model's width, √d_model."""

    instead = "Divide by √d_k with d_k = d_model / h, the width of the head's own keys."

    def scale(self, query: Array, key: Array, heads: int) -> float:
        return float(np.sqrt(query.shape[-1] * heads))


class ScaleByTime(Solution, paper=EQUATION_1):
    """The scores are divided by the root of the number of queries, query.shape[1]."""

    instead = "Use the last dimension: query.shape[-1] is the width."

    def scale(self, query: Array, key: Array, heads: int) -> float:
        return float(np.sqrt(query.shape[-2]))


class ScaleByKeys(Solution, paper=EQUATION_1):
    """The scores are divided by the root of the number of keys: key.shape[1], or the length of a score row."""

    instead = "Use the last dimension of the keys: key.shape[-1] is the width."

    def scale(self, query: Array, key: Array, heads: int) -> float:
        return float(np.sqrt(key.shape[-2]))


class ScaleByHeads(Solution, paper=EQUATION_1):
    """The scores are divided by the root of the number of heads."""

    instead = "Divide by √d_k, the root of the width of a head's keys."

    def scale(self, query: Array, key: Array, heads: int) -> float:
        return float(np.sqrt(heads)) if heads > 1 else super().scale(query, key, heads)


class KeysTimesQueries(Solution, paper=EQUATION_1):
    """Keys and queries are swapped: K Qᵀ has a row for each key, so each key has weights over the queries."""

    instead = "Multiply Q Kᵀ: a row for each query, a column for each key."

    def dot_products(self, query: Array, key: Array) -> Array:
        return np.einsum("...id,...jd->...ij", key, query)


class Cosine(Solution, paper=EQUATION_1):
    """Queries and keys are normalized to unit length first, so their lengths have no effect."""

    instead = "Use the dot product of the unchanged queries and keys."

    def dot_products(self, query: Array, key: Array) -> Array:
        query = query / np.linalg.norm(query, axis=-1, keepdims=True)
        return super().dot_products(query, key / np.linalg.norm(key, axis=-1, keepdims=True))


class QueriesTimesQueries(Solution, paper=EQUATION_1):
    """The queries are compared with each other instead of with the keys."""

    instead = "The second factor of Q Kᵀ is the keys."

    def dot_products(self, query: Array, key: Array) -> Array:
        return np.einsum("...id,...jd->...ij", query, query)


class SoftmaxOverQueries(Solution, paper=SECTION_3_2_1):
    """The softmax is over the queries: the columns of the weights sum to 1, not the rows."""

    instead = "Apply the softmax to the last dimension, so that each query's weights over the keys sum to 1."

    def softmax(self, scores: Array) -> Array:
        if scores.ndim < 3:  # a single query for each batch element
            return super().softmax(scores)
        powers = np.exp(scores - scores.max(-2, keepdims=True))
        return np.asarray(powers / powers.sum(-2, keepdims=True))


class SoftmaxOverBatch(Solution, paper=SECTION_3_2_1):
    """The softmax is over the batch: the weights of a row depend on the other elements of the batch."""

    instead = "Apply the softmax to the last dimension, the keys."

    def softmax(self, scores: Array) -> Array:
        powers = np.exp(scores - scores.max(0, keepdims=True))
        return np.asarray(powers / powers.sum(0, keepdims=True))


class SoftmaxOverAll(Solution, paper=SECTION_3_2_1):
    """One softmax is over queries and keys together: all weights of a sequence sum to 1."""

    instead = "Apply the softmax to each row separately, over the last dimension."

    def softmax(self, scores: Array) -> Array:
        axes = (-2, -1) if scores.ndim > 2 else (-1,)
        powers = np.exp(scores - scores.max(axes, keepdims=True))
        return np.asarray(powers / powers.sum(axes, keepdims=True))


class NoSoftmax(Solution, paper=EQUATION_1):
    """The scores are used as weights: there is no softmax."""

    instead = "Apply the softmax to the scores: weights are positive, and those of a query sum to 1."

    def softmax(self, scores: Array) -> Array:
        return np.where(np.isneginf(scores), 0.0, scores)


class NotNormalized(Solution, paper=BAHDANAU_6):
    """The weights are exp of the scores, but are not divided by their sum."""

    instead = "Divide by the sum of the row, so that the weights of a query sum to 1."

    def softmax(self, scores: Array) -> Array:
        return np.exp(scores)


class DividedWithoutExp(Solution, paper=BAHDANAU_6):
    """The scores are divided by their sum, without exp."""

    instead = "Take exp first: scores may be negative, weights may not."

    def softmax(self, scores: Array) -> Array:
        finite = np.where(np.isneginf(scores), 0.0, scores)
        return finite / finite.sum(-1, keepdims=True)


class Overflow(Solution, paper="Vaswani et al. 2017, section 3.2.1: 'the dot products grow large in magnitude'"):
    """exp of a large score overflows: the result is NaN, inf / inf."""

    instead = "Subtract the largest score of the row first: the softmax stays the same, and exp stays small."
    broken = frozenset(["large scores"])

    def softmax(self, scores: Array) -> Array:
        powers = np.exp(scores)
        return np.asarray(powers / powers.sum(-1, keepdims=True))


class KeysAsValues(Solution, paper=EQUATION_1):
    """The weights are multiplied by the keys: the values are not used."""

    instead = "Multiply the weights by the values."

    def attend(self, query: Array, key: Array, value: Array, mask: Mask, heads: int = 1) -> tuple[Array, Array]:
        return super().attend(query, key, key, mask, heads)


class WeightsTransposed(Solution, paper=EQUATION_1):
    """The weights are transposed before they are multiplied by the values: Wᵀ V."""

    instead = "Multiply weights (Tq, Tk) by values (Tk, D) without transposing."

    def context(self, weights: Array, value: Array) -> Array:
        return np.swapaxes(weights, -2, -1) @ value


class WeightsFirst(Solution, paper="This exercise's stub: returns context, and the weights"):
    """The weights are returned first and the context second."""

    instead = "Return the context, then the weights."

    def attention(self, query: Array, key: Array, value: Array, mask: Mask = None) -> tuple[Array, ...]:
        return self.attend(query, key, value, mask)[::-1]


class ScaleAfterSoftmax(Solution, paper=EQUATION_1):
    """The weights are divided by √d_k after the softmax, instead of the scores before it."""

    instead = "Divide the scores, before the softmax."

    def attend(self, query: Array, key: Array, value: Array, mask: Mask, heads: int = 1) -> tuple[Array, Array]:
        weights = self.masked_softmax(self.dot_products(query, key), mask) / np.sqrt(query.shape[-1])
        return self.context(weights, value), weights


class HardAttention(Solution, paper=EQUATION_1):
    """Each query uses only its best key: argmax instead of softmax."""

    instead = "Use the softmax: all keys contribute by their weights, and gradients can flow."

    def softmax(self, scores: Array) -> Array:
        best = np.eye(scores.shape[-1])[scores.argmax(-1)]
        return np.where(np.isneginf(scores).all(-1, keepdims=True), np.nan, best)
