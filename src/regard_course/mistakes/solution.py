"""The correct solution to all exercises, in replaceable steps.

The steps are methods, so that a mistake can replace one of them. A method that answers an exercise has the
signature and the docstring of the exercise's stub. A test compares its answers with plain loops. Loops would be
too slow here, because a diagnosis runs up to 44,000 sets of mistakes: an input of the decoder layer takes 1.9 ms
in loops and 0.19 ms in steps. The layers of Regard need PyTorch, which a check of NumPy code does not load.
Shapes: B is the batch size, T the number of steps (Tq queries, Tk keys), D the width, H the number of heads, and
V the vocabulary size. Arrays are NumPy's, float64.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Parameters = dict[str, Array]
Mask = Array | None
Three = tuple[Array, Array, Array]  # query, key and value
Pair = tuple[int, int]
Hypothesis = tuple[float, list[int]]
"""Hypothesis: sum of log-probabilities, and tokens with the start token."""
Beam = list[Hypothesis]
Step = Callable[[list[int]], Array]
PADDING = 0


class SearchSolution:
    """Greedy search and beam search."""

    def choose_token(self, log_probabilities: Array) -> int:
        return int(np.argmax(log_probabilities))

    def step_input(self, tokens: list[int]) -> list[int]:
        return tokens

    def is_end(self, token: int, end: int) -> bool:
        return token == end

    def token_limit(self, longest: int) -> int:
        return longest

    def strip_tokens(self, tokens: list[int], start: int, end: int) -> list[int]:
        return tokens[1:]

    def greedy_search(self, step: Step, start: int, end: int, longest: int) -> Array:
        tokens = [start]
        for _ in range(self.token_limit(longest)):
            tokens.append(self.choose_token(step(self.step_input(tokens))))
            if self.is_end(tokens[-1], end):
                break
        return np.array(self.strip_tokens(tokens, start, end))

    def token_gains(self, log_probabilities: Array) -> Array:
        return log_probabilities

    def is_finished(self, tokens: list[int], end: int) -> bool:
        return len(tokens) > 1 and tokens[-1] == end

    def keep_finished(self, hypothesis: Hypothesis) -> Beam:
        """Return the candidates that a finished hypothesis adds: itself."""
        return [hypothesis]

    def select_top(self, candidates: Beam, width: int, parents: list[int]) -> Beam:
        """Return the candidates with the largest sums. `parents`: the hypothesis that each one continues."""
        return sorted(candidates, key=lambda candidate: -candidate[0])[:width]

    def prune(self, candidates: Beam, width: int, parents: list[int], alpha: float) -> Beam:
        """Return the next beam. The length normalization is not applied here."""
        return self.select_top(candidates, width, parents)

    def normalize_length(self, total: float, length: int, alpha: float) -> float:
        return total / length**alpha

    def is_done(self, beam: Beam, end: int) -> bool:
        return all(self.is_finished(tokens, end) for _, tokens in beam)

    def select_answer(self, beam: Beam, alpha: float, end: int) -> Hypothesis:
        ranked = [(self.normalize_length(total, len(tokens) - 1, alpha), tokens) for total, tokens in beam]
        return max(ranked, key=lambda hypothesis: hypothesis[0])

    def beam_search(
        self, step: Step, start: int, end: int, width: int, longest: int, alpha: float
    ) -> tuple[Array, ...]:
        beam: Beam = [(0.0, [start])]
        for _ in range(self.token_limit(longest)):
            candidates, parents = [], []
            for parent, (total, tokens) in enumerate(beam):
                if self.is_finished(tokens, end):
                    continuations = self.keep_finished((total, tokens))
                else:
                    gains = self.token_gains(step(self.step_input(tokens)))
                    continuations = [(total + float(gain), [*tokens, token]) for token, gain in enumerate(gains)]
                candidates += continuations
                parents += [parent] * len(continuations)
            beam = self.prune(candidates, width, parents, alpha)
            if self.is_done(beam, end):
                break
        score, tokens = self.select_answer(beam, alpha, end)
        return np.array(self.strip_tokens(tokens, start, end)), np.array(score)


class Solution(SearchSolution):
    """The correct solution to all exercises. Mistakes are derived from this class."""

    did = ""
    """What the code of a mistake did, as a sentence."""
    instead = ""
    """The correction, as a sentence."""
    paper = ""
    """The line of a paper or of the stub that a mistake contradicts."""
    companion = False
    """Whether the mistake may have an effect only together with another mistake."""
    broken: frozenset[str] = frozenset()
    """Names of inputs for which every answer with NaN or infinity is attributed to this mistake."""
    rounded: frozenset[str] = frozenset()
    """Names of inputs on which the answers of this mistake are not compared."""

    # Scores, weights and contexts, for one head or several.

    def dot_products(self, query: Array, key: Array) -> Array:
        return np.einsum("...id,...jd->...ij", query, key)

    def scale(self, query: Array, key: Array, heads: int) -> float:
        return float(np.sqrt(query.shape[-1]))

    def score(self, query: Array, key: Array) -> Array:
        return self.scaled_products(query, key, heads=1)

    def scaled_products(self, query: Array, key: Array, heads: int) -> Array:
        return self.dot_products(query, key) / self.scale(query, key, heads)

    def apply_mask(self, scores: Array, mask: Array) -> Array:
        return np.where(mask, scores, -np.inf)

    def softmax(self, scores: Array) -> Array:
        return self.softmax_over(scores, -1)

    def softmax_over(self, scores: Array, axis: int | tuple[int, ...]) -> Array:
        powers = np.exp(scores - scores.max(axis, keepdims=True))
        return np.asarray(powers / powers.sum(axis, keepdims=True))

    def zero_masked_rows(self, weights: Array, masked: Array) -> Array:
        """Replace NaN by 0 in fully masked rows, where the softmax is 0 / 0."""
        return np.where(np.isneginf(masked) & np.isnan(weights), 0.0, weights)

    def masked_softmax(self, scores: Array, mask: Mask) -> Array:
        if mask is None:
            return self.softmax(scores)
        masked = self.apply_mask(scores, mask)
        return self.zero_masked_rows(self.softmax(masked), masked)

    def context(self, weights: Array, value: Array) -> Array:
        return weights @ value

    def attend(self, query: Array, key: Array, value: Array, mask: Mask, heads: int = 1) -> tuple[Array, Array]:
        weights = self.masked_softmax(self.scaled_products(query, key, heads), mask)
        return self.context(weights, value), weights

    def attention(self, query: Array, key: Array, value: Array, mask: Mask = None) -> tuple[Array, ...]:
        return self.attend(query, key, value, mask)

    # Sinusoidal positions.

    base = 10_000.0
    first_index = 0
    """Number from which dimensions or pairs are counted."""

    def positions(self, length: int) -> Array:
        return np.arange(length)

    def frequencies(self, width: int) -> Array:
        return self.base ** -(2 * self.indices((width + 1) // 2) / width)

    def indices(self, count: int) -> Array:
        """Return the numbers of dimensions or of pairs."""
        return np.arange(self.first_index, self.first_index + count)

    def interleave(self, sines: Array, cosines: Array) -> Array:
        """Return positions (T, D) of sines and cosines (T, D / 2)."""
        return np.stack([sines, cosines], -1).reshape(len(sines), -1)

    def sinusoidal_positions(self, length: int, width: int) -> Array:
        angles = self.positions(length)[:, None] * self.frequencies(width)
        return self.interleave(np.sin(angles), np.cos(angles))[:, :width]

    def position_vectors(self, states: Array, width: int) -> Array:
        waves = self.sinusoidal_positions(states.shape[1], width)
        return np.broadcast_to(waves, (len(states), *waves.shape))

    # Multi-head attention, feed-forward network, encoder and decoder layers.

    epsilon = 1e-5
    norm_axes: tuple[int, ...] = (-1,)  # dimensions of the mean and the variance of a layer norm

    def project(self, states: Array, weight: Array) -> Array:
        return states @ weight

    def project_inputs(self, inputs: Three, w: Three) -> list[Array]:
        return [self.project(states, weight) for states, weight in zip(inputs, w, strict=True)]

    def split(self, states: Array, heads: int) -> Array:
        return states.reshape(*states.shape[:2], heads, -1).transpose(0, 2, 1, 3)  # (B, H, T, D / H)

    def join(self, states: Array) -> Array:
        return states.transpose(0, 2, 1, 3).reshape(len(states), states.shape[2], -1)

    def head_mask(self, mask: Mask, heads: int) -> Mask:
        return None if mask is None else mask[:, None]

    def project_output(self, joined: Array, w_o: Array) -> Array:
        return self.project(joined, w_o)

    def multi_head_attention(
        self,
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
        projected = self.project_inputs((query, key, value), (w_q, w_k, w_v))
        q, k, v = (self.split(states, heads) for states in projected)
        context, _ = self.attend(q, k, v, self.head_mask(mask, heads), heads)
        return self.project_output(self.join(context), w_o)

    def activation(self, hidden: Array) -> Array:
        return np.maximum(hidden, 0)

    def feed_forward(self, states: Array, w_1: Array, b_1: Array, w_2: Array, b_2: Array) -> Array:
        return self.activation(states @ w_1 + b_1) @ w_2 + b_2

    def standard_deviation(self, states: Array) -> Array:
        return np.sqrt(states.var(self.norm_axes, keepdims=True) + self.epsilon)

    def normalize(self, states: Array, gain: Array, shift: Array) -> Array:
        centered = states - states.mean(self.norm_axes, keepdims=True)
        return centered / self.standard_deviation(states) * gain + shift

    def residual(self, states: Array, kind: str, norm: int) -> Array:
        """Return what is added to the output of a sublayer; `kind` and `norm` as in `sublayer`."""
        return states

    def sublayer(self, states: Array, kind: str, function: Any, p: Parameters, norm: int) -> Array:
        """Return `LayerNorm(x + Sublayer(x))`; `kind` is self_attention, cross_attention or feed_forward."""
        x = self.residual(states, kind, norm) + function(states)
        return self.normalize(x, p[f"gain_{norm}"], p[f"shift_{norm}"])

    def apply_feed_forward(self, states: Array, p: Parameters) -> Array:
        return self.feed_forward(states, p["w_1"], p["b_1"], p["w_2"], p["b_2"])

    def self_attention(self, states: Array, p: Parameters, heads: int, mask: Mask) -> Array:
        weights = p["w_q"], p["w_k"], p["w_v"], p["w_o"]
        return self.multi_head_attention(states, states, states, *weights, heads, mask)

    def cross_attention(self, x: Array, memory: Array, p: Parameters, heads: int, mask: Mask) -> Array:
        weights = p["cross_q"], p["cross_k"], p["cross_v"], p["cross_o"]
        return self.multi_head_attention(x, memory, memory, *weights, heads, mask)

    def encoder_layer(self, states: Array, parameters: Parameters, heads: int, mask: Mask = None) -> Array:
        p = parameters
        middle = self.sublayer(states, "self_attention", lambda x: self.self_attention(x, p, heads, mask), p, 1)
        return self.sublayer(middle, "feed_forward", lambda x: self.apply_feed_forward(x, p), p, 2)

    def causal_mask(self, length: int) -> Array:
        return np.tril(np.ones((length, length), bool))

    def cross_mask(self, mask: Mask, length: int) -> Mask:
        return mask

    def decoder_layer(
        self, states: Array, memory: Array, parameters: Parameters, heads: int, memory_mask: Mask = None
    ) -> Array:
        p, causal = parameters, self.causal_mask(states.shape[1])[None]
        mask = self.cross_mask(memory_mask, states.shape[1])
        x = self.sublayer(states, "self_attention", lambda x: self.self_attention(x, p, heads, causal), p, 1)
        x = self.sublayer(x, "cross_attention", lambda x: self.cross_attention(x, memory, p, heads, mask), p, 2)
        return self.sublayer(x, "feed_forward", lambda x: self.apply_feed_forward(x, p), p, 3)

    # The whole model of figure 1.

    def scale_embeddings(self, vectors: Array, side: str) -> Array:
        return vectors * np.sqrt(vectors.shape[-1])

    def embed(self, tokens: Array, table: Array, side: str) -> Array:
        vectors = self.scale_embeddings(table[tokens], side)
        return vectors + self.added_positions(vectors, side)

    def added_positions(self, vectors: Array, side: str) -> Array:
        return self.position_vectors(vectors, vectors.shape[-1])

    def encoder_mask(self, source: Array) -> Mask:
        return np.broadcast_to((source != PADDING)[:, None], (len(source), source.shape[1], source.shape[1]))

    def source_mask(self, source: Array, target: Array) -> Mask:
        """Return the mask of the decoder's attention to the source, (B, Tt, Ts)."""
        return np.broadcast_to((source != PADDING)[:, None], (len(source), target.shape[1], source.shape[1]))

    def layer_parameters(self, parameters: Parameters, side: str, layer: int) -> Parameters:
        prefix = f"{side}.{layer}."
        return {name[len(prefix) :]: value for name, value in parameters.items() if name.startswith(prefix)}

    def encode(self, source: Array, parameters: Parameters, heads: int, layers: int) -> list[Array]:
        states = [self.embed(source, parameters["source"], "source")]
        for layer in range(layers):
            p = self.layer_parameters(parameters, "encoder", layer)
            states.append(self.encoder_layer(states[-1], p, heads, self.encoder_mask(source)))
        return states

    def memory_for_layer(self, states: list[Array], layer: int) -> Array:
        return states[-1]

    def decoder_input(self, target: Array) -> Array:
        return target

    def logits(self, states: Array, parameters: Parameters) -> Array:
        return states @ parameters["w_out"] + parameters["b_out"]

    def transformer(self, source: Array, target: Array, parameters: Parameters, heads: int, layers: int) -> Array:
        encoded = self.encode(source, parameters, heads, layers)
        states = self.embed(self.decoder_input(target), parameters["target"], "target")
        for layer in range(layers):
            p, mask = self.layer_parameters(parameters, "decoder", layer), self.source_mask(source, target)
            states = self.decoder_layer(states, self.memory_for_layer(encoded, layer), p, heads, mask)
        return self.logits(states, parameters)

    # Causal masks, the KV cache and shared keys.

    def query_positions(self, queries: int, keys: int) -> Array:
        """Return the positions of the queries: they are the last of the keys."""
        return np.arange(keys - queries, keys)

    def may_attend(self, query: Array, key: Array) -> Array:
        return np.asarray(key <= query)

    def cached_causal_mask(self, queries: int, keys: int) -> Array:
        allowed = self.may_attend(self.query_positions(queries, keys)[:, None], np.arange(keys)[None])
        return allowed.astype(float)  # as numbers, which can be compared

    def new_query(self, state: Array, w_q: Array) -> Array:
        return state @ w_q

    def new_entries(self, state: Array, w_k: Array, w_v: Array) -> tuple[Array, Array]:
        return state @ w_k, state @ w_v

    def append(self, cache: Array, entry: Array) -> Array:
        return np.concatenate([cache, entry[:, None]], 1)

    def attended_steps(self, cache: Array) -> Array:
        return cache

    def cached_step(
        self, state: Array, keys: Array, values: Array, w_q: Array, w_k: Array, w_v: Array
    ) -> tuple[Array, ...]:
        key, value = self.new_entries(state, w_k, w_v)
        keys, values = self.append(keys, key), self.append(values, value)
        query, attended = self.new_query(state, w_q), self.attended_steps(keys)
        scores = self.dot_products(query[:, None], attended)[:, 0] / self.scale(query, attended, heads=1)
        context = self.context(self.softmax(scores)[:, None], self.attended_steps(values))
        return context[:, 0], keys, values

    def groups_of_heads(self, heads: int, groups: int) -> Array:
        return np.arange(heads) // (heads // groups)

    def rescale(self, old: Array, new: Array) -> Array:
        """Return the factor that turns sums of exp(s - old) into sums of exp(s - new)."""
        return np.exp(old - new)

    def block_starts(self, length: int, block: int) -> range:
        return range(0, length, block)

    def online_softmax(self, scores: Array, value: Array, block: int) -> tuple[Array, ...]:
        largest = np.full(scores.shape[:2], -np.inf)
        total, context = np.zeros(scores.shape[:2]), np.zeros((*scores.shape[:2], value.shape[-1]))
        maxima, totals = [], []
        for start in self.block_starts(scores.shape[-1], block):
            part = scores[..., start : start + block]
            new = np.maximum(largest, part.max(-1))
            powers, factor = np.exp(part - new[..., None]), self.rescale(largest, new)
            total = factor * total + powers.sum(-1)
            context = factor[..., None] * context + powers @ value[:, start : start + block]
            largest = new
            maxima.append(largest)
            totals.append(total)
        return context / total[..., None], np.array(maxima), np.array(totals)

    def grouped_attention(self, query: Array, key: Array, value: Array) -> Array:
        groups = self.groups_of_heads(query.shape[1], key.shape[1])
        scores = self.scaled_products(query, key[:, groups], query.shape[1])
        return self.context(self.softmax(scores), value[:, groups])

    def squared_size(self, states: Array) -> Array:
        return np.asarray((states**2).mean(-1, keepdims=True))

    def rms_gain(self, states: Array, gain: Array) -> Array:
        return states * gain

    def rms_norm(self, states: Array, gain: Array) -> Array:
        return self.rms_gain(states / np.sqrt(self.squared_size(states) + 1e-5), gain)

    def gate(self, states: Array) -> Array:
        """Return SiLU, x * sigmoid(x), which is also called Swish."""
        return states / (1 + np.exp(-states))

    def join_gate(self, gated: Array, states: Array) -> Array:
        return gated * states

    def swiglu(self, states: Array, w_gate: Array, w_up: Array, w_down: Array) -> Array:
        return self.join_gate(self.gate(states @ w_gate), states @ w_up) @ w_down

    # Byte-pair encoding and sampling.

    def pairs(self, tokens: list[int]) -> list[Pair]:
        return list(pairwise(tokens))

    def choose_pair(self, counts: dict[Pair, int], pairs: list[Pair]) -> Pair:
        """Return the most frequent pair. `counts` is in the order of the first occurrence in `pairs`."""
        return max(counts, key=lambda pair: counts[pair])

    def new_token(self, first: int, number: int) -> int:
        return first + number

    def merge_pair(self, tokens: list[int], pair: Pair, new: int) -> list[int]:
        merged: list[int] = []
        position = 0
        while position < len(tokens):
            found = tuple(tokens[position : position + 2]) == pair
            merged.append(new if found else tokens[position])
            position += 2 if found else 1
        return merged

    def counted_tokens(self, tokens: list[int], merged: list[int]) -> list[int]:
        """Return the tokens whose pairs are counted: those after the merges so far."""
        return merged

    def candidate_pairs(self, counts: dict[Pair, int], merges: list[Pair]) -> dict[Pair, int]:
        """Return the pairs that can be chosen: all, because a merged pair does not occur any more."""
        return counts

    def learn_merges(self, tokens: Sequence[int] | Array, count: int, first: int) -> tuple[Array, ...]:
        original = merged = [int(token) for token in tokens]
        merges: list[Pair] = []
        for number in range(count):
            counts: dict[Pair, int] = {}
            pairs = self.pairs(self.counted_tokens(original, merged))
            for pair in pairs:
                counts[pair] = counts.get(pair, 0) + 1
            merges.append(self.choose_pair(self.candidate_pairs(counts, merges), pairs))
            merged = self.merge_pair(merged, merges[-1], self.new_token(first, number))
        return np.array(merges), np.array(merged)

    def merge_order(self, merges: list[Pair]) -> list[int]:
        return list(range(len(merges)))

    def apply_merges(self, tokens: Sequence[int] | Array, merges: Array, first: int) -> Array:
        merged, pairs = [int(token) for token in tokens], [(int(a), int(b)) for a, b in merges]
        for number in self.merge_order(pairs):
            merged = self.merge_pair(merged, pairs[number], self.new_token(first, number))
        return np.array(merged)

    def heat(self, logits: Array, temperature: float) -> Array:
        return logits / temperature

    def top_k_tokens(self, logits: Array, top_k: int) -> Array:
        return np.asarray(np.argsort(np.argsort(-logits)) < top_k)

    def top_p_tokens(self, probabilities: Array, top_p: float) -> Array:
        """Return which tokens are in the smallest set whose probabilities sum to at least p."""
        order = np.argsort(-probabilities)
        before = np.concatenate([[0.0], np.cumsum(probabilities[order])[:-1]])
        allowed = np.zeros(len(order), bool)
        allowed[order] = before < top_p
        return allowed

    def renormalize(self, probabilities: Array) -> Array:
        return np.asarray(probabilities / probabilities.sum())

    def next_token_probabilities(self, logits: Array, temperature: float, top_k: int, top_p: float) -> Array:
        logits = self.heat(logits, temperature)
        kept = self.top_k_tokens(logits, top_k)
        probabilities = self.softmax(np.where(kept, logits, -np.inf))
        return self.renormalize(probabilities * self.top_p_tokens(probabilities, top_p))

    # Induction scores, patching and rollout.

    def earlier_step(self, tokens: list[int], step: int) -> int | None:
        steps = [earlier for earlier in range(step) if tokens[earlier] == tokens[step]]
        return steps[-1] if steps else None

    def induction_key(self, earlier: int) -> int:
        """Return the step that an induction head attends to."""
        return earlier + 1

    def mean_score(self, scores: list[float], steps: int) -> float:
        return sum(scores) / len(scores)

    def induction_score(self, weights: Array, tokens: Sequence[int] | Array) -> Array:
        words = [int(token) for token in tokens]
        earlier = [(step, self.earlier_step(words, step)) for step in range(len(words))]
        scores = [float(weights[step, self.induction_key(before)]) for step, before in earlier if before is not None]
        return np.array(self.mean_score(scores, len(words)))

    def effect(self, clean: Array, corrupt: Array, patched: Array) -> Array:
        return np.asarray((patched - corrupt) / (clean - corrupt))

    def patching_effect(self, clean: Array, corrupt: Array, patched: Array) -> Array:
        return self.effect(clean.mean(), corrupt.mean(), patched.mean(-1))

    def with_residual(self, weights: Array) -> Array:
        return 0.5 * weights + 0.5 * np.eye(weights.shape[-1])

    def join_layers(self, product: Array, layer: Array) -> Array:
        """Return the product with one more layer, which reads the layers before it."""
        return layer @ product

    def attention_rollout(self, weights: Array) -> Array:
        product = np.eye(weights.shape[-1])
        for layer in weights:
            product = self.join_layers(product, self.with_residual(layer))
        return product

    # The logit lens, a softmax with a sink, Fourier components, and the measures of doubt.

    def lens_norm(self, states: Array, norm: Array) -> Array:
        """Return the states as the output layer receives them."""
        return self.rms_norm(states, norm)

    def token_logits(self, states: Array, output: Array) -> Array:
        return states @ output.T

    def logit_lens(self, states: Array, norm: Array, output: Array) -> Array:
        return self.softmax(self.token_logits(self.lens_norm(states, norm), output))

    def sink_power(self, sink: Array, largest: Array) -> Array:
        """Return the exp of the sink, which can be added to the sum of a row."""
        return np.exp(sink[:, None, None] - largest)

    def numerator(self, powers: Array, sink_power: Array) -> Array:
        return powers

    def without_sink(self, weights: Array, sink_weight: Array) -> Array:
        """Return the weights on the keys: the rest went to the sink."""
        return weights

    def sink_softmax(self, scores: Array, sink: Array) -> Array:
        largest = np.maximum(scores.max(-1, keepdims=True), sink[:, None, None])
        powers, sink_power = np.exp(scores - largest), self.sink_power(sink, largest)
        total = powers.sum(-1, keepdims=True) + sink_power
        return self.without_sink(self.numerator(powers, sink_power) / total, sink_power / total)

    def wins(self, fault: Array, good: Array) -> Array:
        """Return 1 for each pair in which the fault has more doubt, 0.5 for a tie, else 0."""
        return (fault > good) + 0.5 * (fault == good)

    def auroc(self, doubts: Array, faulty: Array) -> Array:
        fault, good = doubts[faulty == 1], doubts[faulty == 0]
        return np.array(self.wins(fault[:, None], good[None]).sum() / (len(fault) * len(good)))

    # One step of a recurrent decoder with attention.

    def tanh(self, states: Array) -> Array:
        """Apply tanh, as additive scores and Luong's output layer do."""
        return np.tanh(states)

    def additive_scores(self, state: Array, memory: Array, w: Array, u: Array, v: Array) -> Array:
        return self.tanh((state @ w)[:, None] + memory @ u) @ v

    def memory_context(self, weights: Array, memory: Array) -> Array:
        return np.einsum("bt,btm->bm", weights, memory)

    def cell_input(self, previous: Array, context: Array) -> Array:
        return np.concatenate([previous, context], -1)

    def query_state(self, previous: Array, state: Array, memory: Array, cell: Any) -> Array:
        """Return the query of Bahdanau's step: the state before the step."""
        return state

    def bahdanau_step(
        self, previous: Array, state: Array, memory: Array, cell: Any, w: Array, u: Array, v: Array, mask: Mask = None
    ) -> tuple[Array, ...]:
        query = self.query_state(previous, state, memory, cell)
        weights = self.masked_softmax(self.additive_scores(query, memory, w, u, v), mask)
        return cell(self.cell_input(previous, self.memory_context(weights, memory)), state), weights

    # The label-smoothed loss, and a training loop.

    def log_softmax(self, logits: Array) -> Array:
        top = logits.max(-1, keepdims=True)
        return logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))

    def target_distribution(self, target: Array, size: int, smoothing: float) -> Array:
        return (1 - smoothing) * np.eye(size)[target] + smoothing / size

    def counted_steps(self, target: Array, padding: int) -> Array:
        return target != padding

    def mean_loss(self, losses: Array, counted: Array) -> float:
        return float(losses[counted].sum() / counted.sum())

    def label_smoothed_loss(self, logits: Array, target: Array, smoothing: float, padding: int = PADDING) -> Array:
        distribution = self.target_distribution(target, logits.shape[-1], smoothing)
        losses = -(distribution * self.log_softmax(logits)).sum(-1)
        return np.array(self.mean_loss(losses, self.counted_steps(target, padding)))

    def shift(self, target: Array) -> tuple[Array, Array]:
        """Return the decoder's input and its expected output."""
        return target[:, :-1], target[:, 1:]

    def logit_gradient(self, logits: Array, gold: Array) -> Array:
        return np.exp(self.log_softmax(logits)) - np.eye(logits.shape[-1])[gold]

    def train_copy(self, target: Array, table: Array) -> tuple[Array, ...]:
        decoder_input, gold = self.shift(target)
        gradient = self.logit_gradient(table[:, : decoder_input.shape[1]], gold)
        gradient = gradient * self.counted_steps(gold, PADDING)[..., None]
        return decoder_input, normalize_gradient(gradient), *(np.array(1.0) for _ in range(4))


def normalize_gradient(gradient: Array) -> Array:
    """Return a gradient scaled to length 1. Zeros remain zeros."""
    length = math.sqrt(float((gradient**2).sum()))
    return gradient / length if length else gradient
