"""Usual mistakes in multi-head attention."""

import numpy as np

from regard.course.mistakes.solution import Solution
from regard.course.mistakes.transformer_solution import Array, Mask

MULTI_HEAD = "Vaswani et al. 2017, section 3.2.2: MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O"
HEAD_I = "Vaswani et al. 2017, section 3.2.2: head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)"


class WrongView(Solution):
    """The heads are split by a view that mixes steps: (B, T, D) seen as (B, H, T, D/H) at once."""

    instead = "View as (B, T, H, D/H) first, then swap T and H: a head is some columns of every step."
    paper = HEAD_I

    def split(self, states: Array, heads: int) -> Array:
        return states.reshape(len(states), heads, states.shape[1], -1)


class WrongJoin(Solution):
    """The heads are joined without swapping back: (B, H, T, D/H) seen as (B, T, D) at once."""

    instead = "Swap H and T first, then view as (B, T, D); .contiguous() is needed between the two, or reshape."
    paper = MULTI_HEAD

    def join(self, states: Array) -> Array:
        return states.reshape(len(states), states.shape[2], -1)


class HeadsInterleaved(Solution):
    """A head takes every h-th column (view as D/H, H) where the convention is neighbouring columns."""

    instead = (
        "View as (B, T, H, D/H): head i is columns i D/H to (i + 1) D/H. Weights from elsewhere fit only so."
    )
    paper = HEAD_I

    def split(self, states: Array, heads: int) -> Array:
        return states.reshape(*states.shape[:2], -1, heads).transpose(0, 3, 1, 2)


class AttentionOverHeads(Solution):
    """T and H are never swapped: in each step the heads attend to each other, and no step to another."""

    instead = "Swap T and H, so that the last two dimensions of the queries are T and D/H."
    paper = HEAD_I

    def attend(self, query: Array, key: Array, value: Array, mask: Mask, heads: int = 1) -> tuple[Array, Array]:
        if query.ndim < 4:
            return super().attend(query, key, value, mask, heads)
        query, key, value = (np.swapaxes(each, 1, 2) for each in (query, key, value))
        context, weights = super().attend(query, key, value, mask, heads)
        return np.swapaxes(context, 1, 2), weights


class OneHead(Solution):
    """There is one head over the whole width: the number of heads makes no difference."""

    instead = "Split queries, keys and values into h heads of width D / h before the scores."
    paper = HEAD_I

    def split(self, states: Array, heads: int) -> Array:
        return states[:, None]


class NoOutputProjection(Solution):
    """The output projection W^O is forgotten."""

    instead = "Multiply the joined heads by W^O: it mixes what the heads found."
    paper = MULTI_HEAD

    def project_output(self, joined: Array, w_o: Array) -> Array:
        return joined


class NoInputProjections(Solution):
    """Queries, keys and values are not projected: the heads cut up the input itself."""

    instead = "Multiply by W^Q, W^K and W^V first."
    paper = HEAD_I

    def project_inputs(
        self, inputs: tuple[Array, Array, Array], weights: tuple[Array, Array, Array]
    ) -> list[Array]:
        return list(inputs)


class KeysByQueryWeights(Solution):
    """The keys are projected by W^Q."""

    instead = "Keys have a matrix of their own, W^K."
    paper = HEAD_I

    def project_inputs(
        self, inputs: tuple[Array, Array, Array], weights: tuple[Array, Array, Array]
    ) -> list[Array]:
        return super().project_inputs(inputs, (weights[0], weights[0], weights[2]))


class ValuesByKeyWeights(Solution):
    """The values are projected by W^K."""

    instead = "Values have a matrix of their own, W^V."
    paper = HEAD_I

    def project_inputs(
        self, inputs: tuple[Array, Array, Array], weights: tuple[Array, Array, Array]
    ) -> list[Array]:
        return super().project_inputs(inputs, (weights[0], weights[1], weights[1]))


class ValuesNotProjected(Solution):
    """The values are not projected."""

    instead = "Multiply the values by W^V."
    paper = HEAD_I

    def project_inputs(
        self, inputs: tuple[Array, Array, Array], weights: tuple[Array, Array, Array]
    ) -> list[Array]:
        return [*super().project_inputs(inputs, weights)[:2], inputs[2]]


class QueryAndKeyWeightsSwapped(Solution):
    """W^Q is applied to the keys and W^K to the queries."""

    instead = "W^Q belongs to the queries and W^K to the keys."
    paper = HEAD_I

    def project_inputs(
        self, inputs: tuple[Array, Array, Array], weights: tuple[Array, Array, Array]
    ) -> list[Array]:
        return super().project_inputs(inputs, (weights[1], weights[0], weights[2]))


class OnlyItself(Solution):
    """Keys and values are made of the queries' input: the attention is to itself, whatever it is given."""

    instead = "Project keys and values from the second and third argument."
    paper = HEAD_I

    def project_inputs(
        self, inputs: tuple[Array, Array, Array], weights: tuple[Array, Array, Array]
    ) -> list[Array]:
        return super().project_inputs((inputs[0], inputs[0], inputs[0]), weights)


class ValuesFromKeys(Solution):
    """The values are made of the keys' input; the argument value is not used."""

    instead = "Project the values from the third argument."
    paper = HEAD_I

    def project_inputs(
        self, inputs: tuple[Array, Array, Array], weights: tuple[Array, Array, Array]
    ) -> list[Array]:
        return super().project_inputs((inputs[0], inputs[1], inputs[1]), weights)


class WeightsOnTheLeft(Solution):
    """The weights are turned round: x Wᵀ where this exercise has x W."""

    instead = "Multiply x by W as it is given, (in, out)."
    paper = HEAD_I

    def project(self, states: Array, weight: Array) -> Array:
        return states @ weight.T


class MaskOfAnotherHead(Solution):
    """The mask is repeated in the wrong order: a head of one sentence gets the mask of another sentence."""

    instead = "Give the mask a dimension for heads, mask[:, None], and let it broadcast."
    paper = HEAD_I

    def head_mask(self, mask: Mask, heads: int) -> Mask:
        if mask is None:
            return None
        return np.tile(mask, (heads, 1, 1)).reshape(len(mask), heads, *mask.shape[1:])


class HeadsReversed(Solution):
    """The heads are joined in the wrong order, or with the columns of each interleaved."""

    instead = "Join with the heads side by side: head 1's columns, then head 2's."
    paper = MULTI_HEAD

    def join(self, states: Array) -> Array:
        return states.transpose(0, 2, 3, 1).reshape(len(states), states.shape[2], -1)
