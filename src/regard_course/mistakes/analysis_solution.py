"""The correct solution to the exercises on the logit lens, sinks, grokking and doubt."""

import numpy as np

from regard_course.mistakes.language_solution import ExplanationSolution
from regard_course.mistakes.transformer_solution import Array


class AnalysisSolution(ExplanationSolution):
    """The logit lens, a softmax with a sink, Fourier components, and the measures of doubt."""

    def lens_states(self, states: Array) -> Array:
        """Return the states that the lens reads: those of the residual stream."""
        return states

    def lens_norm(self, states: Array, norm: Array) -> Array:
        """Return the states as the output layer receives them."""
        return self.rms_norm(states, norm)

    def token_logits(self, states: Array, output: Array) -> Array:
        """Return the logits of all tokens."""
        return states @ output.T

    def logit_lens(self, states: Array, norm: Array, output: Array) -> Array:
        """Return the probabilities that the output layer reads in the state of each layer.

        states (L, T, D): the residual stream before the first block, and after each block; norm (D,): the gain of
        the final norm, x / √(mean(x²) + 1e-5) * norm for each state x, as in exercise 20 (rms_norm);
        output (V, D): a row for each token. The scores of the tokens are norm(x) @ outputᵀ, followed by a
        softmax. Returns (L, T, V); the last layer is the model's own prediction.
        """
        return self.softmax(self.token_logits(self.lens_norm(self.lens_states(states), norm), output))

    def largest_score(self, scores: Array, sink: Array) -> Array:
        """Return what is subtracted from the scores and the sink (B, H, Tq, 1), so that exp stays small."""
        return np.maximum(scores.max(-1, keepdims=True), sink[:, None, None])

    def place_sink(self, sink: Array) -> Array:
        """Return the sink of each head with the dimensions of the scores, (H, 1, 1)."""
        return sink[:, None, None]

    def sink_shift(self, largest: Array) -> Array:
        """Return what is subtracted from the sink: the same as from the scores."""
        return largest

    def sink_power(self, sink: Array, largest: Array) -> Array:
        """Return the exp of the sink, which can be added to the sum of a row."""
        return np.exp(self.place_sink(sink) - self.sink_shift(largest))

    def numerator(self, powers: Array, sink_power: Array) -> Array:
        """Return the numerators of the weights."""
        return powers

    def row_total(self, powers: Array) -> Array:
        """Return the sum of each row."""
        return np.asarray(powers.sum(-1, keepdims=True))

    def without_sink(self, weights: Array, sink_weight: Array) -> Array:
        """Return the weights on the keys: the rest went to the sink."""
        return weights

    def sink_softmax(self, scores: Array, sink: Array) -> Array:
        """Return the weights of a softmax with a sink: exp(s_j) / (exp(a) + Σ_k exp(s_k)).

        scores (B, H, Tq, Tk); sink (H,): the score a of each head's sink, which has no value. With a = 0 this is
        softmax-off-by-one. Scores may be as large as 1000. Returns (B, H, Tq, Tk); a row sums to less than 1.
        """
        largest = self.largest_score(scores, sink)
        powers, sink_power = np.exp(scores - largest), self.sink_power(sink, largest)
        total = self.row_total(powers) + sink_power
        return self.without_sink(self.numerator(powers, sink_power) / total, sink_power / total)

    def centered_embeddings(self, embeddings: Array) -> Array:
        """Return the embeddings that are transformed: they keep their mean."""
        return embeddings

    def transform(self, embeddings: Array) -> Array:
        """Return the discrete Fourier transform over the tokens (p, D), complex."""
        return np.asarray(np.fft.fft(embeddings, axis=0))

    def power(self, components: Array) -> Array:
        """Return the squared length of each component (p,)."""
        return np.asarray((np.abs(components) ** 2).sum(-1))

    def fold(self, power: Array) -> Array:
        """Add the power of k and of p - k: (p // 2 + 1,)."""
        count = len(power)
        folded = power[: count // 2 + 1].copy()
        folded[1 : (count + 1) // 2] *= 2  # neither the constant nor, for an even p, the last frequency is a pair
        return np.asarray(folded)

    def share(self, power: Array) -> Array:
        """Return the shares of the whole power."""
        return power / power.sum()

    def fourier_power(self, embeddings: Array) -> Array:
        """Return the share of each frequency in the embeddings of the numbers 0 to p - 1.

        embeddings (p, D). Take the discrete Fourier transform over the numbers, for each dimension; the power of
        a component is its squared magnitude, summed over the dimensions. The components k and p - k are the same
        frequency: add them. Returns (p // 2 + 1,): the shares of the frequencies 0 (the mean), 1, ..., p // 2,
        which sum to 1.
        """
        return self.share(self.fold(self.power(self.transform(self.centered_embeddings(embeddings)))))

    def source_mass(self, attention: Array) -> Array:
        """Return the attention on each source token (Ts,)."""
        return np.asarray(attention.mean((0, 1)))

    def distance(self, mass: Array) -> float:
        """Return the least mass that has to move to make the attention uniform."""
        return float(np.abs(mass - 1 / len(mass)).sum() / 2)

    def distance_from_uniform(self, attention: Array) -> Array:
        """Return the Wasserstein distance of a translation's attention from uniform attention.

        attention (H, Tt, Ts): weights of H heads, a row for each token of the translation. First take the mean
        over heads and rows: a distribution over the source. Moving mass from one token to any other costs 1 per
        unit, so the distance is Σ |mass_s - 1/Ts| / 2. Returns one number, from 0 to 1.
        """
        return np.array(self.distance(self.source_mass(attention)))

    def wins(self, fault: Array, good: Array) -> Array:
        """Return 1 for each pair in which the fault has more doubt, 0.5 for a tie, else 0."""
        return (fault > good) + 0.5 * (fault == good)

    def count_pairs(self, faults: int, good: int) -> float:
        """Return the number of pairs."""
        return faults * good

    def auroc(self, doubts: Array, faulty: Array) -> Array:
        """Return the probability that a faulty translation has more doubt than a good one.

        doubts (N,); faulty (N,): 1 for a faulty translation, 0 for a good one. Compare each faulty translation
        with each good one; a tie counts half. Returns one number: 1 is a perfect order, 0.5 is chance.
        """
        fault, good = doubts[faulty == 1], doubts[faulty == 0]
        return np.array(self.wins(fault[:, None], good[None]).sum() / self.count_pairs(len(fault), len(good)))
