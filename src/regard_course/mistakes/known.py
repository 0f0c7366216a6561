"""Known mistakes: solutions to the exercises with one incorrect step.

A mistake is `Solution` with one or several steps replaced: by an expression (`replace`) or a function
(`@mistake`), or by the correct step with other inputs (`change_inputs`) or another result (`change_result`).
Other mistakes change a number, and one that remembers something is a class. A mistake therefore exists in every
exercise with its step. Two mistakes are combined in a class derived from both.

The texts that learners read are in `mistakes.toml`, in the order of the exercises: what the code did, what to do
instead, and the line of a paper (or of the stub) that the code contradicts.
"""

import inspect
import math
import tomllib
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from regard_course.mistakes.solution import Array, Beam, Hypothesis, Mask, Pair, Parameters, Solution, Step

P = ParamSpec("P")
R = TypeVar("R")
KNOWN: dict[str, type[Solution]] = {}
"""The mistakes that consist of steps."""


def replace(step: Callable[Concatenate[Any, P], R], **wrong: Callable[Concatenate[Any, P], R]) -> None:
    """Replace a step, a method of `Solution`, by a function in each of the named mistakes.

    A name that several calls have is one mistake with several steps.
    """
    for name, function in wrong.items():
        solution = KNOWN.setdefault(name, type(name, (Solution,), {"__module__": __name__}))
        setattr(solution, step.__name__, function)


