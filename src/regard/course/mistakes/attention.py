"""Usual mistakes in scores, softmax, masks and contexts."""

import numpy as np

from regard.course.mistakes.solution import Solution
from regard.course.mistakes.transformer_solution import Array, Mask

EQUATION_1 = "Vaswani et al. 2017, equation 1: softmax(Q Kᵀ / √d_k) V"


class NoScale(Solution):
    """The scores are not divided by √d_k."""

    instead = "Divide q · k by the square root of a key's width before the softmax."
    paper = EQUATION_1

    def scale(self, query: Array, key: Array, heads: int) -> float:
        return 1.0


class ScaleByWidth(Solution):
    """The scores are divided by d_k, not by its square root."""

    instead = "Divide by √d_k: a sum of d_k products of unit size has a spread of √d_k."
    paper = EQUATION_1

    def scale(self, query: Array, key: Array, heads: int) -> float:
        return float(query.shape[-1])


class ScaleMultiplied(Solution):
    """The scores are multiplied by √d_k instead of divided by it."""

    instead = "Divide by √d_k, so that wide keys do not make the softmax hard."
    paper = EQUATION_1

    def scale(self, query: Array, key: Array, heads: int) -> float:
        return float(query.shape[-1] ** -0.5)


class ScaleByWholeWidth(Solution):
    """The scores of a head are divided by the root of the whole model's width, √d_model."""

    instead = "Divide by √d_k with d_k = d_model / h, the width of the head's own keys."
    paper = "Vaswani et al. 2017, section 3.2.2: d_k = d_model / h"

    def scale(self, query: Array, key: Array, heads: int) -> float:
        return float(np.sqrt(query.shape[-1] * heads))


class ScaleByTime(Solution):
    """The scores are divided by the root of the number of queries: of query.shape[1], which is time."""

    instead = "Take the last dimension: query.shape[-1] is the width."
    paper = EQUATION_1

    def scale(self, query: Array, key: Array, heads: int) -> float:
        return float(np.sqrt(query.shape[-2]))


class ScaleByKeys(Solution):
    """The scores are divided by the root of the number of keys: of key.shape[1], or of a row of scores."""

    instead = "Take the last dimension of the keys: key.shape[-1] is the width."
    paper = EQUATION_1

    def scale(self, query: Array, key: Array, heads: int) -> float:
        return float(np.sqrt(key.shape[-2]))


class ScaleByHeads(Solution):
    """The scores are divided by the root of the number of heads."""

    instead = "Divide by √d_k, the root of the width of a head's keys."
    paper = EQUATION_1

    def scale(self, query: Array, key: Array, heads: int) -> float:
        return float(np.sqrt(heads)) if heads > 1 else super().scale(query, key, heads)


class KeysTimesQueries(Solution):
    """Keys and queries are swapped: K Qᵀ has a row for each key, so each key shares itself out over the
    queries.
    """

    instead = "Multiply Q Kᵀ: a row for each query, a column for each key."
    paper = EQUATION_1

    def dot_products(self, query: Array, key: Array) -> Array:
        return np.einsum("...id,...jd->...ij", key, query)


class Cosine(Solution):
    """Queries and keys are made unit vectors first, so that their lengths do not count."""

    instead = "Take the dot product of queries and keys as they are."
    paper = EQUATION_1

    def dot_products(self, query: Array, key: Array) -> Array:
        query = query / np.linalg.norm(query, axis=-1, keepdims=True)
        return super().dot_products(query, key / np.linalg.norm(key, axis=-1, keepdims=True))


class QueriesTimesQueries(Solution):
    """The queries are compared with each other instead of with the keys."""

    instead = "The second factor of Q Kᵀ is the keys."
    paper = EQUATION_1

    def dot_products(self, query: Array, key: Array) -> Array:
        return np.einsum("...id,...jd->...ij", query, query)


class SoftmaxOverQueries(Solution):
    """The softmax runs over the queries: the columns of the weights sum to 1, not the rows."""

    instead = "Take the softmax over the last dimension, so that each query's weights over the keys sum to 1."
    paper = "Vaswani et al. 2017, section 3.2.1: 'a softmax function to obtain the weights on the values'"

    def softmax(self, scores: Array) -> Array:
        if scores.ndim < 3:  # there is one query for each element of the batch
            return super().softmax(scores)
        raised = np.exp(scores - scores.max(-2, keepdims=True))
        return np.asarray(raised / raised.sum(-2, keepdims=True))


