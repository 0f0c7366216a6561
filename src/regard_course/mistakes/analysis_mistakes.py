"""Mistakes in the logit lens, softmax with a sink, Fourier components, and measures of doubt."""

import numpy as np

from regard_course.mistakes.solution import Solution, mistake, mistakes_in
from regard_course.mistakes.transformer_solution import Array

LENS = "nostalgebraist 2020: the final norm and the output layer are applied to the state after each block"
SINK = "Miller 2023, 'Attention is off by one': exp(s_j) / (1 + Σ exp(s_k)); with a learned sink: exp(a) for 1"
FOURIER = (
    "Nanda et al. 2023, section 4.1: the Fourier transform over the input tokens, and norms of its components"
)
WASSERSTEIN = "Guerreiro et al. 2023, section 4.1: distance of the mean attention from the uniform distribution"
AUROC = "Fawcett 2006, section 7: the probability that a positive is ranked above a negative; a tie counts half"
LARGE = frozenset(["large scores"])
lens_states = mistakes_in(Solution.lens_states, LENS)
lens_norm = mistakes_in(Solution.lens_norm, LENS)
place_sink = mistakes_in(Solution.place_sink, SINK)
without_sink = mistakes_in(Solution.without_sink, SINK)
sink_power = mistakes_in(Solution.sink_power, SINK)
power = mistakes_in(Solution.power, FOURIER)
fold = mistakes_in(Solution.fold, FOURIER)
share = mistakes_in(Solution.share, FOURIER)
mass = mistakes_in(Solution.source_mass, WASSERSTEIN)
distance = mistakes_in(Solution.distance, WASSERSTEIN)
wins = mistakes_in(Solution.wins, AUROC)


@lens_states("Read every state, the embeddings first: the result has as many layers as the states.")
def embeddings_left_out(self: Solution, states: Array) -> Array:
    """The first row is missing: the lens begins after the first block."""
    return states[1:]


@lens_states("Read the states themselves. A difference is what one block adds, which is another method.")
def contributions_read(self: Solution, states: Array) -> Array:
    """What each block adds is read, instead of the state after it."""
    return np.concatenate([states[:1], np.diff(states, axis=0)])


@lens_states("Do not add the states: each state contains what all earlier blocks wrote.")
def states_summed(self: Solution, states: Array) -> Array:
    """The states are summed over the layers, as if each were only what a block adds."""
    return np.cumsum(states, axis=0)


@lens_norm("Apply the final norm to the states: the output layer was trained on normalized states.")
def no_final_norm(self: Solution, states: Array, norm: Array) -> Array:
    """The states reach the output layer without the final norm."""
    return states


@lens_norm("Divide each state by its own size.")
def size_of_the_last_state(self: Solution, states: Array, norm: Array) -> Array:
    """All layers are divided by the size of the last state: a frozen norm, as in attribution to parts."""
    return states / np.sqrt(self.squared_size(states[-1:]) + 1e-5) * norm


@mistake(Solution.token_logits, LENS, "A token is a row of the output layer: states @ output.T.")
def output_transposed(self: Solution, states: Array, output: Array) -> Array:
    """The output layer is transposed: the columns are read as tokens."""
    return states @ output


@mistake(
    Solution.largest_score,
    SINK,
    "Subtract the largest of the scores and the sink from all of them: the weights stay the same.",
    broken=LARGE,
)
def nothing_subtracted(self: Solution, scores: Array, sink: Array) -> Array:
    """exp of large scores overflows, or a whole row is 0, because the largest score of the row is not subtracted:
    the result is NaN."""
    return np.zeros_like(scores[..., :1])


@sink_power("Add exp of the sink to the sum of the row, and leave the sum of the weights below 1.", broken=LARGE)
def sink_ignored(self: Solution, sink: Array, largest: Array) -> Array:
    """The sink has no effect: it is not added to the sum, or the weights are divided by their sum again."""
    return np.zeros_like(largest)


@mistake(Solution.sink_shift, SINK, "Subtract the same number from the sink as from the scores: exp(a - m).")
def sink_not_shifted(self: Solution, largest: Array) -> Array:
    """The largest score is subtracted from the scores, but not from the sink: 1 or exp(a) is added as it is."""
    return 0 * largest


class OnlyScoresShifted(Solution, paper=SINK):
    """The largest score of the row is subtracted from the scores only, and exp of the sink is added as it is."""

    instead = "Subtract the same number from the sink as from the scores: exp(a - m)."

    def largest_score(self, scores: Array, sink: Array) -> Array:
        return np.asarray(scores.max(-1, keepdims=True))

    def sink_shift(self, largest: Array) -> Array:
        return 0 * largest


