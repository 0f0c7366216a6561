"""The correct solution to the exercises on language models: masks, subwords, sampling, caches, explanations."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from regard_course.mistakes.transformer_solution import Array, TransformerSolution


class CausalSolution(TransformerSolution):
    """Causal masks, the KV cache and shared keys."""

    def query_positions(self, queries: int, keys: int) -> Array:
        """Return the positions of the queries: they are the last of the keys."""
        return np.arange(keys - queries, keys)

    def may_attend(self, query: Array, key: Array) -> Array:
        """Return whether the query at a position may attend to the key at a position."""
        return np.asarray(key <= query)

    def cached_causal_mask(self, queries: int, keys: int) -> Array:
        """Return the causal mask (Tq, Tk), True = may attend.

        The queries are at the last Tq of the Tk positions, as in a model that continues a text from a cache. A
        query may attend to its own position and to earlier positions.
        """
        allowed = self.may_attend(self.query_positions(queries, keys)[:, None], np.arange(keys)[None])
        return allowed.astype(float)  # as numbers, which can be compared

    def new_query(self, state: Array, w_q: Array) -> Array:
        """Return the query of the new token (B, D)."""
        return state @ w_q

    def new_entries(self, state: Array, w_k: Array, w_v: Array) -> tuple[Array, Array]:
        """Return the key and the value of the new token, each (B, D)."""
        return state @ w_k, state @ w_v

    def append(self, cache: Array, entry: Array) -> Array:
        """Return the cache with the new entry at its end."""
        return np.concatenate([cache, entry[:, None]], 1)

    def attended_steps(self, cache: Array) -> Array:
        """Return the part of the new cache that the new token attends to."""
        return cache

    def cached_step(
        self, state: Array, keys: Array, values: Array, w_q: Array, w_k: Array, w_v: Array
    ) -> tuple[Array, ...]:
        """Return the context of a new token, and the caches with its key and its value.

        state (B, D): the new token's state; keys and values (B, T, D): those of the earlier tokens, already
        projected; w_q, w_k, w_v (D, D), applied as x @ w. The token attends to all earlier tokens and to itself,
        as in exercise 3 (attention). Returns context (B, D), keys (B, T + 1, D), values (B, T + 1, D).
        """
        key, value = self.new_entries(state, w_k, w_v)
        keys, values = self.append(keys, key), self.append(values, value)
        query, attended = self.new_query(state, w_q), self.attended_steps(keys)
        scores = self.dot_products(query[:, None], attended)[:, 0] / self.scale(query, attended, heads=1)
        context = self.context(self.softmax(scores)[:, None], self.attended_steps(values))
        return context[:, 0], keys, values

    def groups_of_heads(self, heads: int, groups: int) -> Array:
        """Return the group of each head."""
        return np.arange(heads) // (heads // groups)

    def grouped_attention(self, query: Array, key: Array, value: Array) -> Array:
        """Return the contexts (B, H, T, D) of H heads that share G heads of keys and values.

        query (B, H, T, D); key and value (B, G, T, D); G divides H. Neighboring heads share: with H = 4 and
        G = 2, the heads 0 and 1 have the keys 0, and the heads 2 and 3 have the keys 1. Each head is
        exercise 3 (attention), without a mask.
        """
        groups = self.groups_of_heads(query.shape[1], key.shape[1])
        scores = self.scaled_products(query, key[:, groups], query.shape[1])
        return self.context(self.softmax(scores), value[:, groups])

    def squared_size(self, states: Array) -> Array:
        """Return the mean of the squares of each step."""
        return np.asarray((states**2).mean(-1, keepdims=True))

    def rms_gain(self, states: Array, gain: Array) -> Array:
        """Return the states multiplied by the gain."""
        return states * gain

    def centered(self, states: Array) -> Array:
        """Return the states that are normalized: they keep their mean."""
        return states

    def rms_norm(self, states: Array, gain: Array) -> Array:
        """Return x / √(mean(x²) + 1e-5) * gain for each step x.

        states (B, T, D), gain (D,); the mean is over the width. Returns (B, T, D).
        """
        states = self.centered(states)
        return self.rms_gain(states / np.sqrt(self.squared_size(states) + 1e-5), gain)

    def gate(self, states: Array) -> Array:
        """Return SiLU, x * sigmoid(x), which is also called Swish."""
        return states / (1 + np.exp(-states))

    def join_gate(self, gated: Array, states: Array) -> Array:
        """Return the product of gate and states."""
        return gated * states

    def swiglu(self, states: Array, w_gate: Array, w_up: Array, w_down: Array) -> Array:
        """Return (SiLU(x W_gate) * (x W_up)) W_down, where SiLU(z) = z * sigmoid(z).

        states (B, T, D); w_gate and w_up (D, F), w_down (F, D), applied as x @ w. Returns (B, T, D).
        """
        return self.join_gate(self.gate(states @ w_gate), states @ w_up) @ w_down


class TextSolution(CausalSolution):
    """Byte-pair encoding and sampling."""

    def pairs(self, tokens: list[int]) -> list[tuple[int, int]]:
        """Return all pairs of neighbors, in order."""
        return list(pairwise(tokens))

    def choose_pair(self, counts: dict[tuple[int, int], int], pairs: list[tuple[int, int]]) -> tuple[int, int]:
        """Return the most frequent pair. `counts` is in the order of the first occurrence in `pairs`."""
        return max(counts, key=lambda pair: counts[pair])

    def new_token(self, first: int, number: int) -> int:
        """Return the number of a new token."""
        return first + number

    def merge_pair(self, tokens: list[int], pair: tuple[int, int], new: int) -> list[int]:
        """Replace all occurrences of a pair, from left to right."""
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

    def candidate_pairs(
        self, counts: dict[tuple[int, int], int], merges: list[tuple[int, int]]
    ) -> dict[tuple[int, int], int]:
        """Return the pairs that can be chosen: all, because a merged pair does not occur any more."""
        return counts

    def learn_merges(self, tokens: Sequence[int] | Array, count: int, first: int) -> tuple[Array, ...]:
        """Learn byte-pair merges: return `count` pairs, and the tokens after all merges.

        tokens (T,): numbers below `first`. In each round, count all pairs of neighbors (in 7 7 7 the pair 7 7
        occurs twice), and choose the most frequent pair. If several are most frequent, choose the one that
        occurs first. Replace it everywhere, from left to right, by a new number: `first` in the first round,
        `first` + 1 in the second, and so on. Returns pairs (count, 2) and tokens (any length).
        """
        original = merged = [int(token) for token in tokens]
        merges: list[tuple[int, int]] = []
        for number in range(count):
            counts: dict[tuple[int, int], int] = {}
            pairs = self.pairs(self.counted_tokens(original, merged))
            for pair in pairs:
                counts[pair] = counts.get(pair, 0) + 1
            merges.append(self.choose_pair(self.candidate_pairs(counts, merges), pairs))
            merged = self.merge_pair(merged, merges[-1], self.new_token(first, number))
        return np.array(merges), np.array(merged)

    def merge_order(self, merges: list[tuple[int, int]]) -> list[int]:
        """Return the order in which merges are applied."""
        return list(range(len(merges)))

    def apply_merges(self, tokens: Sequence[int] | Array, merges: Array, first: int) -> Array:
        """Encode a text with learned merges: return the tokens (any length).

        tokens (T,): numbers below `first`; merges (M, 2): pairs in the order in which exercise 22 (learn_merges)
        learned them. The first pair becomes the token `first`, the second `first` + 1, and so on. Apply every
        merge to the whole text, in this order, from left to right.
        """
        merged, pairs = [int(token) for token in tokens], [(int(a), int(b)) for a, b in merges]
        for number in self.merge_order(pairs):
            merged = self.merge_pair(merged, pairs[number], self.new_token(first, number))
        return np.array(merged)

    def heat(self, logits: Array, temperature: float) -> Array:
        """Return the logits at a temperature."""
        return logits / temperature

    def top_k_tokens(self, logits: Array, top_k: int) -> Array:
        """Return which tokens are among the k largest."""
        return np.asarray(np.argsort(np.argsort(-logits)) < top_k)

    def top_p_tokens(self, probabilities: Array, top_p: float) -> Array:
        """Return which tokens are in the smallest set whose probabilities sum to at least p."""
        order = np.argsort(-probabilities)
        before = np.concatenate([[0.0], np.cumsum(probabilities[order])[:-1]])
        allowed = np.zeros(len(order), bool)
        allowed[order] = before < top_p
        return allowed

    def renormalize(self, probabilities: Array) -> Array:
        """Return probabilities that sum to 1."""
        return np.asarray(probabilities / probabilities.sum())

    def next_token_probabilities(self, logits: Array, temperature: float, top_k: int, top_p: float) -> Array:
        """Return the probabilities (V,) from which the next token is drawn.

        logits (V,). First divide by the temperature. Then keep the top_k largest logits. Then keep the smallest
        set of the most likely tokens whose probabilities, after the softmax over the tokens kept so far, sum to
        top_p or more. All other tokens have the probability 0, and the rest sums to 1.
        """
        logits = self.heat(logits, temperature)
        kept = self.top_k_tokens(logits, top_k)
        probabilities = self.softmax(np.where(kept, logits, -np.inf))
        return self.renormalize(probabilities * self.top_p_tokens(probabilities, top_p))


class ExplanationSolution(TextSolution):
    """Induction scores, patching and rollout."""

    def earlier_step(self, tokens: list[int], step: int) -> int | None:
        """Return the last earlier step with the same token, or None."""
        steps = [earlier for earlier in range(step) if tokens[earlier] == tokens[step]]
        return steps[-1] if steps else None

    def induction_key(self, earlier: int) -> int:
        """Return the step that an induction head attends to."""
        return earlier + 1

    def mean_score(self, scores: list[float], steps: int) -> float:
        """Return the mean over the steps that have an earlier step."""
        return sum(scores) / len(scores)

    def induction_score(self, weights: Array, tokens: Sequence[int] | Array) -> Array:
        """Return how much a head attends to the token after the last earlier occurrence of the present token.

        weights (T, T), a row for each query; tokens (T,). For every step t whose token occurred before, at s < t
        (the last such s), the key is s + 1. Returns one number: the mean weight of these keys over these steps.
        """
        words = [int(token) for token in tokens]
        earlier = [(step, self.earlier_step(words, step)) for step in range(len(words))]
        scores = [
            float(weights[step, self.induction_key(before)]) for step, before in earlier if before is not None
        ]
        return np.array(self.mean_score(scores, len(words)))

    def effect(self, clean: Array, corrupt: Array, patched: Array) -> Array:
        """Return the restored fraction, from means over inputs."""
        return np.asarray((patched - corrupt) / (clean - corrupt))

    def patching_effect(self, clean: Array, corrupt: Array, patched: Array) -> Array:
        """Return the fraction of the answer that each head restores when it is patched.

        clean (N,) and corrupt (N,): the logit of the right answer for N inputs, and for the same inputs with
        other tokens; patched (L, H, N): the same logit for the corrupt inputs, when the output of one head comes
        from the clean input. Average over the inputs first. Returns (L, H): 1 if the head restores the clean
        logit, 0 if it restores nothing.
        """
        return self.effect(clean.mean(), corrupt.mean(), patched.mean(-1))

    def with_residual(self, weights: Array) -> Array:
        """Return the weights with the residual connection."""
        return 0.5 * weights + 0.5 * np.eye(weights.shape[-1])

    def join_layers(self, product: Array, layer: Array) -> Array:
        """Return the product with one more layer, which reads the layers before it."""
        return layer @ product

    def attention_rollout(self, weights: Array) -> Array:
        """Return the attention rollout (T, T): how much each last state reads from each input.

        weights (L, T, T), the first layer first, each row sums to 1. A layer with its residual connection is
        0.5 A + 0.5 I. Multiply the layers so that the last layer is on the left.
        """
        product = np.eye(weights.shape[-1])
        for layer in weights:
            product = self.join_layers(product, self.with_residual(layer))
        return product
