"""Mistakes in multi-head attention."""

import numpy as np

from regard_course.mistakes.solution import Solution, mistake, mistakes_in
from regard_course.mistakes.transformer_solution import Array, Mask, Three

MULTI_HEAD = "Vaswani et al. 2017, section 3.2.2: MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O"
HEAD_I = "Vaswani et al. 2017, section 3.2.2: head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)"
split = mistakes_in(Solution.split, HEAD_I)
join = mistakes_in(Solution.join, MULTI_HEAD)
project_inputs = mistakes_in(Solution.project_inputs, HEAD_I)


@split("View as (B, T, H, D/H) first, then swap T and H: a head consists of D/H columns of every step.")
def wrong_view(self: Solution, states: Array, heads: int) -> Array:
    """The heads are split by a view that mixes steps: (B, T, D) is viewed as (B, H, T, D/H) directly."""
    return states.reshape(len(states), heads, states.shape[1], -1)


@join("Swap H and T first, then view as (B, T, D). Call .contiguous() in between, or use reshape.")
def wrong_join(self: Solution, states: Array) -> Array:
    """The heads are joined without swapping back: (B, H, T, D/H) is viewed as (B, T, D) directly."""
    return states.reshape(len(states), states.shape[2], -1)


@split(
    "View as (B, T, H, D/H): head i has the columns i D/H to (i + 1) D/H. The weights of other models have "
    "this order.",
)
def heads_interleaved(self: Solution, states: Array, heads: int) -> Array:
    """A head uses every h-th column (a view as D/H, H) instead of adjacent columns."""
    return states.reshape(*states.shape[:2], -1, heads).transpose(0, 3, 1, 2)


@mistake(Solution.attend, HEAD_I, "Swap T and H, so that the last two dimensions of the queries are T and D/H.")
def attention_over_heads(
    self: Solution, query: Array, key: Array, value: Array, mask: Mask, heads: int = 1
) -> tuple[Array, Array]:
    """T and H are never swapped: in each step the heads attend to each other, and no step attends to another."""
    if query.ndim < 4:
        return Solution.attend(self, query, key, value, mask, heads)
    query, key, value = (np.swapaxes(states, 1, 2) for states in (query, key, value))
    context, weights = Solution.attend(self, query, key, value, mask, heads)
    return np.swapaxes(context, 1, 2), weights


@split("Split queries, keys and values into h heads of width D / h before the scores.")
def one_head(self: Solution, states: Array, heads: int) -> Array:
    """There is one head over the whole width: the number of heads has no effect."""
    return states[:, None]


@mistake(Solution.project_output, MULTI_HEAD, "Multiply the joined heads by W^O, which mixes their results.")
def no_output_projection(self: Solution, joined: Array, w_o: Array) -> Array:
    """The output projection W^O is missing."""
    return joined


@project_inputs("Multiply by W^Q, W^K and W^V first.")
def no_input_projections(self: Solution, inputs: Three, weights: Three) -> list[Array]:
    """Queries, keys and values are not projected: the heads are slices of the input itself."""
    return list(inputs)


@project_inputs("Project the keys with their own matrix, W^K.")
def keys_by_query_weights(self: Solution, inputs: Three, weights: Three) -> list[Array]:
    """The keys are projected with W^Q."""
    return Solution.project_inputs(self, inputs, (weights[0], weights[0], weights[2]))


@project_inputs("Project the values with their own matrix, W^V.")
def values_by_key_weights(self: Solution, inputs: Three, weights: Three) -> list[Array]:
    """The values are projected with W^K."""
    return Solution.project_inputs(self, inputs, (weights[0], weights[1], weights[1]))


@project_inputs("Give queries, keys and values their own matrices: W^Q, W^K and W^V.")
def one_projection(self: Solution, inputs: Three, weights: Three) -> list[Array]:
    """Queries, keys and values share one projection, W^Q."""
    return Solution.project_inputs(self, inputs, (weights[0], weights[0], weights[0]))


@mistake(
    Solution.multi_head_attention,
    "PyTorch's nn.MultiheadAttention expects (T, B, D) unless batch_first=True",
    "Pass batch_first=True: the inputs are (B, T, D).",
)
def batch_first_forgotten(
    self: Solution,
    query: Array,
    key: Array,
    value: Array,
    w_q: Array,
    w_k: Array,
    w_v: Array,
    w_o: Array,
    heads: int,
    mask: Mask = None,
) -> Array:
    """Batch and time are confused, as by nn.MultiheadAttention without batch_first=True: the same step of
    different sequences attend to each other."""
    query, key, value = (states.swapaxes(0, 1) for states in (query, key, value))
    result = Solution.multi_head_attention(self, query, key, value, w_q, w_k, w_v, w_o, heads, mask)
    return result.swapaxes(0, 1)


@project_inputs("Multiply the values by W^V.")
def values_not_projected(self: Solution, inputs: Three, weights: Three) -> list[Array]:
    """The values are not projected."""
    return [*Solution.project_inputs(self, inputs, weights)[:2], inputs[2]]


@project_inputs("Apply W^Q to the queries and W^K to the keys.")
def query_and_key_weights_swapped(self: Solution, inputs: Three, weights: Three) -> list[Array]:
    """W^Q is applied to the keys and W^K to the queries."""
    return Solution.project_inputs(self, inputs, (weights[1], weights[0], weights[2]))


@project_inputs("Project keys and values from the second and third argument.")
def always_self_attention(self: Solution, inputs: Three, weights: Three) -> list[Array]:
    """Keys and values are computed from the query argument: the layer always does self-attention."""
    return Solution.project_inputs(self, (inputs[0], inputs[0], inputs[0]), weights)


@project_inputs("Project the values from the third argument.")
def values_from_keys(self: Solution, inputs: Three, weights: Three) -> list[Array]:
    """The values are computed from the key argument; the value argument is not used."""
    return Solution.project_inputs(self, (inputs[0], inputs[1], inputs[1]), weights)


@mistake(Solution.project, HEAD_I, "Multiply x by W without transposing it; its shape is (in, out).")
def weights_on_the_left(self: Solution, states: Array, weight: Array) -> Array:
    """The weights are transposed: x Wᵀ instead of x W."""
    return states @ weight.T


@mistake(
    Solution.head_mask, HEAD_I, "Add a dimension for heads to the mask, mask[:, None], and let it broadcast."
)
def mask_of_another_head(self: Solution, mask: Mask, heads: int) -> Mask:
    """The mask is repeated in the wrong order: a head of one sentence gets the mask of another sentence."""
    if mask is None:
        return None
    return np.tile(mask, (heads, 1, 1)).reshape(len(mask), heads, *mask.shape[1:])


@join("Join the heads in order: head 1's columns, then head 2's.")
def heads_reversed(self: Solution, states: Array) -> Array:
    """The heads are joined in the wrong order, or with their columns interleaved."""
    return states.transpose(0, 2, 3, 1).reshape(len(states), states.shape[2], -1)