@place_sink("Take the score of each head's sink, not 0.")
def always_one(self: Solution, sink: Array) -> Array:
    """Every head's sink has the score 0: this is softmax-off-by-one, and the given scores are not used."""
    return np.zeros((len(sink), 1, 1))


@sink_power("Add exp(a), not a: the sink is a score.")
def sink_without_exp(self: Solution, sink: Array, largest: Array) -> Array:
    """The sink itself is added to the sum, without exp."""
    return self.place_sink(sink) * np.exp(-self.sink_shift(largest))


@place_sink("The sink belongs to a head: give it the shape (H, 1, 1).")
def sink_by_query(self: Solution, sink: Array) -> Array:
    """The sinks lie along the queries instead of the heads: the shape (H, 1) is read as (Tq, 1)."""
    return sink[:, None]


@place_sink("The sink belongs to a head: give it the shape (H, 1, 1), with sink[:, None, None].")
def sink_by_key(self: Solution, sink: Array) -> Array:
    """The sinks lie along the keys instead of the heads: the shape (H,) is read as (Tk,), so each key has its own
    sum."""
    return sink


@mistake(Solution.numerator, SINK, "Add the sink to the denominator only.")
def sink_in_the_numerator(self: Solution, powers: Array, sink_power: Array) -> Array:
    """The exp of the sink is added to each numerator, too."""
    return powers + sink_power


@mistake(Solution.row_total, SINK, "Sum over the keys, the last dimension.")
def total_over_queries(self: Solution, powers: Array) -> Array:
    """The sum is over the queries instead of the keys."""
    return np.asarray(powers.sum(-2, keepdims=True))


@mistake(Solution.row_total, SINK, "Sum over the keys only: sum(-1, keepdims=True).")
def total_of_everything(self: Solution, powers: Array) -> Array:
    """The sum has no axis, so it covers all rows, heads and sequences."""
    return np.asarray(powers.sum())


class SinkOverQueries(Solution, paper=SINK):
    """The softmax is over the queries instead of the keys, its largest score too."""

    instead = "Take the largest score and the sum over the keys, the last dimension."

    def largest_score(self, scores: Array, sink: Array) -> Array:
        return np.asarray(scores.max(-2, keepdims=True))

    def row_total(self, powers: Array) -> Array:
        return np.asarray(powers.sum(-2, keepdims=True))


@without_sink("Drop the last column, where the sink is: weights[..., :-1].")
def first_key_dropped(self: Solution, weights: Array, sink_weight: Array) -> Array:
    """The sink is the last column, but the first column is dropped: the weight of the first key is missing."""
    return np.concatenate([weights[..., 1:], sink_weight], -1)


@without_sink("Drop the first column, where the sink is: weights[..., 1:].")
def last_key_dropped(self: Solution, weights: Array, sink_weight: Array) -> Array:
    """The sink is the first column, but the last column is dropped: the weight of the last key is missing."""
    return np.concatenate([sink_weight, weights[..., :-1]], -1)


@without_sink("Drop the column of the sink after the softmax: it has no value.")
def sink_column_kept(self: Solution, weights: Array, sink_weight: Array) -> Array:
    """The weight of the sink is still there, as a last column."""
    return np.concatenate([weights, sink_weight], -1)


@mistake(Solution.centered_embeddings, FOURIER, "Keep the mean: it is the frequency 0.")
def mean_removed(self: Solution, embeddings: Array) -> Array:
    """The mean of the embeddings is subtracted first, so the frequency 0 has no power."""
    return embeddings - embeddings.mean(0)


@mistake(Solution.transform, FOURIER, "Transform over the numbers, axis 0: np.fft.fft takes the last axis.")
def transformed_over_width(self: Solution, embeddings: Array) -> Array:
    """The transform is over the width of the embeddings, the last axis, instead of over the numbers."""
    return np.asarray(np.fft.fft(embeddings, axis=1).T)


@power("Square the magnitude before the sum over the dimensions.")
def magnitudes_summed(self: Solution, components: Array) -> Array:
    """The magnitudes are summed without a square."""
    return np.asarray(np.abs(components).sum(-1))


@power("Use the magnitude, cosine and sine together: real² + imaginary².")
def cosine_only(self: Solution, components: Array) -> Array:
    """Only the real part is used: the sine of each frequency is lost."""
    return np.asarray((components.real**2).sum(-1))


@power("Sum the squares over the dimensions, not the components before the square.")
def dimensions_added_first(self: Solution, components: Array) -> Array:
    """The components of all dimensions are added before the square, so they cancel."""
    return np.asarray(np.abs(components.sum(-1)) ** 2)


