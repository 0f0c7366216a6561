"""Mistakes in the dot products of queries and keys."""

import numpy as np

from regard_course.mistakes.attention_mistakes import EQUATION_1
from regard_course.mistakes.solution import Solution, mistake, mistakes_in
from regard_course.mistakes.transformer_solution import Array

dot_products = mistakes_in(Solution.dot_products, EQUATION_1)
MULTIPLY = "Multiply Q Kᵀ: query @ key.swapaxes(-2, -1), in PyTorch also query @ key.mT."


@dot_products("Multiply Q Kᵀ: a row for each query, a column for each key.")
def keys_times_queries(self: Solution, query: Array, key: Array) -> Array:
    """Keys and queries are swapped: K Qᵀ has a row for each key, so each key has weights over the queries."""
    return np.einsum("...id,...jd->...ij", key, query)


@dot_products("Use the dot product of the unchanged queries and keys.")
def cosine(self: Solution, query: Array, key: Array) -> Array:
    """Queries and keys are normalized to unit length first, so their lengths have no effect."""
    query = query / np.linalg.norm(query, axis=-1, keepdims=True)
    return Solution.dot_products(self, query, key / np.linalg.norm(key, axis=-1, keepdims=True))


@dot_products("The second factor of Q Kᵀ contains the keys.")
def queries_times_queries(self: Solution, query: Array, key: Array) -> Array:
    """The queries are compared with each other instead of with the keys."""
    return np.einsum("...id,...jd->...ij", query, query)


@dot_products("The first factor of Q Kᵀ contains the queries.")
def keys_times_keys(self: Solution, query: Array, key: Array) -> Array:
    """The keys are compared with each other instead of with the queries."""
    return np.einsum("...id,...jd->...ij", key, key)


@dot_products("Add each product to the sum: +=, not =.")
def last_product_only(self: Solution, query: Array, key: Array) -> Array:
    """Each product overwrites the one before it, so only the product of the last dimension is left."""
    return query[..., :, None, -1] * key[..., None, :, -1]


@dot_products("Compare each query with all Tk keys: Tk may differ from Tq.")
def as_many_keys_as_queries(self: Solution, query: Array, key: Array) -> Array:
    """The loop over the keys ends after Tq keys: there may be more keys, or fewer."""
    if key.shape[-2] < query.shape[-2]:
        raise IndexError
    return Solution.dot_products(self, query, key[..., : query.shape[-2], :])


@dot_products("Swap the last two dimensions of the keys only: key.swapaxes(-2, -1), in PyTorch also key.mT.")
def all_axes_reversed(self: Solution, query: Array, key: Array) -> Array:
    """key.T reverses all dimensions, the batch too: query @ key.T fails, or mixes the sequences of the batch."""
    return query @ key.T


@dot_products("Multiply by the transposed keys: query @ key.swapaxes(-2, -1), in PyTorch also key.mT.")
def keys_not_transposed(self: Solution, query: Array, key: Array) -> Array:
    """The keys are not transposed: query @ key fails, or adds over the keys instead of over the width."""
    return query @ key


@dot_products("Multiply Q Kᵀ: query @ key.swapaxes(-2, -1).")
def keys_times_untransposed_queries(self: Solution, query: Array, key: Array) -> Array:
    """Keys and queries are swapped, and nothing is transposed: key @ query."""
    return key @ query


@dot_products("Multiply Q Kᵀ: query @ key.swapaxes(-2, -1).")
def keys_times_reversed_queries(self: Solution, query: Array, key: Array) -> Array:
    """Keys and queries are swapped, and .T reverses all dimensions, the batch too: key @ query.T."""
    return key @ query.T


@dot_products("Use @ or np.matmul, which multiply the matrices of each sequence separately.")
def dot_across_batch(self: Solution, query: Array, key: Array) -> Array:
    """np.dot multiplies each sequence of the batch by each other sequence: the result has one dimension more."""
    return np.dot(query, np.swapaxes(key, -2, -1))


@dot_products("Multiply matrices: query @ key.swapaxes(-2, -1).")
def elementwise_scores(self: Solution, query: Array, key: Array) -> Array:
    """Queries and keys are multiplied element by element: query i meets key i only, and nothing is summed."""
    return query * key


@dot_products("np.dot of 3-D arrays ignores the batch. " + MULTIPLY)
def dot_of_untransposed_keys(self: Solution, query: Array, key: Array) -> Array:
    """np.dot(query, key): the keys are not transposed, and each sequence meets each other sequence."""
    return np.dot(query, key)


@dot_products("np.dot of 3-D arrays ignores the batch, and .T reverses all dimensions. " + MULTIPLY)
def dot_of_reversed_keys(self: Solution, query: Array, key: Array) -> Array:
    """np.dot(query, key.T): .T reverses all dimensions, and each sequence meets each other sequence."""
    return np.dot(query, key.T)