class SoftmaxOverBatch(Solution):
    """The softmax runs over the batch: what a row attends to depends on who else is in the batch."""

    instead = "Take the softmax over the last dimension, the keys."
    paper = "Vaswani et al. 2017, section 3.2.1: 'a softmax function to obtain the weights on the values'"

    def softmax(self, scores: Array) -> Array:
        raised = np.exp(scores - scores.max(0, keepdims=True))
        return np.asarray(raised / raised.sum(0, keepdims=True))


class SoftmaxOverAll(Solution):
    """One softmax runs over queries and keys together: all weights of a sequence sum to 1."""

    instead = "Take the softmax of each row by itself, over the last dimension."
    paper = "Vaswani et al. 2017, section 3.2.1: 'a softmax function to obtain the weights on the values'"

    def softmax(self, scores: Array) -> Array:
        axes = (-2, -1) if scores.ndim > 2 else (-1,)
        raised = np.exp(scores - scores.max(axes, keepdims=True))
        return np.asarray(raised / raised.sum(axes, keepdims=True))


class NoSoftmax(Solution):
    """The scores themselves are taken for weights: there is no softmax."""

    instead = "Apply the softmax to the scores: weights are positive, and those of a query sum to 1."
    paper = EQUATION_1

    def softmax(self, scores: Array) -> Array:
        return np.where(np.isneginf(scores), 0.0, scores)


class NotNormalised(Solution):
    """The scores are raised by exp, but not divided by their sum."""

    instead = "Divide by the sum of the row, so that the weights of a query sum to 1."
    paper = "Bahdanau et al. 2015, equation 6: exp(e_ij) over the sum of all exp(e_ik)"

    def softmax(self, scores: Array) -> Array:
        return np.exp(scores)


class PlainShares(Solution):
    """The scores are divided by their sum without exp."""

    instead = "Raise by exp first: scores may be negative, weights may not."
    paper = "Bahdanau et al. 2015, equation 6: exp(e_ij) over the sum of all exp(e_ik)"

    def softmax(self, scores: Array) -> Array:
        shown = np.where(np.isneginf(scores), 0.0, scores)
        return shown / shown.sum(-1, keepdims=True)


class Overflow(Solution):
    """exp of a large score overflows: the answer is NaN, inf / inf."""

    instead = (
        "Take the largest score of the row from all of them first: the softmax stays the same, and exp small."
    )
    paper = "Vaswani et al. 2017, section 3.2.1: 'the dot products grow large in magnitude'"
    broken = frozenset(["large scores"])

    def softmax(self, scores: Array) -> Array:
        raised = np.exp(scores)
        return np.asarray(raised / raised.sum(-1, keepdims=True))


class KeysAsValues(Solution):
    """The weights are multiplied by the keys: the values are not used."""

    instead = "Multiply the weights by the values."
    paper = EQUATION_1

    def attend(self, query: Array, key: Array, value: Array, mask: Mask, heads: int = 1) -> tuple[Array, Array]:
        return super().attend(query, key, key, mask, heads)


class WeightsTransposed(Solution):
    """The weights are turned round before they meet the values: Wᵀ V."""

    instead = "Multiply weights (Tq, Tk) by values (Tk, D) as they stand."
    paper = EQUATION_1

    def context(self, weights: Array, value: Array) -> Array:
        return np.swapaxes(weights, -2, -1) @ value


class WeightsFirst(Solution):
    """The weights come back first and the context second."""

    instead = "Return the context, then the weights."
    paper = "This exercise's stub: returns contexts and weights"

    def attention(self, query: Array, key: Array, value: Array, mask: Mask = None) -> tuple[Array, ...]:
        return self.attend(query, key, value, mask)[::-1]


class ScaleAfterSoftmax(Solution):
    """The weights are divided by √d_k after the softmax, not the scores before it."""

    instead = "Divide the scores, before the softmax."
    paper = EQUATION_1

    def attend(self, query: Array, key: Array, value: Array, mask: Mask, heads: int = 1) -> tuple[Array, Array]:
        weights = self.masked_softmax(self.dot_products(query, key), mask) / np.sqrt(query.shape[-1])
        return self.context(weights, value), weights


class HardAttention(Solution):
    """Each query takes the one best key: argmax instead of softmax."""

    instead = "Take the softmax: all keys count, each by its weight, and gradients pass."
    paper = EQUATION_1

    def softmax(self, scores: Array) -> Array:
        best = np.eye(scores.shape[-1])[scores.argmax(-1)]
        return np.where(np.isneginf(scores).all(-1, keepdims=True), np.nan, best)
