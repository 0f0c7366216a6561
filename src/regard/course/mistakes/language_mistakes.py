"""Mistakes in masks of language models, caches, subwords, sampling and explanations."""

import numpy as np

from regard.course.mistakes.solution import Solution, mistake, mistakes_in
from regard.course.mistakes.transformer_solution import Array

CAUSAL = (
    "Vaswani et al. 2017, section 3.2.3: each position may attend to 'all positions up to and including' itself"
)
CACHE = "This exercise's stub: all earlier tokens and the token itself"
BPE = "Sennrich et al. 2016, algorithm 1: replace the most frequent pair, then count again"
SAMPLING = "Holtzman et al. 2020, section 3.1: the smallest set of tokens whose probability is at least p"
ROLLOUT = "Abnar and Zuidema 2020, section 3: 0.5 A + 0.5 I, multiplied over the layers"
INDUCTION = "Olsson et al. 2022: an induction head attends to the token after the previous occurrence"
PATCHING = "This exercise's stub: 1 restores the clean logit, 0 restores nothing"
RMS = "Zhang and Sennrich 2019, equation 4: divide by the root of the mean of the squares, times the gain"
SWIGLU = "Shazeer 2020, equation 6: (Swish(x W) * x V) W_2"
ALL_KEPT = frozenset(["a low temperature", "a high temperature", "the four most likely"])
"""Inputs with p = 1. Whether the sum of all probabilities is below 1 depends on rounding."""
Pair = tuple[int, int]
GROUPED = "Ainslie et al. 2023, section 2.2: each group of query heads shares a head of keys and values"
positions = mistakes_in(Solution.query_positions, CAUSAL)
attends = mistakes_in(Solution.may_attend, CAUSAL)
pairs = mistakes_in(Solution.pairs, BPE)
choose_pair = mistakes_in(Solution.choose_pair, BPE)
merge_pair = mistakes_in(Solution.merge_pair, BPE)
new_token = mistakes_in(Solution.new_token, "This exercise's stub: `first`, `first` + 1, ...")
heat = mistakes_in(Solution.heat, "Ackley et al. 1985: the logits are divided by the temperature")
top_k = mistakes_in(Solution.top_k_tokens, "Fan et al. 2018, section 5.1: the k most likely tokens")
top_p = mistakes_in(Solution.top_p_tokens, SAMPLING)
residual = mistakes_in(Solution.with_residual, ROLLOUT)
join_layers = mistakes_in(Solution.join_layers, ROLLOUT)
induction_key = mistakes_in(Solution.induction_key, INDUCTION)
mean_score = mistakes_in(
    Solution.mean_score, "This exercise's stub: the mean over the steps with an earlier step"
)
effect = mistakes_in(Solution.effect, PATCHING)
size = mistakes_in(Solution.squared_size, RMS)
gate = mistakes_in(Solution.gate, SWIGLU)
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


@pairs("Count every pair of neighbors: positions 0 and 1, 1 and 2, 2 and 3, ...")
def every_other_pair(self: Solution, tokens: list[int]) -> list[Pair]:
    """Only every other pair is counted: positions 0 and 1, 2 and 3, ..."""
    return list(zip(tokens[::2], tokens[1::2], strict=False))


@choose_pair("Choose the pair with the largest count.")
def rarest_pair(self: Solution, counts: dict[Pair, int], pairs: list[Pair]) -> Pair:
    """The least frequent pair is merged."""
    return min(counts, key=lambda pair: counts[pair])


@choose_pair("Among equal counts, choose the pair that occurs first in the text.")
def last_of_equal_pairs(self: Solution, counts: dict[Pair, int], pairs: list[Pair]) -> Pair:
    """Among equally frequent pairs, the last one is merged: >= instead of >, or a sort."""
    return max(reversed(list(counts)), key=lambda pair: counts[pair])


@choose_pair("Among equal counts, compare the places where the pairs occur first, not where they occur last.")
def latest_of_equal_pairs(self: Solution, counts: dict[Pair, int], pairs: list[Pair]) -> Pair:
    """Among equally frequent pairs, the one that is found again latest in the text is merged."""
    last = {pair: place for place, pair in enumerate(pairs)}
    return max(counts, key=lambda pair: (counts[pair], last[pair]))


class CountedOnce(Solution, paper=BPE):
    """The pairs are counted once, in the original text: a merge never contains a new token."""

    instead = "Count the pairs again after each merge."

    def counted_tokens(self, tokens: list[int], merged: list[int]) -> list[int]:
        return tokens

    def candidate_pairs(self, counts: dict[Pair, int], merges: list[Pair]) -> dict[Pair, int]:
        return {pair: count for pair, count in counts.items() if pair not in merges}


@merge_pair("Replace every occurrence of the pair.")
def first_occurrence_only(self: Solution, tokens: list[int], pair: Pair, new: int) -> list[int]:
    """Only the first occurrence of the pair is replaced."""
    places = [place for place in range(len(tokens) - 1) if tuple(tokens[place : place + 2]) == pair]
    return [*tokens[: places[0]], new, *tokens[places[0] + 2 :]] if places else tokens


@merge_pair("Replace from left to right: in 7 7 7, the first two become the new token.")
def merged_from_the_right(self: Solution, tokens: list[int], pair: Pair, new: int) -> list[int]:
    """The pair is replaced from right to left: in 7 7 7, the last two become the new token."""
    return Solution.merge_pair(self, tokens[::-1], (pair[1], pair[0]), new)[::-1]


@new_token("Give every merge its own number.")
def same_new_token(self: Solution, first: int, number: int) -> int:
    """All merges get the same number."""
    return first