def mistake(
    step: Callable[Concatenate[Any, P], R],
) -> Callable[[Callable[Concatenate[Any, P], R]], Callable[Concatenate[Any, P], R]]:
    """Add a mistake whose step is the decorated function."""

    def add(wrong: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
        replace(step, **{wrong.__name__: wrong})
        return wrong

    return add


def _around(step: Callable[..., Any], inputs: Callable[..., Any] | None, result: Any = None) -> Any:
    """Return a step with other inputs, or with another result."""
    parameters = list(inspect.signature(step).parameters.values())[1:]

    def wrong(self: Solution, *values: Any, **named: Any) -> Any:
        if inputs is None:
            output = step(self, *values, **named)
        else:
            rest = parameters[len(values) :]
            output = step(self, *inputs(*values, *(named.get(part.name, part.default) for part in rest)))
        return output if result is None else result(output)

    return wrong


def change_inputs(step: Callable[..., Any], **changes: Callable[..., tuple[Any, ...]]) -> None:
    """Add mistakes that call a step with the inputs that a function returns for the right inputs."""
    replace(step, **{name: _around(step, change) for name, change in changes.items()})


def change_result(step: Callable[..., Any], **changes: Callable[[Any], Any]) -> None:
    """Add mistakes that apply a function to the result of a step."""
    replace(step, **{name: _around(step, None, change) for name, change in changes.items()})


def _exchange(outputs: tuple[Array, ...], changes: dict[int, Any]) -> tuple[Array, ...]:
    """Return outputs of which some, by their index, have other values."""
    return tuple(np.asarray(changes.get(index, output)) for index, output in enumerate(outputs))


def _gelu(states: Array) -> Array:
    from scipy.special import ndtr  # loads slowly

    return np.asarray(states * ndtr(states))


def _wave_for_each_dimension(self: Solution, length: int, width: int, factor: int) -> Array:
    angles = self.positions(length)[:, None] * self.base ** -(factor * self.indices(width) / width)
    return np.where(np.arange(width) % 2 == 0, np.sin(angles), np.cos(angles))


def _below(probabilities: Array, top_p: float) -> Array:
    """Return for which tokens the sum of probabilities, including the token itself, is below p."""
    order = np.argsort(-probabilities)
    return np.asarray(np.cumsum(probabilities[order]) < top_p)[np.argsort(order)]


replace(Solution.positions, positions_from_one=lambda self, length: np.arange(1, length + 1))
replace(
    Solution.frequencies,
    half_exponent=lambda self, width: self.base ** -(self.indices((width + 1) // 2) / width),
    double_exponent=lambda self, width: self.base ** -(4 * self.indices((width + 1) // 2) / width),
    position_multiplied=lambda self, width: 1 / Solution.frequencies(self, width),
    one_frequency=lambda self, width: np.ones((width + 1) // 2),
    last_frequency_included=lambda self, width: (
        self.base ** -(self.indices((width + 1) // 2) / np.float64((width + 1) // 2 - 1))
    ),
)
replace(
    Solution.interleave,
    sines_then_cosines=lambda self, sines, cosines: np.concatenate([sines, cosines], -1),
    sine_and_cosine_swapped=lambda self, sines, cosines: Solution.interleave(self, cosines, sines),
    only_sine=lambda self, sines, cosines: Solution.interleave(self, sines, sines),
)
replace(
    Solution.sinusoidal_positions,
    dimensions_for_pairs=lambda self, length, width: _wave_for_each_dimension(self, length, width, 2),
    frequency_per_dimension=lambda self, length, width: _wave_for_each_dimension(self, length, width, 1),
)
replace(
    Solution.position_vectors,
    no_positions=lambda self, states, width: np.zeros((*states.shape[:2], width)),
    wave_across_batch=lambda self, states, width: np.broadcast_to(
        self.sinusoidal_positions(len(states), width)[:, None], (*states.shape[:2], width)
    ),
)
replace(
    Solution.dot_products,
    keys_times_queries=lambda self, query, key: np.einsum("...id,...jd->...ij", key, query),
    queries_times_queries=lambda self, query, key: np.einsum("...id,...jd->...ij", query, query),
    keys_times_keys=lambda self, query, key: np.einsum("...id,...jd->...ij", key, key),
    last_product_only=lambda self, query, key: query[..., :, None, -1] * key[..., None, :, -1],
    all_axes_reversed=lambda self, query, key: query @ key.T,
    keys_not_transposed=lambda self, query, key: query @ key,
    keys_times_untransposed_queries=lambda self, query, key: key @ query,
    keys_times_reversed_queries=lambda self, query, key: key @ query.T,
    dot_across_batch=lambda self, query, key: np.dot(query, np.swapaxes(key, -2, -1)),
    elementwise_scores=lambda self, query, key: query * key,
    dot_of_untransposed_keys=lambda self, query, key: np.dot(query, key),
    dot_of_reversed_keys=lambda self, query, key: np.dot(query, key.T),
    batch_and_keys_swapped=lambda self, query, key: query @ key.swapaxes(0, 1),
    batch_moved_to_the_end=lambda self, query, key: query @ np.moveaxis(key, 0, -1),
    queries_transposed=lambda self, query, key: query.swapaxes(-2, -1) @ key,
    queries_reversed=lambda self, query, key: query.T @ key,
    transposed_keys_first=lambda self, query, key: key.swapaxes(-2, -1) @ query,
    reversed_keys_first=lambda self, query, key: key.T @ query,
    equal_steps_only=lambda self, query, key: (query * key).sum(-1),
    everything_summed=lambda self, query, key: (query * key).sum(),
    products_not_summed=lambda self, query, key: query[..., :, None, :] * key[..., None, :, :],
    products_summed_over_keys=lambda self, query, key: (query[..., :, None, :] * key[..., None, :, :]).sum(-2),
    batch_summed=lambda self, query, key: Solution.dot_products(self, query, key).sum(0),
    first_sequence_only=lambda self, query, key: Solution.dot_products(self, query[0], key[0]),
    keys_reshaped=lambda self, query, key: query @ key.reshape(*key.shape[:-2], key.shape[-1], key.shape[-2]),
    batch_flattened=lambda self, query, key: query.reshape(-1, query.shape[-1]) @ key.reshape(-1, key.shape[-1]).T,
)
replace(
    Solution.scale,
    no_scale=lambda self, query, key, heads: 1.0,
    scale_by_width=lambda self, query, key, heads: float(query.shape[-1]),
    scale_multiplied=lambda self, query, key, heads: float(query.shape[-1] ** -0.5),
    scale_by_whole_width=lambda self, query, key, heads: float(np.sqrt(query.shape[-1] * heads)),
    # 2: no dimension of queries
    scale_by_time=lambda self, query, key, heads: float(
        np.sqrt(query.shape[-2] if query.ndim > 2 else query.shape[-1])
    ),
    scale_by_keys=lambda self, query, key, heads: float(np.sqrt(key.shape[-2])),
    scale_by_batch=lambda self, query, key, heads: float(np.sqrt(query.shape[0])),
    scale_by_heads=lambda self, query, key, heads: (
        float(np.sqrt(heads)) if heads > 1 else Solution.scale(self, query, key, heads)
    ),
)
replace(Solution.score, softmax_of_scores=lambda self, query, key: self.softmax(Solution.score(self, query, key)))
replace(
    Solution.apply_mask,
    mask_ignored=lambda self, scores, mask: scores,
    mask_multiplied=lambda self, scores, mask: scores * mask,
    mask_added=lambda self, scores, mask: scores + mask,
    mask_minus_one=lambda self, scores, mask: np.where(mask, scores, -1.0),
)
change_inputs(
    Solution.apply_mask,
    mask_inverted=lambda scores, mask: (scores, ~mask),
    mask_transposed=lambda scores, mask: (scores, np.swapaxes(mask, -2, -1)),
    mask_of_first=lambda scores, mask: (scores, np.broadcast_to(mask[:1], mask.shape)),
)
replace(
    Solution.softmax,
    # 2: a single query for each batch element
    softmax_over_queries=lambda self, scores: self.softmax_over(scores, -2 if scores.ndim > 2 else -1),
    softmax_over_heads=lambda self, scores: self.softmax_over(scores, 1 if scores.ndim > 3 else -1),
    softmax_over_batch=lambda self, scores: self.softmax_over(scores, 0),
    softmax_over_all=lambda self, scores: self.softmax_over(scores, (-2, -1) if scores.ndim > 2 else -1),
    softmax_over_everything=lambda self, scores: self.softmax_over(scores, tuple(range(scores.ndim))),
    no_softmax=lambda self, scores: np.where(np.isneginf(scores), 0.0, scores),
    not_normalized=lambda self, scores: np.exp(scores),
)
replace(
    Solution.softmax_over, overflow=lambda self, scores, axis: np.exp(scores) / np.exp(scores).sum(axis, keepdims=True)
)
replace(
    Solution.zero_masked_rows,
    all_masked_nan=lambda self, weights, masked: weights,
    all_masked_uniform=lambda self, weights, masked: np.where(
        np.isneginf(masked) & np.isnan(weights), self.softmax(np.zeros_like(masked)), weights
    ),
)
replace(
    Solution.masked_softmax,
    mask_after_softmax=lambda self, scores, mask: self.softmax(scores) * (1 if mask is None else mask),
    hidden_keys_in_the_sum=lambda self, scores, mask: (
        self.softmax(scores) if mask is None else self.softmax(scores * mask) * mask
    ),
)
change_inputs(
    Solution.masked_softmax,
    none_hides_all=lambda scores, mask: (scores, np.zeros(scores.shape, bool) if mask is None else mask),
)
replace(Solution.context, weights_transposed=lambda self, weights, value: np.swapaxes(weights, -2, -1) @ value)
change_inputs(
    Solution.attend,
    keys_as_values=lambda query, key, value, *others: (query, key, key, *others),
    keys_and_values_swapped=lambda query, key, value, *others: (query, value, key, *others),
)
change_result(Solution.attention, weights_first=lambda outputs: outputs[::-1])
replace(Solution.project, weights_on_the_left=lambda self, states, weight: states @ weight.T)
replace(
    Solution.project_inputs,
    no_input_projections=lambda self, inputs, w: list(inputs),
    values_not_projected=lambda self, inputs, w: ([*Solution.project_inputs(self, inputs, w)[:2], inputs[2]]),
)
change_inputs(
    Solution.project_inputs,
    keys_by_query_weights=lambda inputs, w: (inputs, (w[0], w[0], w[2])),
    values_by_key_weights=lambda inputs, w: (inputs, (w[0], w[1], w[1])),
    one_projection=lambda inputs, w: (inputs, (w[0], w[0], w[0])),
    query_and_key_weights_swapped=lambda inputs, w: (inputs, (w[1], w[0], w[2])),
    always_self_attention=lambda inputs, w: ((inputs[0], inputs[0], inputs[0]), w),
    values_from_keys=lambda inputs, w: ((inputs[0], inputs[1], inputs[1]), w),
)
replace(
    Solution.split,
    wrong_view=lambda self, states, heads: states.reshape(len(states), heads, states.shape[1], -1),
    heads_interleaved=lambda self, states, heads: states.reshape(*states.shape[:2], -1, heads).transpose(0, 3, 1, 2),
    one_head=lambda self, states, heads: states[:, None],
)
replace(
    Solution.join,
    wrong_join=lambda self, states: states.reshape(len(states), states.shape[2], -1),
    heads_reversed=lambda self, states: states.transpose(0, 2, 3, 1).reshape(len(states), states.shape[2], -1),
)
replace(
    Solution.head_mask,
    mask_of_another_head=lambda self, mask, heads: (
        None if mask is None else np.tile(mask, (heads, 1, 1)).reshape(len(mask), heads, *mask.shape[1:])
    ),
)
replace(Solution.project_output, no_output_projection=lambda self, joined, w_o: joined)
replace(
    Solution.activation,
    no_activation=lambda self, hidden: hidden,
    tanh=lambda self, hidden: np.tanh(hidden),
    sigmoid=lambda self, hidden: 1 / (1 + np.exp(-hidden)),
    silu=lambda self, hidden: hidden / (1 + np.exp(-hidden)),
    leaky_relu=lambda self, hidden: np.where(hidden > 0, hidden, 0.01 * hidden),
    absolute_value=lambda self, hidden: np.abs(hidden),
    gelu=lambda self, hidden: _gelu(hidden),
    approximate_gelu=lambda self, hidden: (
        0.5 * hidden * (1 + np.tanh(np.sqrt(2 / np.pi) * (hidden + 0.044715 * hidden**3)))
    ),
)
replace(
    Solution.feed_forward,
    relu_at_the_end=lambda self, states, w_1, b_1, w_2, b_2: self.activation((states @ w_1 + b_1) @ w_2 + b_2),
    relu_twice=lambda self, *inputs, **named: self.activation(Solution.feed_forward(self, *inputs, **named)),
    residual_inside=lambda self, states, *w, **named: states + Solution.feed_forward(self, states, *w, **named),
    bias_after_activation=lambda self, states, w_1, b_1, w_2, b_2: (self.activation(states @ w_1) + b_1) @ w_2 + b_2,
)
change_inputs(
    Solution.feed_forward,
    no_biases=lambda states, w_1, b_1, w_2, b_2: (states, w_1, 0 * b_1, w_2, 0 * b_2),
    no_first_bias=lambda states, w_1, b_1, w_2, b_2: (states, w_1, 0 * b_1, w_2, b_2),
    no_second_bias=lambda states, w_1, b_1, w_2, b_2: (states, w_1, b_1, w_2, 0 * b_2),
)
replace(
    Solution.standard_deviation,
    sample_deviation=lambda self, states: np.sqrt(states.var(-1, ddof=1, keepdims=True) + self.epsilon),
    variance_for_deviation=lambda self, states: states.var(-1, keepdims=True) + self.epsilon,
)
replace(
    Solution.normalize,
    no_norm=lambda self, states, gain, shift: states,
    unit_length=lambda self, states, gain, shift: (
        states / np.linalg.norm(states, axis=-1, keepdims=True) * gain + shift
    ),
    mean_not_subtracted=lambda self, states, gain, shift: (
        states / np.sqrt((states**2).mean(-1, keepdims=True) + self.epsilon) * gain + shift
    ),
)
change_inputs(
    Solution.normalize,
    no_gain=lambda states, gain, shift: (states, np.ones_like(gain), np.zeros_like(shift)),
    no_shift=lambda states, gain, shift: (states, gain, np.zeros_like(shift)),
)
replace(
    Solution.residual,
    no_residuals=lambda self, states, kind, norm: np.zeros_like(states),
    no_residual_around_attention=lambda self, states, kind, norm: states * (kind != "self_attention"),
    no_residual_around_feed_forward=lambda self, states, kind, norm: states * (kind != "feed_forward"),
    no_residual_around_cross=lambda self, states, kind, norm: states * (kind != "cross_attention"),
)
replace(
    Solution.sublayer,
    norm_before=lambda self, states, kind, function, p, norm: (
        states + function(self.normalize(states, p[f"gain_{norm}"], p[f"shift_{norm}"]))
    ),
    norm_before_adding=lambda self, states, kind, function, p, norm: (
        states + self.normalize(function(states), p[f"gain_{norm}"], p[f"shift_{norm}"])
    ),
)
change_inputs(Solution.sublayer, one_norm=lambda *inputs: (*inputs[:-1], 1))
replace(Solution.apply_feed_forward, no_feed_forward=lambda self, states, p: np.zeros_like(states))
replace(Solution.cross_attention, no_cross=lambda self, x, memory, p, heads, mask: np.zeros_like(x))
change_inputs(
    Solution.cross_attention,
    cross_to_itself=lambda x, memory, p, heads, mask: (x, x, p, heads, None),
    cross_swapped=lambda x, memory, p, heads, mask: (memory, x, p, heads, None),
    cross_shares_weights=lambda x, memory, p, *others: (
        *(x, memory, {**p, **{f"cross_{letter}": p[f"w_{letter}"] for letter in "qkvo"}}),
        *others,
    ),
)
replace(
    Solution.causal_mask,
    future_seen=lambda self, length: np.ones((length, length), bool),
    future_leaked_by_one=lambda self, length: np.tril(np.ones((length, length), bool), 1),
    self_hidden=lambda self, length: np.tril(np.ones((length, length), bool), -1),
    past_hidden=lambda self, length: np.triu(np.ones((length, length), bool)),
)
replace(
    Solution.cross_mask,
    causal_cross=lambda self, mask, length: None if mask is None else mask & np.tril(np.ones(mask.shape[-2:], bool)),
    memory_padding_seen=lambda self, mask, length: None,
)
replace(
    Solution.scale_embeddings,
    embedding_not_scaled=lambda self, vectors, side: vectors,
    embedding_divided=lambda self, vectors, side: vectors / math.sqrt(vectors.shape[-1]),
    source_not_scaled=lambda self, vectors, side: (
        vectors if side == "source" else Solution.scale_embeddings(self, vectors, side)
    ),
    target_not_scaled=lambda self, vectors, side: (
        vectors if side == "target" else Solution.scale_embeddings(self, vectors, side)
    ),
)
replace(
    Solution.added_positions,
    no_source_positions=lambda self, vectors, side: Solution.added_positions(self, vectors, side) * (side != "source"),
    no_target_positions=lambda self, vectors, side: Solution.added_positions(self, vectors, side) * (side != "target"),
)
replace(Solution.encoder_mask, source_padding_seen=lambda self, source: None)
change_inputs(Solution.layer_parameters, shared_layers=lambda parameters, side, layer: (parameters, side, 0))
replace(
    Solution.memory_for_layer,
    layer_by_layer=lambda self, states, layer: states[layer + 1],
    memory_is_embedding=lambda self, states, layer: states[0],
)
replace(
    Solution.decoder_input,
    shifted_inside=lambda self, target: np.concatenate([np.zeros_like(target[:, :1]), target[:, :-1]], 1),
)
replace(
    Solution.logits,
    probabilities=lambda self, states, parameters: np.exp(self.log_softmax(Solution.logits(self, states, parameters))),
    log_probabilities=lambda self, states, parameters: self.log_softmax(Solution.logits(self, states, parameters)),
    tied_output=lambda self, states, parameters: states @ parameters["target"].T,
    no_output_bias=lambda self, states, parameters: states @ parameters["w_out"],
)
replace(Solution.query_positions, aligned_to_the_start=lambda self, queries, keys: np.arange(queries))
replace(
    Solution.may_attend,
    own_position_hidden=lambda self, query, key: key < query,
    future_allowed=lambda self, query, key: key >= query,
    causal_mask_inverted=lambda self, query, key: key > query,
)
replace(Solution.new_query, state_as_query=lambda self, state, w_q: state)
replace(
    Solution.new_entries,
    states_cached=lambda self, state, w_k, w_v: (state, state),
    key_stored_as_value=lambda self, state, w_k, w_v: (state @ w_k, state @ w_k),
)
replace(
    Solution.append,
    put_in_front=lambda self, cache, entry: np.concatenate([entry[:, None], cache], 1),
    oldest_dropped=lambda self, cache, entry: np.concatenate([cache[:, 1:], entry[:, None]], 1),
)
replace(Solution.attended_steps, new_token_not_attended=lambda self, cache: cache[:, :-1])
change_inputs(
    Solution.cached_step,
    cache_projected_again=lambda state, keys, values, *w: (state, keys @ w[1], values @ w[2], *w),
    projections_transposed=lambda state, keys, values, *w: (state, keys, values, *(matrix.T for matrix in w)),
)
replace(
    Solution.groups_of_heads,
    groups_interleaved=lambda self, heads, groups: np.arange(heads) % groups,
    one_group_for_all=lambda self, heads, groups: np.zeros(heads, int),
)
replace(
    Solution.squared_size,
    sum_of_squares=lambda self, states: (states**2).sum(-1, keepdims=True),
    mean_over_time=lambda self, states: (states**2).mean(1, keepdims=True),
    # to which `rms_norm` adds 1e-5
    no_root=lambda self, states: (Solution.squared_size(self, states) + 1e-5) ** 2 - 1e-5,
    mean_of_everything=lambda self, states: (states**2).mean(),
    mean_of_magnitudes=lambda self, states: np.abs(states).mean(-1, keepdims=True) ** 2,
)
replace(
    Solution.rms_gain,
    gain_left_out=lambda self, states, gain: states,
    one_added_to_gain=lambda self, states, gain: states * (1 + gain),
)
replace(Solution.centered, mean_subtracted=lambda self, states: states - states.mean(-1, keepdims=True))
replace(
    Solution.gate,
    sigmoid_gate=lambda self, states: 1 / (1 + np.exp(-states)),
    no_gate=lambda self, states: states,
    relu_gate=lambda self, states: np.maximum(states, 0),
    gelu_gate=lambda self, states: _gelu(states),
)
replace(Solution.join_gate, gate_added=lambda self, gated, states: gated + states)
change_inputs(Solution.swiglu, gate_and_up_swapped=lambda states, gate, up, down: (states, up, gate, down))
replace(
    Solution.swiglu,
    silu_of_product=lambda self, states, w_gate, w_up, w_down: (
        self.gate(self.join_gate(states @ w_gate, states @ w_up)) @ w_down
    ),
)
replace(Solution.pairs, every_other_pair=lambda self, tokens: list(zip(tokens[::2], tokens[1::2], strict=False)))
replace(
    Solution.choose_pair,
    rarest_pair=lambda self, counts, pairs: min(counts, key=lambda pair: counts[pair]),
    last_of_equal_pairs=lambda self, counts, pairs: max(reversed(list(counts)), key=lambda pair: counts[pair]),
    latest_of_equal_pairs=lambda self, counts, pairs: max(
        counts, key=lambda pair: (counts[pair], -pairs[::-1].index(pair))
    ),
)
replace(Solution.new_token, same_new_token=lambda self, first, number: first)
replace(
    Solution.merge_pair,
    merged_from_the_right=_around(
        Solution.merge_pair, lambda tokens, pair, new: (tokens[::-1], pair[::-1], new), lambda merged: merged[::-1]
    ),
)
replace(Solution.merge_order, merges_reversed=lambda self, merges: list(range(len(merges)))[::-1])
replace(
    Solution.heat,
    temperature_multiplied=lambda self, logits, temperature: logits * temperature,
    temperature_ignored=lambda self, logits, temperature: logits,
)
replace(
    Solution.top_k_tokens,
    smallest_kept=lambda self, logits, top_k: np.argsort(np.argsort(logits)) < top_k,
    top_k_ignored=lambda self, logits, top_k: np.ones(len(logits), bool),
)
change_inputs(Solution.top_k_tokens, kth_dropped=lambda logits, top_k: (logits, top_k - 1))
replace(
    Solution.top_p_tokens,
    first_token_dropped=lambda self, probabilities, top_p: _below(probabilities, top_p),
    sums_unsorted=lambda self, probabilities, top_p: np.cumsum(probabilities) - probabilities < top_p,
    top_p_ignored=lambda self, probabilities, top_p: np.ones(len(probabilities), bool),
)
replace(Solution.renormalize, rest_not_normalized=lambda self, probabilities: probabilities)
replace(
    Solution.next_token_probabilities,
    kept_tokens_only=lambda self, logits, temperature, top_k, top_p: (
        -np.sort(-Solution.next_token_probabilities(self, logits, temperature, top_k, top_p))[:top_k]
    ),
)
change_result(Solution.next_token_probabilities, sorted_order_returned=lambda probabilities: -np.sort(-probabilities))
replace(
    Solution.earlier_step,
    first_occurrence=lambda self, tokens, step: tokens.index(tokens[step]) if tokens[step] in tokens[:step] else None,
)
replace(Solution.induction_key, duplicate_token=lambda self, earlier: earlier)
replace(
    Solution.mean_score,
    mean_over_all_steps=lambda self, scores, steps: sum(scores) / steps,
    weights_summed=lambda self, scores, steps: sum(scores),
)
replace(
    Solution.effect,
    damage_measured=lambda self, clean, corrupt, patched: (clean - patched) / (clean - corrupt),
    effect_not_normalized=lambda self, clean, corrupt, patched: patched - corrupt,
    divided_by_clean=lambda self, clean, corrupt, patched: (patched - corrupt) / clean,
)
replace(
    Solution.patching_effect,
    mean_of_ratios=lambda self, clean, corrupt, patched: self.effect(clean, corrupt, patched).mean(-1),
)
replace(
    Solution.with_residual,
    no_residual_in_rollout=lambda self, weights: weights,
    residual_not_halved=lambda self, weights: weights + np.eye(weights.shape[-1]),
)
replace(
    Solution.join_layers,
    layers_reversed=lambda self, product, layer: product @ layer,
    elementwise_product=lambda self, product, layer: product * layer,
)
replace(
    Solution.lens_states,
    embeddings_left_out=lambda self, states: states[1:],
    contributions_read=lambda self, states: np.concatenate([states[:1], np.diff(states, axis=0)]),
    states_summed=lambda self, states: np.cumsum(states, axis=0),
)
replace(
    Solution.lens_norm,
    no_final_norm=lambda self, states, norm: states,
    size_of_the_last_state=lambda self, states, norm: states / np.sqrt(self.squared_size(states[-1:]) + 1e-5) * norm,
)
replace(Solution.token_logits, output_transposed=lambda self, states, output: states @ output)
replace(Solution.largest_score, nothing_subtracted=lambda self, scores, sink: np.zeros_like(scores[..., :1]))
replace(
    Solution.place_sink,
    always_one=lambda self, sink: np.zeros((len(sink), 1, 1)),
    sink_by_query=lambda self, sink: sink[:, None],
    sink_by_key=lambda self, sink: sink,
)
replace(Solution.sink_shift, sink_not_shifted=lambda self, largest: 0 * largest)
replace(
    Solution.sink_power,
    sink_ignored=lambda self, sink, largest: np.zeros_like(largest),
    sink_without_exp=lambda self, sink, largest: self.place_sink(sink) * np.exp(-self.sink_shift(largest)),
)
replace(Solution.numerator, sink_in_the_numerator=lambda self, powers, sink_power: powers + sink_power)
replace(
    Solution.row_total,
    total_over_queries=lambda self, powers: powers.sum(-2, keepdims=True),
    total_of_everything=lambda self, powers: powers.sum(),
)
replace(
    Solution.without_sink,
    first_key_dropped=lambda self, weights, sink_weight: np.concatenate([weights[..., 1:], sink_weight], -1),
    last_key_dropped=lambda self, weights, sink_weight: np.concatenate([sink_weight, weights[..., :-1]], -1),
    sink_column_kept=lambda self, weights, sink_weight: np.concatenate([weights, sink_weight], -1),
)
replace(
    Solution.wins,
    direction_reversed=lambda self, fault, good: (fault < good) + 0.5 * (fault == good),
    ties_lost=lambda self, fault, good: fault > good,
    ties_won=lambda self, fault, good: fault >= good,
)
replace(Solution.count_pairs, divided_by_all_pairs=lambda self, faults, good: (faults + good) ** 2)
replace(Solution.tanh, no_tanh=lambda self, states: states)
replace(
    Solution.additive_scores,
    tanh_of_each=lambda self, state, memory, w, u, v: (self.tanh(state @ w)[:, None] + self.tanh(memory @ u)) @ v,
    only_memory_scores=lambda self, state, memory, w, u, v: self.tanh(memory @ u) @ v,
)
replace(
    Solution.memory_context,
    mean_context=lambda self, weights, memory: memory.mean(1),
    last_state=lambda self, weights, memory: memory[:, -1],
    best_state=lambda self, weights, memory: memory[np.arange(len(memory)), weights.argmax(-1)],
    sum_over_time_only=lambda self, weights, memory: memory.sum(1),
)
replace(
    Solution.cell_input,
    context_first=lambda self, previous, context: np.concatenate([context, previous], -1),
    context_not_used=lambda self, previous, context: np.concatenate([previous, np.zeros_like(context)], -1),
)
replace(
    Solution.query_state,
    new_state_as_query=lambda self, previous, state, memory, cell: cell(
        self.cell_input(previous, memory.mean(1)), state
    ),
)
replace(
    Solution.step_input,
    only_last_token=lambda self, tokens: tokens[-1:],
    without_start=lambda self, tokens: tokens[1:] or tokens,
)
replace(
    Solution.token_limit, one_too_few=lambda self, longest: longest - 1, one_too_many=lambda self, longest: longest + 1
)
replace(
    Solution.strip_tokens,
    start_included=lambda self, tokens, start, end: tokens,
    end_dropped=lambda self, tokens, start, end: [token for token in tokens[1:] if token != end],
)
replace(Solution.token_gains, probabilities_added=lambda self, log_probabilities: np.exp(log_probabilities))
replace(Solution.keep_finished, ended_dropped=lambda self, hypothesis: [])
change_inputs(Solution.select_top, beam_of_one=lambda candidates, width, parents: (candidates, 1, parents))
replace(
    Solution.normalize_length,
    length_not_divided=lambda self, total, length, alpha: total,
    length_multiplied=lambda self, total, length, alpha: total * length**alpha,
    alpha_ignored=lambda self, total, length, alpha: total / length,
    penalty_of_wu=lambda self, total, length, alpha: float(total / ((5 + length) / 6) ** alpha),
)
change_inputs(Solution.normalize_length, start_counted=lambda total, length, alpha: (total, length + 1, alpha))
replace(
    Solution.select_answer,
    sum_returned=lambda self, beam, alpha, end: max(
        beam, key=lambda pair: self.normalize_length(pair[0], len(pair[1]) - 1, alpha)
    ),
)
replace(
    Solution.target_distribution,
    spread_over_others=lambda self, target, size, smoothing: np.where(
        np.eye(size)[target] == 1, 1 - smoothing, smoothing / (size - 1)
    ),
    smoothing_only_added=lambda self, target, size, smoothing: np.eye(size)[target] + smoothing / size,
)
change_inputs(
    Solution.target_distribution,
    no_smoothing=lambda target, size, smoothing: (target, size, 0.0),
    smoothing_inverted=lambda target, size, smoothing: (target, size, 1 - smoothing),
)
replace(Solution.counted_steps, padding_counted=lambda self, target, padding: np.ones_like(target, bool))
replace(
    Solution.mean_loss,
    mean_with_padding=lambda self, losses, counted: float(losses[counted].sum() / len(losses)),
    sum_for_mean=lambda self, losses, counted: float(losses[counted].sum()),
)
replace(
    Solution.label_smoothed_loss,
    mean_over_vocabulary=lambda self, logits, target, smoothing, padding=0: (
        Solution.label_smoothed_loss(self, logits, target, smoothing, padding) / logits.shape[-1]
    ),
)
change_result(Solution.label_smoothed_loss, bits=lambda loss: loss / np.log(2))
replace(
    Solution.shift,
    not_shifted=lambda self, target: (target, target),
    answers_given=lambda self, target: (target[:, 1:], target[:, 1:]),
    repeats_input=lambda self, target: (target[:, :-1], target[:, :-1]),
    predicts_previous_token=lambda self, target: (target[:, 1:], target[:, :-1]),
    source_as_target=lambda self, target: (target[:, 1:-1], target[:, 1:-1]),
)
# Mistakes that replace two steps.
replace(Solution.encoder_mask, padding_seen_everywhere=lambda self, source: None)
replace(Solution.source_mask, padding_seen_everywhere=lambda self, source, target: None)
replace(Solution.choose_token, unlikeliest=lambda self, log_probabilities: int(np.argmin(log_probabilities)))
replace(Solution.token_gains, unlikeliest=lambda self, log_probabilities: -log_probabilities)
replace(Solution.is_end, never_ends=lambda self, token, end: False)
replace(Solution.is_finished, never_ends=lambda self, tokens, end: False)
replace(
    Solution.is_done, first_end_stops=lambda self, beam, end: any(self.is_finished(tokens, end) for _, tokens in beam)
)
change_result(Solution.mean_loss, wrong_sign=lambda loss: -loss)
change_result(Solution.logit_gradient, wrong_sign=lambda gradient: -gradient)
replace(Solution.log_softmax, no_log_softmax=lambda self, logits: logits)
replace(Solution.logit_gradient, no_log_softmax=lambda self, logits, gold: -np.eye(logits.shape[-1])[gold])
replace(Solution.counted_tokens, counted_once=lambda self, tokens, merged: tokens)
replace(
    Solution.candidate_pairs,
    counted_once=lambda self, counts, merges: {pair: count for pair, count in counts.items() if pair not in merges},
)
replace(Solution.largest_score, only_scores_shifted=lambda self, scores, sink: scores.max(-1, keepdims=True))
replace(Solution.sink_shift, only_scores_shifted=lambda self, largest: 0 * largest)
replace(Solution.largest_score, sink_over_queries=lambda self, scores, sink: scores.max(-2, keepdims=True))
replace(Solution.row_total, sink_over_queries=lambda self, powers: powers.sum(-2, keepdims=True))
replace(
    Solution.multi_head_attention,
    batch_first_forgotten=_around(
        Solution.multi_head_attention,
        lambda *inputs: (*(states.swapaxes(0, 1) for states in inputs[:3]), *inputs[3:]),
        lambda result: result.swapaxes(0, 1),
    ),
)
change_result(
    Solution.train_copy,
    new_optimizer=lambda outputs: _exchange(outputs, {5: 0.0}),
    gradients_not_reset=lambda outputs: _exchange(outputs, {2: 0.0}),
    never_steps=lambda outputs: _exchange(outputs, {3: 0.0}),
    no_backward=lambda outputs: _exchange(outputs, {1: 0 * outputs[1], 3: 0.0}),
    first_batch_only=lambda outputs: _exchange(outputs, {4: 1 / 3}),
)
# Mistakes that change a number.
_CHANGES: dict[str, dict[str, Any]] = {
    "dimensions_from_one": {"first_index": 1},
    "base_one_thousand": {"base": 1_000.0},
    "base_hundred_thousand": {"base": 100_000.0},
    "norm_over_time": {"norm_axes": (1,)},
    "norm_over_batch": {"norm_axes": (0, 1)},
    "norm_over_all": {"norm_axes": (1, 2)},
}
for _name, _change in _CHANGES.items():
    KNOWN[_name] = type(_name, (Solution,), {"__module__": __name__, **_change})


@mistake(Solution.dot_products)
def cosine(self: Solution, query: Array, key: Array) -> Array:
    query = query / np.linalg.norm(query, axis=-1, keepdims=True)
    return Solution.dot_products(self, query, key / np.linalg.norm(key, axis=-1, keepdims=True))


@mistake(Solution.dot_products)
def as_many_keys_as_queries(self: Solution, query: Array, key: Array) -> Array:
    if key.shape[-2] < query.shape[-2]:
        raise IndexError
    return Solution.dot_products(self, query, key[..., : query.shape[-2], :])


@mistake(Solution.softmax)
def divided_by_column_sums(self: Solution, scores: Array) -> Array:
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isneginf(top), 0, top))
    totals = powers.sum(-2 if scores.ndim > 2 else -1, keepdims=True)
    return np.asarray(powers / np.where(totals == 0, 1, totals))


@mistake(Solution.softmax)
def divided_without_exp(self: Solution, scores: Array) -> Array:
    finite = np.where(np.isneginf(scores), 0.0, scores)
    return finite / finite.sum(-1, keepdims=True)


@mistake(Solution.softmax)
def hard_attention(self: Solution, scores: Array) -> Array:
    best = np.eye(scores.shape[-1])[scores.argmax(-1)]
    return np.where(np.isneginf(scores).all(-1, keepdims=True), np.nan, best)


@mistake(Solution.masked_softmax)
def large_hidden_scores_count(self: Solution, scores: Array, mask: Mask) -> Array:
    if mask is None:
        return self.softmax(scores)
    weights = self.softmax(scores) * mask
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1, total)


@mistake(Solution.masked_softmax)
def all_masked_seen(self: Solution, scores: Array, mask: Mask) -> Array:
    weights = Solution.masked_softmax(self, scores, mask)
    if mask is None:
        return weights
    fully_masked = ~np.broadcast_to(mask, scores.shape).any(-1, keepdims=True)
    return np.where(fully_masked, self.softmax(scores), weights)


@mistake(Solution.attend)
def scale_by_value_width(
    self: Solution, query: Array, key: Array, value: Array, mask: Mask, heads: int = 1
) -> tuple[Array, Array]:
    weights = self.masked_softmax(self.dot_products(query, key) / np.sqrt(value.shape[-1]), mask)
    return self.context(weights, value), weights


@mistake(Solution.attend)
def scale_after_softmax(
    self: Solution, query: Array, key: Array, value: Array, mask: Mask, heads: int = 1
) -> tuple[Array, Array]:
    weights = self.masked_softmax(self.dot_products(query, key), mask) / np.sqrt(query.shape[-1])
    return self.context(weights, value), weights


@mistake(Solution.attend)
def always_causal(
    self: Solution, query: Array, key: Array, value: Array, mask: Mask, heads: int = 1
) -> tuple[Array, Array]:
    causal = np.tril(np.ones((query.shape[-2], key.shape[-2]), bool))
    return Solution.attend(self, query, key, value, causal if mask is None else mask & causal, heads)


@mistake(Solution.attend)
def attention_over_heads(
    self: Solution, query: Array, key: Array, value: Array, mask: Mask, heads: int = 1
) -> tuple[Array, Array]:
    if query.ndim < 4:
        return Solution.attend(self, query, key, value, mask, heads)
    query, key, value = (np.swapaxes(states, 1, 2) for states in (query, key, value))
    context, weights = Solution.attend(self, query, key, value, mask, heads)
    return np.swapaxes(context, 1, 2), weights


@mistake(Solution.cross_attention)
def cross_to_own_past(self: Solution, x: Array, memory: Array, p: Parameters, heads: int, mask: Mask) -> Array:
    length = x.shape[1]
    causal = np.broadcast_to(self.causal_mask(length), (len(x), length, length))
    return Solution.cross_attention(self, x, x, p, heads, causal)


@mistake(Solution.decoder_layer)
def cross_first(
    self: Solution, states: Array, memory: Array, parameters: Parameters, heads: int, memory_mask: Mask = None
) -> Array:
    p, length = parameters, states.shape[1]
    causal = np.broadcast_to(self.causal_mask(length), (len(states), length, length))
    mask = self.cross_mask(memory_mask, length)
    x = states
    x = self.sublayer(x, "cross_attention", lambda x: self.cross_attention(x, memory, p, heads, mask), p, 2)
    x = self.sublayer(x, "self_attention", lambda x: self.self_attention(x, p, heads, causal), p, 1)
    return self.sublayer(x, "feed_forward", lambda x: self.apply_feed_forward(x, p), p, 3)


@mistake(Solution.embed)
def positions_scaled_too(self: Solution, tokens: Array, table: Array, side: str) -> Array:
    vectors = table[tokens]
    return self.scale_embeddings(vectors + self.position_vectors(vectors, vectors.shape[-1]), side)


@mistake(Solution.encoder_mask)
def causal_encoder(self: Solution, source: Array) -> Mask:
    mask = Solution.encoder_mask(self, source)
    return None if mask is None else mask & self.causal_mask(mask.shape[-1])


@mistake(Solution.transformer)
def one_layer(self: Solution, source: Array, target: Array, parameters: Parameters, heads: int, layers: int) -> Array:
    last = {
        name.replace(f".{layers - 1}.", ".0."): value
        for name, value in parameters.items()
        if f".{layers - 1}." in name or "." not in name
    }
    return Solution.transformer(self, source, target, last, heads, 1)


@mistake(Solution.merge_pair)
def first_occurrence_only(self: Solution, tokens: list[int], pair: Pair, new: int) -> list[int]:
    places = [place for place in range(len(tokens) - 1) if tuple(tokens[place : place + 2]) == pair]
    return [*tokens[: places[0]], new, *tokens[places[0] + 2 :]] if places else tokens


@mistake(Solution.top_p_tokens)
def crossing_token_dropped(self: Solution, probabilities: Array, top_p: float) -> Array:
    allowed = _below(probabilities, top_p)
    allowed[probabilities.argmax()] = True
    return allowed


@mistake(Solution.top_p_tokens)
def least_likely_first(self: Solution, probabilities: Array, top_p: float) -> Array:
    order = np.argsort(probabilities)
    return np.asarray(np.cumsum(probabilities[order]) <= top_p)[np.argsort(order)]


@mistake(Solution.next_token_probabilities)
def top_p_before_top_k(self: Solution, logits: Array, temperature: float, top_k: int, top_p: float) -> Array:
    probabilities = self.softmax(self.heat(logits, temperature))
    return self.renormalize(probabilities * self.top_p_tokens(probabilities, top_p) * self.top_k_tokens(logits, top_k))


@mistake(Solution.next_token_probabilities)
def temperature_last(self: Solution, logits: Array, temperature: float, top_k: int, top_p: float) -> Array:
    kept = Solution.next_token_probabilities(self, logits, 1.0, top_k, top_p) > 0
    return self.softmax(np.where(kept, self.heat(logits, temperature), -np.inf))


@mistake(Solution.auroc)
def ties_by_order(self: Solution, doubts: Array, faulty: Array) -> Array:
    ranks = np.argsort(np.argsort(doubts, kind="stable"))
    faults = int((faulty == 1).sum())
    least = faults * (faults - 1) / 2
    return np.array((ranks[faulty == 1].sum() - least) / (faults * (len(faulty) - faults)))


@mistake(Solution.select_top)
def each_keeps_its_best(self: Solution, candidates: Beam, width: int, parents: list[int]) -> Beam:
    if len(set(parents)) == 1:
        return Solution.select_top(self, candidates, width, parents)
    best = []
    for parent in sorted(set(parents)):
        children = [c for c, owner in zip(candidates, parents, strict=True) if owner == parent]
        best.append(max(children, key=lambda candidate: candidate[0]))
    return Solution.select_top(self, best, width, parents)


@mistake(Solution.prune)
def pruned_by_score(self: Solution, candidates: Beam, width: int, parents: list[int], alpha: float) -> Beam:
    scores = [self.normalize_length(total, len(tokens) - 1, alpha) for total, tokens in candidates]
    order = sorted(range(len(candidates)), key=lambda index: -scores[index])
    return [candidates[index] for index in order[:width]]


@mistake(Solution.select_answer)
def chosen_by_sum(self: Solution, beam: Beam, alpha: float, end: int) -> Hypothesis:
    total, tokens = max(beam, key=lambda hypothesis: hypothesis[0])
    return self.normalize_length(total, len(tokens) - 1, alpha), tokens


@mistake(Solution.select_answer)
def worst_of_beam(self: Solution, beam: Beam, alpha: float, end: int) -> Hypothesis:
    ranked = [(self.normalize_length(total, len(tokens) - 1, alpha), tokens) for total, tokens in beam]
    return min(ranked, key=lambda hypothesis: hypothesis[0])


@mistake(Solution.target_distribution)
def spread_without_padding(self: Solution, target: Array, size: int, smoothing: float) -> Array:
    right = np.eye(size)[target]
    distribution: Array = (1 - smoothing) * right + smoothing / (size - 2) * (1 - right)
    distribution[:, 0] = 0
    return distribution


@mistake(Solution.label_smoothed_loss)
def divergence(self: Solution, logits: Array, target: Array, smoothing: float, padding: int = 0) -> Array:
    distribution = self.target_distribution(target, logits.shape[-1], smoothing)
    logs = np.log(np.where(distribution > 0, distribution, 1)) - self.log_softmax(logits)
    losses = (distribution * logs).sum(-1)
    return np.array(self.mean_loss(losses, self.counted_steps(target, padding)))


class ScoresReturned(Solution):
    scores: Array

    def masked_softmax(self, scores: Array, mask: Mask) -> Array:
        self.scores = scores if mask is None else self.apply_mask(scores, mask)
        return super().masked_softmax(scores, mask)

    def attention(self, query: Array, key: Array, value: Array, mask: Mask = None) -> tuple[Array, ...]:
        return self.attend(query, key, value, mask)[0], self.scores

    def bahdanau_step(self, *inputs: Any, **named: Any) -> tuple[Array, ...]:
        return super().bahdanau_step(*inputs, **named)[0], self.scores


class UnmaskedScoresReturned(ScoresReturned):
    def masked_softmax(self, scores: Array, mask: Mask) -> Array:
        self.scores = scores
        return Solution.masked_softmax(self, scores, mask)


class ResidualsFromInput(Solution):
    places: tuple[tuple[str, int], ...] = (("cross_attention", 2), ("feed_forward", 2), ("feed_forward", 3))
    """Kinds and numbers of the sublayers whose residual connection is wrong."""
    layer_input: Array

    def encoder_layer(self, states: Array, *inputs: Any, **options: Any) -> Array:
        self.layer_input = states
        return super().encoder_layer(states, *inputs, **options)

    def decoder_layer(self, states: Array, *inputs: Any, **options: Any) -> Array:
        self.layer_input = states
        return super().decoder_layer(states, *inputs, **options)

    def residual(self, states: Array, kind: str, norm: int) -> Array:
        return self.layer_input if (kind, norm) in self.places else states


class CrossResidualFromInput(ResidualsFromInput):
    places = (("cross_attention", 2),)


class LastResidualFromInput(ResidualsFromInput):
    places = (("feed_forward", 3),)


class NormAtTheEnd(Solution):
    def memory_for_layer(self, states: list[Array], layer: int) -> Array:
        last = super().memory_for_layer(states, layer)
        return self.normalize(last, np.ones(last.shape[-1]), np.zeros(last.shape[-1]))

    def logits(self, states: Array, parameters: Parameters) -> Array:
        width = states.shape[-1]
        return super().logits(self.normalize(states, np.ones(width), np.zeros(width)), parameters)


class FirstToEnd(Solution):
    def is_done(self, beam: Beam, end: int) -> bool:
        return any(self.is_finished(tokens, end) for _, tokens in beam)

    def select_answer(self, beam: Beam, alpha: float, end: int) -> Hypothesis:
        ended = [hypothesis for hypothesis in beam if self.is_finished(hypothesis[1], end)]
        return super().select_answer(ended or beam, alpha, end)


class EndedAside(Solution):
    def prune(self, candidates: Beam, width: int, parents: list[int], alpha: float) -> Beam:
        beam = super().prune(candidates, width, parents, alpha)
        self.aside += [hypothesis for hypothesis in beam if self.is_finished(hypothesis[1], self.end)]
        return [hypothesis for hypothesis in beam if not self.is_finished(hypothesis[1], self.end)]

    def is_done(self, beam: Beam, end: int) -> bool:
        return not beam

    def select_answer(self, beam: Beam, alpha: float, end: int) -> Hypothesis:
        return super().select_answer(self.aside + beam, alpha, end)

    def beam_search(
        self, step: Step, start: int, end: int, width: int, longest: int, alpha: float
    ) -> tuple[Array, ...]:
        self.aside: Beam = []
        self.end = end
        return super().beam_search(step, start, end, width, longest, alpha)


class OnlyEndedCount(EndedAside):
    def select_answer(self, beam: Beam, alpha: float, end: int) -> Hypothesis:
        return super().select_answer([] if self.aside else beam, alpha, end)


class SoftmaxTwice(Solution):
    def log_softmax(self, logits: Array) -> Array:
        return super().log_softmax(np.exp(super().log_softmax(logits)))

    def logit_gradient(self, logits: Array, gold: Array) -> Array:
        once = np.exp(Solution.log_softmax(self, logits))
        gradient = np.exp(Solution.log_softmax(self, once)) - np.eye(logits.shape[-1])[gold]
        return np.asarray(once * (gradient - (gradient * once).sum(-1, keepdims=True)))


LARGE_HIDDEN = "large hidden scores"
"""Name of the inputs in which hidden keys have large scores; see `mistakes.toml`."""


def _describe(name: str, text: dict[str, Any]) -> type[Solution]:
    solution: type[Solution] = KNOWN.get(name) or globals()[name]
    solution.did, solution.instead, solution.paper = text["did"], text["instead"], TEXTS["papers"][text["paper"]]
    solution.companion = text.get("companion", False)
    groups = TEXTS["inputs"]
    solution.broken = frozenset(case for key in text.get("broken", ()) for case in groups.get(key, [key]))
    solution.rounded = frozenset(text.get("rounded", ()))
    return solution


TEXTS = tomllib.loads(files("regard_course").joinpath("mistakes/mistakes.toml").read_text(encoding="utf-8"))
MISTAKES: tuple[type[Solution], ...] = tuple(_describe(*item) for item in TEXTS["mistakes"].items())
"""All mistakes, in the order of the exercises."""
