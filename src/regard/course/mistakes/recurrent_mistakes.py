"""Mistakes in the decoder steps of Bahdanau and Luong."""

from typing import Any

import numpy as np

from regard.course.mistakes.solution import Solution
from regard.course.mistakes.transformer_solution import Array, Mask

ALIGNMENT = "Bahdanau et al. 2015, appendix A.1.2: e_ij = v_a · tanh(W_a s_(i-1) + U_a h_j)"
CELL_INPUT = "Bahdanau et al. 2015, equation 4 and appendix A.2.2: s_i = f(s_(i-1), y_(i-1), c_i)"
CONTEXT = "Bahdanau et al. 2015, equation 5: c_i is the sum of α_ij h_j"
LUONG_5 = "Luong et al. 2015, equation 5: h̃_t = tanh(W_c [c_t; h_t])"
LUONG_SCORE = "Luong et al. 2015, section 3.1, general: score(h_t, h̄_s) = h_tᵀ W_a h̄_s"
LUONG_PATH = "Luong et al. 2015, section 3.1: 'h_t → a_t → c_t → h̃_t'"


class NoTanh(Solution, paper=f"{ALIGNMENT}; {LUONG_5}"):
    """The tanh is missing."""

    instead = "Take the tanh of the sum, or of the projected mixture; without it everything is linear."

    def tanh(self, states: Array) -> Array:
        return states


class TanhOfEach(Solution, paper=ALIGNMENT):
    """W s and U h each have their own tanh, and are added afterwards."""

    instead = "Add first: tanh(W s + U h)."

    def additive_scores(self, state: Array, memory: Array, w: Array, u: Array, v: Array) -> Array:
        return (self.tanh(state @ w)[:, None] + self.tanh(memory @ u)) @ v


class OnlyMemoryScores(Solution, paper=ALIGNMENT):
    """The scores do not depend on the state: every step has the same weights."""

    instead = "Add W s to U h: the decoder's state is the query."

    def additive_scores(self, state: Array, memory: Array, w: Array, u: Array, v: Array) -> Array:
        return self.tanh(memory @ u) @ v


class NewStateAsks(Solution, paper=ALIGNMENT):
    """The query is the state after a step of the cell, as in Luong's model: s_i instead of s_(i-1)."""

    instead = "Score the memory with the state before the step; the cell runs after the context."

    def query_state(self, previous: Array, state: Array, memory: Array, cell: Any) -> Array:
        return np.asarray(cell(self.cell_input(previous, memory.mean(1)), state))


class ContextFirst(Solution, paper=f"{CELL_INPUT}; the order is that of this exercise's stub"):
    """The cell's input has the context before the previous word's embedding."""

    instead = "Give the cell [previous; context]."

    def cell_input(self, previous: Array, context: Array) -> Array:
        return np.concatenate([context, previous], -1)


class ContextNotUsed(Solution, paper=CELL_INPUT):
    """The context in the cell's input is all zeros, so attention has no effect."""

    instead = "Give the cell the previous word's embedding and the context."

    def cell_input(self, previous: Array, context: Array) -> Array:
        return np.concatenate([previous, np.zeros_like(context)], -1)


class MeanContext(Solution, paper=CONTEXT):
    """The context is the mean of the memory: the weights have no effect."""

    instead = "Sum the memory's states, each multiplied by its weight."

    def memory_context(self, weights: Array, memory: Array) -> Array:
        context: Array = memory.mean(1)
        return context


class LastState(Solution, paper=CONTEXT):
    """The context is the memory's last state."""

    instead = "Sum the memory's states, each multiplied by its weight."

    def memory_context(self, weights: Array, memory: Array) -> Array:
        return memory[:, -1]


class BestState(Solution, paper=CONTEXT):
    """The context is the single state with the largest weight."""

    instead = "Sum the memory's states, each multiplied by its weight."

    def memory_context(self, weights: Array, memory: Array) -> Array:
        return memory[np.arange(len(memory)), weights.argmax(-1)]


class SumOverTimeOnly(Solution, paper=CONTEXT):
    """The context is the sum of the memory without weights."""

    instead = "Multiply each state by its weight before you sum."

    def memory_context(self, weights: Array, memory: Array) -> Array:
        context: Array = memory.sum(1)
        return context


class OldStateAsks(Solution, paper=LUONG_PATH):
    """The query is the state before the cell, as in Bahdanau's model. It is also joined with the context."""

    instead = "Run the cell first: the new state h_t is the query, and is joined with the context."

    def luong_query(self, new: Array, old: Array) -> Array:
        return old

    def luong_output_state(self, new: Array, old: Array) -> Array:
        return old


class OldStateScores(Solution, paper=LUONG_PATH):
    """The query is the state before the cell, as in Bahdanau's model. The new one is joined with the context."""

    instead = "Run the cell first, and score the memory with the new state h_t."

    def luong_query(self, new: Array, old: Array) -> Array:
        return old


class OldStateBeside(Solution, paper=LUONG_5):
    """The query is the new state, but the state before the cell is joined with the context."""

    instead = "Join the new state h_t with the context: [c_t; h_t]."

    def luong_output_state(self, new: Array, old: Array) -> Array:
        return old


class NoGeneralMatrix(Solution, paper=LUONG_SCORE):
    """The score is h · h̄, without W_a between them."""

    instead = "Put W_a between state and memory: (h W_a) · h̄."

    def general_scores(self, state: Array, memory: Array, w_a: Array) -> Array:
        return np.einsum("bd,btd->bt", state, memory)


class GeneralMatrixTurned(Solution, paper=LUONG_SCORE):
    """W_a is transposed: h W_aᵀ h̄."""

    instead = "Multiply the state by the rows of W_a, the memory by its columns: (h W_a) · h̄."

    def general_scores(self, state: Array, memory: Array, w_a: Array) -> Array:
        return np.einsum("bd,md,btm->bt", state, w_a, memory)


class GeneralScaled(Solution, paper=LUONG_SCORE):
    """The scores are divided by the root of the width, as in the Transformer."""

    instead = "Do not scale Luong's scores."

    def general_scores(self, state: Array, memory: Array, w_a: Array) -> Array:
        scores: Array = super().general_scores(state, memory, w_a) / np.sqrt(memory.shape[-1])
        return scores


class StateFirst(Solution, paper=LUONG_5):
    """The input of W_c has the state before the context."""

    instead = "Give W_c [context; state]."

    def join_context(self, context: Array, state: Array) -> Array:
        return np.concatenate([state, context], -1)


class AttentionalStateKept(Solution, paper=LUONG_PATH):
    """The attentional state is returned as the next state."""

    instead = "Return the cell's state as the next state; the attentional state is for the output."

    def luong_step(
        self, previous: Array, state: Array, memory: Array, cell: Any, w_a: Array, w_c: Array, mask: Mask = None
    ) -> tuple[Array, ...]:
        output, _, weights = super().luong_step(previous, state, memory, cell, w_a, w_c, mask)
        return output, output, weights