@mistake(Solution.merge_order, BPE, "Apply the merges in the order in which they were learned.")
def merges_reversed(self: Solution, merges: list[Pair]) -> list[int]:
    """The merges are applied in reverse order."""
    return list(range(len(merges)))[::-1]


@heat("Divide the logits by the temperature.")
def temperature_multiplied(self: Solution, logits: Array, temperature: float) -> Array:
    """The logits are multiplied by the temperature: a high temperature makes the choice sharper."""
    return logits * temperature


@heat("Divide the logits by the temperature, before the softmax.")
def temperature_ignored(self: Solution, logits: Array, temperature: float) -> Array:
    """The temperature has no effect: it is not used, or the probabilities are divided by it."""
    return logits


@top_k("Keep the k largest logits.")
def smallest_kept(self: Solution, logits: Array, top_k: int) -> Array:
    """The k smallest logits are kept: an ascending sort."""
    return np.asarray(np.argsort(np.argsort(logits)) < top_k)


@top_k("Keep the k largest logits.")
def top_k_ignored(self: Solution, logits: Array, top_k: int) -> Array:
    """All tokens are kept, whatever top_k is."""
    return np.ones(len(logits), bool)


def _below(probabilities: Array, top_p: float) -> Array:
    """Return for which tokens the sum of probabilities, including the token itself, is below p."""
    order = np.argsort(-probabilities)
    return np.asarray(np.cumsum(probabilities[order]) < top_p)[np.argsort(order)]


@top_p("Keep the token that crosses p, too: keep a token while the sum before it is below p.", rounded=ALL_KEPT)
def crossing_token_dropped(self: Solution, probabilities: Array, top_p: float) -> Array:
    """The token with which the sum reaches p is dropped: the kept tokens sum to less than p."""
    allowed = _below(probabilities, top_p)
    allowed[probabilities.argmax()] = True
    return allowed


@top_p(
    "Keep the token that crosses p, too: keep a token while the sum before it is below p.",
    rounded=ALL_KEPT,
    broken=frozenset(["half of the probability", "temperature and top-p", "all three", "a single token"]),
)
def first_token_dropped(self: Solution, probabilities: Array, top_p: float) -> Array:
    """The token with which the sum reaches p is dropped, even if it is the first one: then no token is left, and
    the result is 0 / 0."""
    return _below(probabilities, top_p)


@top_p("Sort by probability before the sums.")
def sums_unsorted(self: Solution, probabilities: Array, top_p: float) -> Array:
    """The probabilities are summed in the order of the vocabulary."""
    return np.asarray(np.cumsum(probabilities) - probabilities < top_p)


@top_p("Keep the most likely tokens until their sum reaches p.")
def top_p_ignored(self: Solution, probabilities: Array, top_p: float) -> Array:
    """All tokens are kept, whatever top_p is."""
    return np.ones(len(probabilities), bool)


@mistake(Solution.renormalize, SAMPLING, "Divide by the sum of the probabilities that are kept.")
def rest_not_normalized(self: Solution, probabilities: Array) -> Array:
    """The probabilities of the kept tokens do not sum to 1."""
    return probabilities


@induction_key("Attend to the token after the earlier occurrence: s + 1.")
def duplicate_token(self: Solution, earlier: int) -> int:
    """The key is the earlier occurrence itself: this is the score of a duplicate-token head."""
    return earlier


@mistake(Solution.earlier_step, INDUCTION, "Use the last earlier occurrence.")
def first_occurrence(self: Solution, tokens: list[int], step: int) -> int | None:
    """The first occurrence of the token is used instead of the last one before the step."""
    return tokens.index(tokens[step]) if tokens[step] in tokens[:step] else None


@mean_score("Divide by the number of steps that have an earlier occurrence.")
def mean_over_all_steps(self: Solution, scores: list[float], steps: int) -> float:
    """The sum is divided by the number of all steps, not of those whose token occurred before."""
    return sum(scores) / steps


@mean_score("Divide the sum by the number of weights.")
def weights_summed(self: Solution, scores: list[float], steps: int) -> float:
    """The weights are summed instead of averaged."""
    return sum(scores)


@effect("Subtract the corrupt logit: (patched - corrupt) / (clean - corrupt).")
def damage_measured(self: Solution, clean: Array, corrupt: Array, patched: Array) -> Array:
    """The effect is measured from the clean run: 0 and 1 are swapped."""
    return np.asarray((clean - patched) / (clean - corrupt))


@effect("Divide by clean - corrupt.")
def effect_not_normalized(self: Solution, clean: Array, corrupt: Array, patched: Array) -> Array:
    """The effect is not divided by the difference of the clean and the corrupt logit."""
    return np.asarray(patched - corrupt)


@effect("Divide by the difference clean - corrupt.")
def divided_by_clean(self: Solution, clean: Array, corrupt: Array, patched: Array) -> Array:
    """The effect is divided by the clean logit instead of the difference."""
    return np.asarray((patched - corrupt) / clean)


@residual("Average the weights with the identity matrix.")
def no_residual_in_rollout(self: Solution, weights: Array) -> Array:
    """The residual connection is missing."""
    return weights


@residual("Halve the sum, so that each row sums to 1.")
def residual_not_halved(self: Solution, weights: Array) -> Array:
    """Weights and identity are added but not halved: rows sum to 2, and the product grows with the layers."""
    return np.asarray(weights + np.eye(weights.shape[-1]))


@join_layers("Multiply the later layer from the left.")
def layers_reversed(self: Solution, product: Array, layer: Array) -> Array:
    """The layers are multiplied in the opposite order: the first layer is on the left."""
    return product @ layer


@join_layers("Use the matrix product.")
def elementwise_product(self: Solution, product: Array, layer: Array) -> Array:
    """The layers are multiplied element by element instead of as matrices."""
    return product * layer
