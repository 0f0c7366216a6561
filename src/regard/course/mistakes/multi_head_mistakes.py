"""Mistakes in multi-head attention."""

import numpy as np

from regard.course.mistakes.solution import Solution
from regard.course.mistakes.transformer_solution import Array, Mask, Three

MULTI_HEAD = "Vaswani et al. 2017, section 3.2.2: MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O"
HEAD_I = "Vaswani et al. 2017, section 3.2.2: head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)"


class WrongView(Solution, paper=HEAD_I):
    """The heads are split by a view that mixes steps: (B, T, D) is viewed as (B, H, T, D/H) directly."""

    instead = "View as (B, T, H, D/H) first, then swap T and H: a head is some columns of every step."

    def split(self, states: Array, heads: int) -> Array:
        return states.reshape(len(states), heads, states.shape[1], -1)


class WrongJoin(Solution, paper=MULTI_HEAD):
    """The heads are joined without swapping back: (B, H, T, D/H) is viewed as (B, T, D) directly."""

    instead = "Swap H and T first, then view as (B, T, D). This needs .contiguous() in between, or reshape."

    def join(self, states: Array) -> Array:
        return states.reshape(len(states), states.shape[2], -1)


class HeadsInterleaved(Solution, paper=HEAD_I):
    """A head uses every h-th column (a view as D/H, H) instead of adjacent columns."""

    instead = (
        "View as (B, T, H, D/H): head i has the columns i D/H to (i + 1) D/H. Weights of other models need "
        "this order."
    )

    def split(self, states: Array, heads: int) -> Array:
        return states.reshape(*states.shape[:2], -1, heads).transpose(0, 3, 1, 2)


class AttentionOverHeads(Solution, paper=HEAD_I):
    """T and H are never swapped: in each step the heads attend to each other, and no step attends to another."""

    instead = "Swap T and H, so that the last two dimensions of the queries are T and D/H."

    def attend(self, query: Array, key: Array, value: Array, mask: Mask, heads: int = 1) -> tuple[Array, Array]:
        if query.ndim < 4:
            return super().attend(query, key, value, mask, heads)
        query, key, value = (np.swapaxes(states, 1, 2) for states in (query, key, value))
        context, weights = super().attend(query, key, value, mask, heads)
        return np.swapaxes(context, 1, 2), weights


class OneHead(Solution, paper=HEAD_I):
    """There is one head over the whole width: the number of heads has no effect."""

    instead = "Split queries, keys and values into h heads of width D / h before the scores."

    def split(self, states: Array, heads: int) -> Array:
        return states[:, None]


class NoOutputProjection(Solution, paper=MULTI_HEAD):
    """The output projection W^O is missing."""

    instead = "Multiply the joined heads by W^O, which mixes their results."

    def project_output(self, joined: Array, w_o: Array) -> Array:
        return joined


class NoInputProjections(Solution, paper=HEAD_I):
    """Queries, keys and values are not projected: the heads are slices of the input itself."""

    instead = "Multiply by W^Q, W^K and W^V first."

    def project_inputs(self, inputs: Three, weights: Three) -> list[Array]:
        return list(inputs)


class KeysByQueryWeights(Solution, paper=HEAD_I):
    """The keys are projected by W^Q."""

    instead = "Project the keys by their own matrix, W^K."

    def project_inputs(self, inputs: Three, weights: Three) -> list[Array]:
        return super().project_inputs(inputs, (weights[0], weights[0], weights[2]))


class ValuesByKeyWeights(Solution, paper=HEAD_I):
    """The values are projected by W^K."""

    instead = "Project the values by their own matrix, W^V."

    def project_inputs(self, inputs: Three, weights: Three) -> list[Array]:
        return super().project_inputs(inputs, (weights[0], weights[1], weights[1]))


class ValuesNotProjected(Solution, paper=HEAD_I):
    """The values are not projected."""

    instead = "Multiply the values by W^V."

    def project_inputs(self, inputs: Three, weights: Three) -> list[Array]:
        return [*super().project_inputs(inputs, weights)[:2], inputs[2]]


class QueryAndKeyWeightsSwapped(Solution, paper=HEAD_I):
    """W^Q is applied to the keys and W^K to the queries."""

    instead = "Apply W^Q to the queries and W^K to the keys."

    def project_inputs(self, inputs: Three, weights: Three) -> list[Array]:
        return super().project_inputs(inputs, (weights[1], weights[0], weights[2]))


class AlwaysSelfAttention(Solution, paper=HEAD_I):
    """Keys and values are computed from the query argument: the layer always does self-attention."""

    instead = "Project keys and values from the second and third argument."

    def project_inputs(self, inputs: Three, weights: Three) -> list[Array]:
        return super().project_inputs((inputs[0], inputs[0], inputs[0]), weights)


class ValuesFromKeys(Solution, paper=HEAD_I):
    """The values are computed from the key argument; the value argument is not used."""

    instead = "Project the values from the third argument."

    def project_inputs(self, inputs: Three, weights: Three) -> list[Array]:
        return super().project_inputs((inputs[0], inputs[1], inputs[1]), weights)


class WeightsOnTheLeft(Solution, paper=HEAD_I):
    """The weights are transposed: x Wᵀ instead of x W."""

    instead = "Multiply x by W without transposing it; its shape is (in, out)."

    def project(self, states: Array, weight: Array) -> Array:
        return states @ weight.T


class MaskOfAnotherHead(Solution, paper=HEAD_I):
    """The mask is repeated in the wrong order: a head of one sentence gets the mask of another sentence."""

    instead = "Add a dimension for heads to the mask, mask[:, None], and let it broadcast."

    def head_mask(self, mask: Mask, heads: int) -> Mask:
        if mask is None:
            return None
        return np.tile(mask, (heads, 1, 1)).reshape(len(mask), heads, *mask.shape[1:])


class HeadsReversed(Solution, paper=MULTI_HEAD):
    """The heads are joined in the wrong order, or with their columns interleaved."""

    instead = "Join the heads in order: head 1's columns, then head 2's."

    def join(self, states: Array) -> Array:
        return states.transpose(0, 2, 3, 1).reshape(len(states), states.shape[2], -1)
