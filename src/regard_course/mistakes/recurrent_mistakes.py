"""Mistakes in the decoder steps of Bahdanau and Luong."""

from typing import Any

import numpy as np

from regard_course.mistakes.solution import Solution, mistake, mistakes_in
from regard_course.mistakes.transformer_solution import Array, Mask

ALIGNMENT = "Bahdanau et al. 2015, appendix A.1.2: e_ij = v_a · tanh(W_a s_(i-1) + U_a h_j)"
CELL_INPUT = "Bahdanau et al. 2015, equation 4 and appendix A.2.2: s_i = f(s_(i-1), y_(i-1), c_i)"
CONTEXT = "Bahdanau et al. 2015, equation 5: c_i is the sum of α_ij h_j"
LUONG_5 = "Luong et al. 2015, equation 5: h̃_t = tanh(W_c [c_t; h_t])"
LUONG_SCORE = "Luong et al. 2015, section 3.1, general: score(h_t, h̄_s) = h_tᵀ W_a h̄_s"
LUONG_PATH = "Luong et al. 2015, section 3.1: 'h_t → a_t → c_t → h̃_t'"
additive_scores = mistakes_in(Solution.additive_scores, ALIGNMENT)
memory_context = mistakes_in(Solution.memory_context, CONTEXT)
general_scores = mistakes_in(Solution.general_scores, LUONG_SCORE)


@mistake(
    Solution.tanh,
    f"{ALIGNMENT}; {LUONG_5}",
    "Take the tanh of the sum, or of the projected mixture; without the tanh everything is linear.",
)
def no_tanh(self: Solution, states: Array) -> Array:
    """The tanh is missing."""
    return states


@additive_scores("Add first: tanh(W s + U h).")
def tanh_of_each(self: Solution, state: Array, memory: Array, w: Array, u: Array, v: Array) -> Array:
    """W s and U h each have their own tanh, and are added afterwards."""
    return (self.tanh(state @ w)[:, None] + self.tanh(memory @ u)) @ v


@additive_scores("Add W s to U h: the decoder's state is the query.")
def only_memory_scores(self: Solution, state: Array, memory: Array, w: Array, u: Array, v: Array) -> Array:
    """The scores do not depend on the state: every step has the same weights."""
    return self.tanh(memory @ u) @ v


@mistake(
    Solution.query_state,
    ALIGNMENT,
    "Score the memory with the state before the step; the cell runs after the context.",
)
def new_state_as_query(self: Solution, previous: Array, state: Array, memory: Array, cell: Any) -> Array:
    """The query is the state after a step of the cell, as in Luong's model: s_i instead of s_(i-1)."""
    return np.asarray(cell(self.cell_input(previous, memory.mean(1)), state))


@mistake(
    Solution.cell_input,
    f"{CELL_INPUT}; this exercise's stub specifies the order",
    "Give the cell [previous; context].",
)
def context_first(self: Solution, previous: Array, context: Array) -> Array:
    """The cell's input has the context before the previous word's embedding."""
    return np.concatenate([context, previous], -1)


@mistake(Solution.cell_input, CELL_INPUT, "Give the cell the previous word's embedding and the context.")
def context_not_used(self: Solution, previous: Array, context: Array) -> Array:
    """The context in the cell's input is all zeros, so attention has no effect."""
    return np.concatenate([previous, np.zeros_like(context)], -1)


@memory_context("Sum the memory's states, each multiplied by its weight.")
def mean_context(self: Solution, weights: Array, memory: Array) -> Array:
    """The context is the mean of the memory: the weights have no effect."""
    context: Array = memory.mean(1)
    return context


@memory_context("Sum the memory's states, each multiplied by its weight.")
def last_state(self: Solution, weights: Array, memory: Array) -> Array:
    """The context is the memory's last state."""
    return memory[:, -1]


@memory_context("Sum the memory's states, each multiplied by its weight.")
def best_state(self: Solution, weights: Array, memory: Array) -> Array:
    """The context is the single state with the largest weight."""
    return memory[np.arange(len(memory)), weights.argmax(-1)]


@memory_context("Multiply each state by its weight before you sum.")
def sum_over_time_only(self: Solution, weights: Array, memory: Array) -> Array:
    """The context is the sum of the memory without weights."""
    context: Array = memory.sum(1)
    return context


class OldStateThroughout(Solution, paper=LUONG_PATH):
    """The query is the state before the cell, as in Bahdanau's model.

    The old state is also joined with the context.
    """

    instead = "Run the cell first: the new state h_t is the query, and is joined with the context."

    def luong_query(self, new: Array, old: Array) -> Array:
        return old

    def luong_output_state(self, new: Array, old: Array) -> Array:
        return old


@mistake(Solution.luong_query, LUONG_PATH, "Run the cell first, and score the memory with the new state h_t.")
def old_state_as_query(self: Solution, new: Array, old: Array) -> Array:
    """The query is the state before the cell, as in Bahdanau's model.

    The new state is joined with the context.
    """
    return old


@mistake(Solution.luong_output_state, LUONG_5, "Join the new state h_t with the context: [c_t; h_t].")
def old_state_in_output(self: Solution, new: Array, old: Array) -> Array:
    """The query is the new state, but the state before the cell is joined with the context."""
    return old


@general_scores("Put W_a between state and memory: (h W_a) · h̄.")
def no_general_matrix(self: Solution, state: Array, memory: Array, w_a: Array) -> Array:
    """The score is h · h̄, without W_a between them."""
    return np.einsum("bd,btd->bt", state, memory)


@general_scores("Multiply the state by the rows of W_a, the memory by its columns: (h W_a) · h̄.")
def general_matrix_transposed(self: Solution, state: Array, memory: Array, w_a: Array) -> Array:
    """W_a is transposed: h W_aᵀ h̄."""
    return np.einsum("bd,md,btm->bt", state, w_a, memory)


@general_scores("Do not scale Luong's scores.")
def general_scaled(self: Solution, state: Array, memory: Array, w_a: Array) -> Array:
    """The scores are divided by the root of the width, as in the Transformer."""
    scores: Array = Solution.general_scores(self, state, memory, w_a) / np.sqrt(memory.shape[-1])
    return scores


@mistake(Solution.join_context, LUONG_5, "Give W_c [context; state].")
def state_first(self: Solution, context: Array, state: Array) -> Array:
    """The input of W_c has the state before the context."""
    return np.concatenate([state, context], -1)


@mistake(
    Solution.luong_step,
    LUONG_PATH,
    "Return the cell's state as the next state; the attentional state is for the output.",
)
def attentional_state_kept(
    self: Solution,
    previous: Array,
    state: Array,
    memory: Array,
    cell: Any,
    w_a: Array,
    w_c: Array,
    mask: Mask = None,
) -> tuple[Array, ...]:
    """The attentional state is returned as the next state."""
    output, _, weights = Solution.luong_step(self, previous, state, memory, cell, w_a, w_c, mask)
    return output, output, weights