@dot_products("Swap the last two dimensions of the keys, and leave the batch in front: key.swapaxes(-2, -1).")
def batch_and_keys_swapped(self: Solution, query: Array, key: Array) -> Array:
    """transpose(0, 1) or swapaxes(0, 1) swaps the batch and the keys, not the keys and the width."""
    return query @ key.swapaxes(0, 1)


@dot_products("Swap the last two dimensions of the keys, and leave the batch in front: key.swapaxes(-2, -1).")
def batch_moved_to_the_end(self: Solution, query: Array, key: Array) -> Array:
    """permute(1, 2, 0) moves the batch of the keys behind the width: only (0, 2, 1) leaves it in front."""
    return query @ np.moveaxis(key, 0, -1)


@dot_products("Transpose the keys, not the queries. " + MULTIPLY)
def queries_transposed(self: Solution, query: Array, key: Array) -> Array:
    """The queries are transposed instead of the keys: Qᵀ K fails, or adds over the steps instead of the width."""
    return query.swapaxes(-2, -1) @ key


@dot_products("Transpose the keys, not the queries. " + MULTIPLY)
def queries_reversed(self: Solution, query: Array, key: Array) -> Array:
    """query.T @ key: the queries are transposed instead of the keys, and .T reverses the batch, too."""
    return query.T @ key


@dot_products("The queries come first. " + MULTIPLY)
def transposed_keys_first(self: Solution, query: Array, key: Array) -> Array:
    """The transposed keys come first: Kᵀ Q fails, or adds over the steps instead of over the width."""
    return key.swapaxes(-2, -1) @ query


@dot_products("The queries come first, and .T reverses the batch, too. " + MULTIPLY)
def reversed_keys_first(self: Solution, query: Array, key: Array) -> Array:
    """key.T @ query: the transposed keys come first, and .T reverses the batch, too."""
    return key.T @ query


@dot_products(
    "A new shape does not move numbers: swap the dimensions with swapaxes(-2, -1) or transpose(-2, -1)."
)
def keys_reshaped(self: Solution, query: Array, key: Array) -> Array:
    """The keys are reshaped instead of transposed: reshape and view keep the order of the numbers."""
    *batch, steps, width = key.shape
    return query @ key.reshape(*batch, width, steps)


@dot_products("Compare each query with each key. " + MULTIPLY)
def equal_steps_only(self: Solution, query: Array, key: Array) -> Array:
    """Query i is compared with key i only, as in (query * key).sum(-1): this fails unless Tq is Tk."""
    return np.asarray((query * key).sum(-1))


@dot_products("Sum over the width only, and keep each pair of query and key apart. " + MULTIPLY)
def everything_summed(self: Solution, query: Array, key: Array) -> Array:
    """All products are summed to a single number: the sum has no axis."""
    return np.asarray((query * key).sum())


@dot_products("Sum the products over the width, the last dimension.")
def products_not_summed(self: Solution, query: Array, key: Array) -> Array:
    """The products of each query and key are not summed over the width: the result has one dimension more."""
    return query[..., :, None, :] * key[..., None, :, :]


@dot_products("Sum the products over the width, the last dimension.")
def products_summed_over_keys(self: Solution, query: Array, key: Array) -> Array:
    """The products of each query and key are summed over the keys instead of over the width."""
    return np.asarray((query[..., :, None, :] * key[..., None, :, :]).sum(-2))


@dot_products("Multiply the matrices of each sequence separately, and keep the batch as first dimension.")
def batch_summed(self: Solution, query: Array, key: Array) -> Array:
    """The scores are summed over the batch: 'bqd,bkd->qk' has no b on the right."""
    return np.asarray(Solution.dot_products(self, query, key).sum(0))


@dot_products("Multiply the matrices of each sequence separately, and keep the batch as first dimension.")
def first_sequence_only(self: Solution, query: Array, key: Array) -> Array:
    """Only the first sequence of the batch is used: query[0] and key[0]."""
    return Solution.dot_products(self, query[0], key[0])


@dot_products("Multiply the matrices of each sequence separately: @ does this for the last two dimensions.")
def batch_flattened(self: Solution, query: Array, key: Array) -> Array:
    """The batch is joined with the steps, as in reshape(-1, D): each sequence meets each other sequence."""
    return query.reshape(-1, query.shape[-1]) @ key.reshape(-1, key.shape[-1]).T


@mistake(Solution.score, "This exercise's stub: returns Q Kᵀ / √D", "Return the scores: the softmax comes later.")
def softmax_of_scores(self: Solution, query: Array, key: Array) -> Array:
    """The softmax is applied already: its result has the weights, not the scores."""
    return self.softmax(Solution.score(self, query, key))
