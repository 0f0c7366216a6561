"""Mistakes in subwords, sampling and explanations."""

import numpy as np

from regard_course.mistakes.solution import Solution, mistake, mistakes_in
from regard_course.mistakes.transformer_solution import Array

BPE = "Sennrich et al. 2016, algorithm 1: replace the most frequent pair, then count again"
SAMPLING = "Holtzman et al. 2020, section 3.1: the smallest set of tokens whose probability is at least p"
ROLLOUT = "Abnar and Zuidema 2020, section 3: 0.5 A + 0.5 I, multiplied over the layers"
INDUCTION = "Olsson et al. 2022: an induction head attends to the token after the previous occurrence"
PATCHING = "This exercise's stub: 1 restores the clean logit, 0 restores nothing"
ALL_KEPT = frozenset(["a low temperature", "a high temperature", "the four most likely"])
"""Inputs with p = 1. Whether the sum of all probabilities is below 1 depends on rounding."""
ONE = frozenset(["a single token"])
"""Inputs on which a mistake may leave no token."""
Pair = tuple[int, int]
pairs = mistakes_in(Solution.pairs, BPE)
choose_pair = mistakes_in(Solution.choose_pair, BPE)
merge_pair = mistakes_in(Solution.merge_pair, BPE)
new_token = mistakes_in(Solution.new_token, "This exercise's stub: `first`, `first` + 1, ...")
heat = mistakes_in(Solution.heat, "Ackley et al. 1985: the logits are divided by the temperature")
top_k = mistakes_in(Solution.top_k_tokens, "Fan et al. 2018, section 5.1: the k most likely tokens")
top_p = mistakes_in(Solution.top_p_tokens, SAMPLING)
PROBABILITIES = "This exercise's stub: returns the probabilities (V,)"
SAMPLING_ORDER = "This exercise's stub: first the temperature, then top_k, then top_p"
residual = mistakes_in(Solution.with_residual, ROLLOUT)
join_layers = mistakes_in(Solution.join_layers, ROLLOUT)
induction_key = mistakes_in(Solution.induction_key, INDUCTION)
mean_score = mistakes_in(
    Solution.mean_score, "This exercise's stub: the mean over the steps with an earlier step"
)
effect = mistakes_in(Solution.effect, PATCHING)


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


@top_k("Keep the token whose logit equals the k-th largest: >=, not >.", broken=ONE)
def kth_dropped(self: Solution, logits: Array, top_k: int) -> Array:
    """The k-th largest logit is dropped, too: logits > threshold."""
    return Solution.top_k_tokens(self, logits, top_k - 1)


@mistake(
    Solution.next_token_probabilities,
    PROBABILITIES,
    "Return the probabilities in the order of the vocabulary: result = np.zeros(V), then result[order] = ...",
)
def sorted_order_returned(self: Solution, logits: Array, temperature: float, top_k: int, top_p: float) -> Array:
    """The probabilities are in sorted order, the largest first: the first one belongs to another token."""
    return -np.sort(-Solution.next_token_probabilities(self, logits, temperature, top_k, top_p))


@mistake(
    Solution.next_token_probabilities,
    PROBABILITIES,
    "Return V probabilities in the order of the vocabulary: begin with np.zeros(len(logits)).",
)
def kept_tokens_only(self: Solution, logits: Array, temperature: float, top_k: int, top_p: float) -> Array:
    """Only the probabilities of the top_k tokens are returned, in sorted order: the other tokens are missing."""
    return -np.sort(-Solution.next_token_probabilities(self, logits, temperature, top_k, top_p))[:top_k]


@mistake(
    Solution.next_token_probabilities, SAMPLING_ORDER, "Keep the top_k largest logits first, then use top_p."
)
def top_p_before_top_k(self: Solution, logits: Array, temperature: float, top_k: int, top_p: float) -> Array:
    """The set for top_p is chosen from the probabilities of all tokens, not of the top_k tokens."""
    probabilities = self.softmax(self.heat(logits, temperature))
    return self.renormalize(
        probabilities * self.top_p_tokens(probabilities, top_p) * self.top_k_tokens(logits, top_k)
    )


@mistake(Solution.next_token_probabilities, SAMPLING_ORDER, "Divide the logits by the temperature first.")
def temperature_last(self: Solution, logits: Array, temperature: float, top_k: int, top_p: float) -> Array:
    """The temperature is applied last, so top_p chooses from the probabilities of temperature 1."""
    kept = Solution.next_token_probabilities(self, logits, 1.0, top_k, top_p) > 0
    return self.softmax(np.where(kept, self.heat(logits, temperature), -np.inf))


@top_p("Sort by probability in descending order, the most likely token first.", rounded=ALL_KEPT, broken=ONE)
def least_likely_first(self: Solution, probabilities: Array, top_p: float) -> Array:
    """The probabilities are sorted in ascending order: the least likely tokens are kept."""
    order = np.argsort(probabilities)
    return np.asarray(np.cumsum(probabilities[order]) <= top_p)[np.argsort(order)]


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


@mistake(Solution.patching_effect, PATCHING, "Average each logit over the inputs first, then divide.")
def mean_of_ratios(self: Solution, clean: Array, corrupt: Array, patched: Array) -> Array:
    """The effect of each input is calculated first and averaged then: inputs with a small difference dominate."""
    return np.asarray(self.effect(clean, corrupt, patched).mean(-1))


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
