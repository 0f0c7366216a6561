"""Usual mistakes in the recurrent steps of Bahdanau and Luong."""

from typing import Any

import numpy as np

from regard.course.mistakes.solution import Solution
from regard.course.mistakes.transformer_solution import Array, Mask

ALIGNMENT = "Bahdanau et al. 2015, appendix A.1.2: e_ij = v_a · tanh(W_a s_(i-1) + U_a h_j)"
ENTERS = "Bahdanau et al. 2015, equation 4 and appendix A.2.2: s_i = f(s_(i-1), y_(i-1), c_i)"
CONTEXT = "Bahdanau et al. 2015, equation 5: c_i is the sum of α_ij h_j"
LUONG_5 = "Luong et al. 2015, equation 5: h̃_t = tanh(W_c [c_t; h_t])"
LUONG_SCORE = "Luong et al. 2015, section 3.1, general: score(h_t, h̄_s) = h_tᵀ W_a h̄_s"
LUONG_PATH = "Luong et al. 2015, section 3.1: 'h_t → a_t → c_t → h̃_t'"


class NoTanh(Solution):
    """The tanh is left out."""

    instead = "Take the tanh of the sum, or of the projected mixture; without it all is linear."
    paper = f"{ALIGNMENT}; {LUONG_5}"

    def tanh(self, states: Array) -> Array:
        return states


class TanhOfEach(Solution):
    """tanh is taken of W s and of U h, each by itself, and then they are added."""

    instead = "Add first: tanh(W s + U h)."
    paper = ALIGNMENT

    def additive_scores(self, state: Array, memory: Array, w: Array, u: Array, v: Array) -> Array:
        return (self.tanh(state @ w)[:, None] + self.tanh(memory @ u)) @ v


class OnlyMemoryScores(Solution):
    """The state has no part in the scores: every step gets the same weights."""

    instead = "Add W s to U h, so that the decoder's state asks."
    paper = ALIGNMENT

    def additive_scores(self, state: Array, memory: Array, w: Array, u: Array, v: Array) -> Array:
        return self.tanh(memory @ u) @ v


class NewStateAsks(Solution):
    """The state asks after a step of the cell, as in Luong's model: the score has s_i where it wants s_(i-1)."""

    instead = "Score the memory with the state from before the step; the cell comes after the context."
    paper = ALIGNMENT

    def query_state(self, previous: Array, state: Array, memory: Array, cell: Any) -> Array:
        return np.asarray(cell(self.cell_input(previous, memory.mean(1)), state))


class ContextFirst(Solution):
    """The context comes before the previous word's embedding where the cell has them the other way round."""

    instead = "Give the cell [previous; context]."
    paper = f"{ENTERS}; the order is this exercise's stub's"

    def cell_input(self, previous: Array, context: Array) -> Array:
        return np.concatenate([context, previous], -1)


class ContextNotUsed(Solution):
    """The context is all zeros when it enters the cell: what was attended to has no effect."""

    instead = "Give the cell the context beside the previous word's embedding."
    paper = ENTERS

    def cell_input(self, previous: Array, context: Array) -> Array:
        return np.concatenate([previous, np.zeros_like(context)], -1)


class MeanContext(Solution):
    """The context is the mean of the memory: the weights have no part in it."""

    instead = "Sum the memory, each state times its weight."
    paper = CONTEXT

    def memory_context(self, weights: Array, memory: Array) -> Array:
        found: Array = memory.mean(1)
        return found


class LastState(Solution):
    """The context is the memory's last state."""

    instead = "Sum the memory, each state times its weight."
    paper = CONTEXT

    def memory_context(self, weights: Array, memory: Array) -> Array:
        return memory[:, -1]


class BestState(Solution):
    """The context is the one state with the largest weight."""

    instead = "Sum the memory, each state times its weight."
    paper = CONTEXT

    def memory_context(self, weights: Array, memory: Array) -> Array:
        return memory[np.arange(len(memory)), weights.argmax(-1)]


class SumOverTimeOnly(Solution):
    """The context is the sum of the memory without weights."""

    instead = "Multiply each state by its weight before you sum."
    paper = CONTEXT

    def memory_context(self, weights: Array, memory: Array) -> Array:
        found: Array = memory.sum(1)
        return found


class OldStateAsks(Solution):
    """The state from before the cell asks, as in Bahdanau's model, and goes beside the context."""

    instead = "Take the cell's step first: the new state h_t asks, and goes beside the context."
    paper = LUONG_PATH

    def luong_query(self, new: Array, old: Array) -> Array:
        return old

    def luong_output_state(self, new: Array, old: Array) -> Array:
        return old


class OldStateScores(Solution):
    """The state from before the cell asks, as in Bahdanau's model; the new one goes beside the context."""

    instead = "Take the cell's step first, and score the memory with the new state h_t."
    paper = LUONG_PATH

    def luong_query(self, new: Array, old: Array) -> Array:
        return old


class OldStateBeside(Solution):
    """The new state asks, but the one from before the cell goes beside the context."""

    instead = "Put the new state h_t beside the context: [c_t; h_t]."
    paper = LUONG_5

    def luong_output_state(self, new: Array, old: Array) -> Array:
        return old


class NoGeneralMatrix(Solution):
    """The score is h · h̄, without W_a between them."""

    instead = "Put W_a between state and memory: (h W_a) · h̄."
    paper = LUONG_SCORE

    def general_scores(self, state: Array, memory: Array, w_a: Array) -> Array:
        return np.einsum("bd,btd->bt", state, memory)


class GeneralMatrixTurned(Solution):
    """W_a is turned round: h W_aᵀ h̄."""

    instead = "The state meets the rows of W_a, the memory its columns: (h W_a) · h̄."
    paper = LUONG_SCORE

    def general_scores(self, state: Array, memory: Array, w_a: Array) -> Array:
        return np.einsum("bd,md,btm->bt", state, w_a, memory)


class GeneralScaled(Solution):
    """The scores are divided by the root of the width, as in the Transformer."""

    instead = "Luong's scores are not scaled."
    paper = LUONG_SCORE

    def general_scores(self, state: Array, memory: Array, w_a: Array) -> Array:
        found: Array = super().general_scores(state, memory, w_a) / np.sqrt(memory.shape[-1])
        return found


class StateFirst(Solution):
    """The state comes before the context where W_c has them the other way round."""

    instead = "Give W_c [context; state]."
    paper = LUONG_5

    def join_context(self, context: Array, state: Array) -> Array:
        return np.concatenate([state, context], -1)


class AttentionalStateKept(Solution):
    """The attentional state is handed on as the next state."""

    instead = "Hand on the cell's state; the attentional state is for the output."
    paper = LUONG_PATH

    def luong_step(
        self, previous: Array, state: Array, memory: Array, cell: Any, w_a: Array, w_c: Array, mask: Mask = None
    ) -> tuple[Array, ...]:
        output, _, weights = super().luong_step(previous, state, memory, cell, w_a, w_c, mask)
        return output, output, weights