@fold("Add the components k and p - k: they are the same frequency.")
def one_side_only(self: Solution, power: Array) -> Array:
    """Each frequency has only one of its two components, so the mean weighs too much."""
    return power[: len(power) // 2 + 1]


@fold("Neither the mean nor, for an even p, the frequency p / 2 has a partner: do not double them.")
def last_frequency_doubled(self: Solution, power: Array) -> Array:
    """All frequencies but the mean are doubled: for an even p, the frequency p / 2 has no partner."""
    return np.concatenate([power[:1], 2 * power[1 : len(power) // 2 + 1]])


@fold("Add the components k and p - k: p // 2 + 1 frequencies are left.")
def both_sides_kept(self: Solution, power: Array) -> Array:
    """All p components are returned: each frequency occurs twice."""
    return power


@share("Divide by the sum of all shares.")
def power_not_divided(self: Solution, power: Array) -> Array:
    """The power is not divided by its sum."""
    return power


@share("Divide by the sum, not by the largest.")
def divided_by_the_largest(self: Solution, power: Array) -> Array:
    """The power is divided by the largest power: the largest frequency has 1."""
    return power / power.max()


@mass("Take the mean over heads and rows, axes 0 and 1, so that the source is left.")
def mean_over_the_source(self: Solution, attention: Array) -> Array:
    """The mean is over the source: every row of weights has the mean 1 / Ts, so the attention seems uniform."""
    return np.asarray(attention.mean((0, 2)))


@mass("Divide by the number of rows: the mass sums to 1.")
def rows_summed(self: Solution, attention: Array) -> Array:
    """The rows are summed instead of averaged: the mass sums to the length of the translation."""
    return np.asarray(attention.mean(0).sum(0))


@mass("Use all rows of the translation.")
def last_row_only(self: Solution, attention: Array) -> Array:
    """Only the last row is used, that of the end of the translation."""
    return np.asarray(attention.mean(0)[-1])


@mass("Take the mean over all heads.")
def first_head_only(self: Solution, attention: Array) -> Array:
    """Only the first head is used."""
    return np.asarray(attention[0].mean(0))


@distance("Halve the sum: what is missing at one token is too much at another.")
def not_halved(self: Solution, mass: Array) -> float:
    """The sum is not halved: mass that moves is counted twice."""
    return float(np.abs(mass - 1 / len(mass)).sum())


@distance("Sum the absolute differences.")
def largest_difference(self: Solution, mass: Array) -> float:
    """The largest difference is returned instead of half the sum."""
    return float(np.abs(mass - 1 / len(mass)).max())


@distance("Use absolute differences, not squares.")
def squared_differences(self: Solution, mass: Array) -> float:
    """The differences are squared: this is no Wasserstein distance."""
    return float(((mass - 1 / len(mass)) ** 2).sum() / 2)


@mistake(Solution.distance_from_uniform, WASSERSTEIN, "Take the mean first: one distribution, one distance.")
def distance_of_each_row(self: Solution, attention: Array) -> Array:
    """Each row has its own distance, and the distances are averaged: a sharp row is far from uniform even if
    the rows together read everything."""
    rows = attention.mean(0)
    return np.array(np.mean([self.distance(row) for row in rows]))


@wins("A fault that has more doubt counts, not one that has less.")
def direction_reversed(self: Solution, fault: Array, good: Array) -> Array:
    """The direction is reversed: pairs in which the good translation has more doubt count."""
    return (fault < good) + 0.5 * (fault == good)


@wins("Count a tie as half: with equal doubts, a guess is right half of the time.")
def ties_lost(self: Solution, fault: Array, good: Array) -> Array:
    """A tie counts nothing: a doubt that is always the same gets 0, not 0.5."""
    return np.asarray(fault > good)


@wins("Count a tie as half: with equal doubts, a guess is right half of the time.")
def ties_won(self: Solution, fault: Array, good: Array) -> Array:
    """A tie counts as a whole: a doubt that is always the same gets 1, not 0.5."""
    return np.asarray(fault >= good)


@mistake(Solution.count_pairs, AUROC, "Divide by the number of pairs of a faulty and a good translation.")
def divided_by_all_pairs(self: Solution, faults: int, good: int) -> float:
    """The sum is divided by all pairs of translations, N², not only by those of a faulty and a good one."""
    return (faults + good) ** 2


@mistake(Solution.auroc, AUROC, "Equal doubts have equal ranks, the mean of their places.")
def ties_by_order(self: Solution, doubts: Array, faulty: Array) -> Array:
    """The ranks come from a sort, which gives equal doubts different ranks, in the order of the text."""
    ranks = np.argsort(np.argsort(doubts, kind="stable"))
    faults = int((faulty == 1).sum())
    least = faults * (faults - 1) / 2
    return np.array((ranks[faulty == 1].sum() - least) / (faults * (len(faulty) - faults)))
