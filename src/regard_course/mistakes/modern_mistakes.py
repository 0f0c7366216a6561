"""Mistakes in causal masks, the KV cache, shared keys, RMSNorm and SwiGLU."""

import numpy as np

from regard_course.mistakes.solution import Solution, mistake, mistakes_in
from regard_course.mistakes.transformer_solution import Array

CAUSAL = (
    "Vaswani et al. 2017, section 3.2.3: each position may attend to 'all positions up to and including' itself"
)
CACHE_STEP = "This exercise's stub: keys and values are already projected; the matrices are applied as x @ w"
CACHE = "This exercise's stub: all earlier tokens and the token itself"
RMS = "Zhang and Sennrich 2019, equation 4: divide by the root of the mean of the squares, times the gain"
SWIGLU = "Shazeer 2020, equation 6: (Swish(x W) * x V) W_2"
GROUPED = "Ainslie et al. 2023, section 2.2: each group of query heads shares a head of keys and values"
positions = mistakes_in(Solution.query_positions, CAUSAL)
attends = mistakes_in(Solution.may_attend, CAUSAL)
size = mistakes_in(Solution.squared_size, RMS)
gate = mistakes_in(Solution.gate, SWIGLU)
rms_gain = mistakes_in(Solution.rms_gain, RMS)
groups = mistakes_in(Solution.groups_of_heads, GROUPED)


@attends("Use <=: a query may attend to its own position.")
def own_position_hidden(self: Solution, query: Array, key: Array) -> Array:
    """A query may not attend to its own position: the first row is empty."""
    return np.asarray(key < query)


@attends("Allow the keys at or before the query's position: np.tril, not np.triu.")
def future_allowed(self: Solution, query: Array, key: Array) -> Array:
    """The mask allows the query's own position and the future, and hides the past."""
    return np.asarray(key >= query)


@attends("True means 'may attend' here: invert the mask.")
def causal_mask_inverted(self: Solution, query: Array, key: Array) -> Array:
    """The mask is True where a key is hidden, as in some functions of PyTorch."""
    return np.asarray(key > query)


@positions("Query i is at position Tk - Tq + i.")
def aligned_to_the_start(self: Solution, queries: int, keys: int) -> Array:
    """The queries are at the first positions: with a cache, they miss nearly all keys."""
    return np.arange(queries)


@mistake(Solution.attended_steps, CACHE, "Append the new key and value first, then attend.")
def new_token_not_attended(self: Solution, cache: Array) -> Array:
    """The token attends to the old cache: it does not see itself."""
    return cache[:, :-1]


@mistake(Solution.append, CACHE, "Append the new entry at the end of the time axis.")
def put_in_front(self: Solution, cache: Array, entry: Array) -> Array:
    """The new entry is put in front of the cache instead of at its end."""
    return np.concatenate([entry[:, None], cache], 1)


@mistake(Solution.append, CACHE, "Keep all earlier entries: the cache grows by one step.")
def oldest_dropped(self: Solution, cache: Array, entry: Array) -> Array:
    """The oldest entry is dropped, so the cache does not grow."""
    return np.concatenate([cache[:, 1:], entry[:, None]], 1)


@mistake(Solution.new_entries, CACHE, "Store state @ w_k and state @ w_v.")
def states_cached(self: Solution, state: Array, w_k: Array, w_v: Array) -> tuple[Array, Array]:
    """The state itself is stored, without the projections."""
    return state, state


@mistake(Solution.new_entries, CACHE, "The value is state @ w_v.")
def key_stored_as_value(self: Solution, state: Array, w_k: Array, w_v: Array) -> tuple[Array, Array]:
    """The new key is stored as the value, too."""
    return state @ w_k, state @ w_k


@groups("Head h has the keys h // (H / G).")
def groups_interleaved(self: Solution, heads: int, groups: int) -> Array:
    """The heads take the groups in turn, h % G: tile or repeat instead of repeat_interleave."""
    return np.arange(heads) % groups


@groups("Head h has the keys h // (H / G): use all G heads of keys.")
def one_group_for_all(self: Solution, heads: int, groups: int) -> Array:
    """All heads share the first head of keys and values."""
    return np.zeros(heads, int)


@mistake(Solution.centered, RMS, "Do not subtract the mean: that is layer normalization.")
def mean_subtracted(self: Solution, states: Array) -> Array:
    """The mean is subtracted, as in layer normalization."""
    return states - states.mean(-1, keepdims=True)


@size("Take the mean over the width, not the sum.")
def sum_of_squares(self: Solution, states: Array) -> Array:
    """The squares are summed instead of averaged: the result has length 1, not √D."""
    return np.asarray((states**2).sum(-1, keepdims=True))


@size("Take the mean over the width, axis -1, for each step alone.")
def mean_over_time(self: Solution, states: Array) -> Array:
    """The mean is over the steps instead of over the width."""
    return np.asarray((states**2).mean(1, keepdims=True))


@gate("SiLU(z) is z * sigmoid(z).")
def sigmoid_gate(self: Solution, states: Array) -> Array:
    """The gate is sigmoid(z) instead of z * sigmoid(z): this is GLU."""
    return 1 / (1 + np.exp(-states))


@gate("Apply SiLU to x W_gate.")
def no_gate(self: Solution, states: Array) -> Array:
    """There is no activation function."""
    return states


@gate("SiLU(z) is z * sigmoid(z), not max(0, z).")
def relu_gate(self: Solution, states: Array) -> Array:
    """The gate is a ReLU instead of SiLU: this is ReGLU."""
    return np.maximum(states, 0)


@mistake(Solution.join_gate, SWIGLU, "Multiply both, element by element.")
def gate_added(self: Solution, gated: Array, states: Array) -> Array:
    """Gate and states are added instead of multiplied."""
    return gated + states


@gate("SiLU(z) is z * sigmoid(z), not GELU.")
def gelu_gate(self: Solution, states: Array) -> Array:
    """The gate is GELU instead of SiLU: this is GEGLU."""
    from scipy.special import ndtr

    output: Array = states * ndtr(states)
    return output


@mistake(Solution.swiglu, SWIGLU, "Apply SiLU to x W_gate, not to x W_up.")
def gate_and_up_swapped(self: Solution, states: Array, w_gate: Array, w_up: Array, w_down: Array) -> Array:
    """SiLU is applied to x W_up instead of x W_gate."""
    return Solution.swiglu(self, states, w_up, w_gate, w_down)


@mistake(Solution.swiglu, SWIGLU, "Apply SiLU to x W_gate before the product.")
def silu_of_product(self: Solution, states: Array, w_gate: Array, w_up: Array, w_down: Array) -> Array:
    """SiLU is applied to the product instead of to x W_gate."""
    return self.gate(self.join_gate(states @ w_gate, states @ w_up)) @ w_down


@size("Divide by the root of the mean of the squares.")
def no_root(self: Solution, states: Array) -> Array:
    """The states are divided by the mean of the squares, without the root."""
    return (Solution.squared_size(self, states) + 1e-5) ** 2 - 1e-5  # to which `rms_norm` adds 1e-5


@size("Take the mean over the width of each step: mean(-1, keepdims=True).")
def mean_of_everything(self: Solution, states: Array) -> Array:
    """The mean has no axis: all steps and sequences are divided by the same number."""
    return np.asarray((states**2).mean())


@size("Take the root of the mean of the squares, not the mean of the absolute values.")
def mean_of_magnitudes(self: Solution, states: Array) -> Array:
    """The states are divided by the mean of their absolute values."""
    return np.asarray(np.abs(states).mean(-1, keepdims=True) ** 2)


@rms_gain("Multiply by the gain.")
def gain_left_out(self: Solution, states: Array, gain: Array) -> Array:
    """The states are divided by their size, but not multiplied by the gain of the norm."""
    return states


@rms_gain("Multiply by the gain itself.")
def one_added_to_gain(self: Solution, states: Array, gain: Array) -> Array:
    """The result is multiplied by 1 + gain, as in Gemma, whose gains begin at 0."""
    return states * (1 + gain)


@mistake(Solution.new_query, CACHE_STEP, "The query is state @ w_q.")
def state_as_query(self: Solution, state: Array, w_q: Array) -> Array:
    """The state itself is the query, without the projection w_q."""
    return state


@mistake(Solution.cached_step, CACHE_STEP, "Project the new state only: the cache contains projected entries.")
def cache_projected_again(
    self: Solution, state: Array, keys: Array, values: Array, w_q: Array, w_k: Array, w_v: Array
) -> tuple[Array, ...]:
    """The cached keys and values are projected once more."""
    return Solution.cached_step(self, state, keys @ w_k, values @ w_v, w_q, w_k, w_v)


@mistake(Solution.cached_step, CACHE_STEP, "Multiply by the matrices as they are: state @ w_q.")
def projections_transposed(
    self: Solution, state: Array, keys: Array, values: Array, w_q: Array, w_k: Array, w_v: Array
) -> tuple[Array, ...]:
    """The matrices are transposed, as nn.Linear stores them: state @ w_q.T."""
    return Solution.cached_step(self, state, keys, values, w_q.T, w_k.T, w_v.T)
