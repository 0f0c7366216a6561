"""Mistakes in greedy search and beam search."""

import numpy as np

from regard_course.mistakes.solution import Hypothesis, Solution, Step, mistake, mistakes_in
from regard_course.mistakes.transformer_solution import Array

GREEDY = "Greedy search: the most likely next token after the tokens so far, until the end token"
BEAM = "Sutskever et al. 2014, section 3.2: the beam keeps the most likely hypotheses among all continuations"
LENGTH = "Wu et al. 2016, section 7: hypotheses are divided by a power of their length before they are compared"
TOKENS = "This exercise's stub: without the start token, with the end token"
LONGEST = "This exercise's stub: stop after `longest` tokens"
step_input = mistakes_in(Solution.step_input, GREEDY)
strip_tokens = mistakes_in(Solution.strip_tokens, TOKENS)
token_limit = mistakes_in(Solution.token_limit, LONGEST)
select_top = mistakes_in(Solution.select_top, BEAM)
normalize_length = mistakes_in(Solution.normalize_length, LENGTH)


class Unlikeliest(Solution, paper=GREEDY):
    """The least likely token is chosen: argmin, or argmax of negative log-probabilities."""

    instead = "Choose the largest log-probability, which is closest to 0."

    def choose_token(self, log_probabilities: Array) -> int:
        return int(np.argmin(log_probabilities))

    def token_gains(self, log_probabilities: Array) -> Array:
        return -log_probabilities


@step_input("Call `step` with all tokens so far, beginning with the start token.")
def only_last_token(self: Solution, tokens: list[int]) -> list[int]:
    """The model receives only the last token and not the tokens before it."""
    return tokens[-1:]


@step_input("Call `step` with all tokens so far, beginning with the start token.")
def without_start(self: Solution, tokens: list[int]) -> list[int]:
    """The model is called without the start token."""
    return tokens[1:] or tokens


class NeverEnds(Solution, paper=GREEDY):
    """The search continues after the end token."""

    instead = "Stop at the end token. In a beam, do not continue a hypothesis that ends with the end token."

    def is_end(self, token: int, end: int) -> bool:
        return False

    def is_finished(self, tokens: list[int], end: int) -> bool:
        return False


@strip_tokens("Return the tokens after the start token.")
def start_included(self: Solution, tokens: list[int], start: int, end: int) -> list[int]:
    """The answer begins with the start token."""
    return tokens


@strip_tokens("Return the end token too if it was reached.")
def end_dropped(self: Solution, tokens: list[int], start: int, end: int) -> list[int]:
    """The end token is missing from the answer."""
    return [token for token in tokens[1:] if token != end]


@token_limit("Return up to `longest` tokens, not counting the start token.")
def one_too_few(self: Solution, longest: int) -> int:
    """The search stops one token before `longest`, for example because it counts the start token."""
    return longest - 1


@token_limit("Return at most `longest` tokens.")
def one_too_many(self: Solution, longest: int) -> int:
    """The search returns one token more than `longest`."""
    return longest + 1


@select_top("Keep the `width` best hypotheses after every step.")
def beam_of_one(self: Solution, candidates: list[Hypothesis], width: int, parents: list[int]) -> list[Hypothesis]:
    """The beam keeps one hypothesis, so it is greedy search."""
    return Solution.select_top(self, candidates, 1, parents)


@select_top("Sort the continuations of all hypotheses together, and keep the `width` best.")
def each_keeps_its_best(
    self: Solution, candidates: list[Hypothesis], width: int, parents: list[int]
) -> list[Hypothesis]:
    """Each hypothesis keeps its own best continuation: hypotheses do not compete with each other."""
    if len(set(parents)) == 1:
        return Solution.select_top(self, candidates, width, parents)
    best = []
    for parent in sorted(set(parents)):
        children = [c for c, owner in zip(candidates, parents, strict=True) if owner == parent]
        best.append(max(children, key=lambda candidate: candidate[0]))
    return Solution.select_top(self, best, width, parents)


@mistake(
    Solution.prune,
    f"{BEAM}; this exercise's stub: the length affects only the choice of the answer",
    "Keep the largest sums of log-probabilities; divide by length ** alpha only to choose the answer.",
)
def pruned_by_score(
    self: Solution, candidates: list[Hypothesis], width: int, parents: list[int], alpha: float
) -> list[Hypothesis]:
    """The beam is pruned by sums divided by the length: short hypotheses lose their places to longer
    hypotheses."""
    scores = [self.normalize_length(total, len(tokens) - 1, alpha) for total, tokens in candidates]
    order = sorted(range(len(candidates)), key=lambda index: -scores[index])
    return [candidates[index] for index in order[:width]]


@mistake(
    Solution.token_gains,
    BEAM,
    "Add the log-probabilities that `step` returns: the log of a product is a sum of logs.",
)
def probabilities_added(self: Solution, log_probabilities: Array) -> Array:
    """Probabilities are added instead of log-probabilities: two likely tokens beat one certain token."""
    return np.exp(log_probabilities)


@normalize_length("Divide the log-probability by length ** alpha before you choose the best.")
def length_not_divided(self: Solution, total: float, length: int, alpha: float) -> float:
    """The hypotheses are compared without dividing by their length, so short hypotheses win."""
    return total


@normalize_length("Divide by length ** alpha: log-probabilities are negative.")
def length_multiplied(self: Solution, total: float, length: int, alpha: float) -> float:
    """The log-probability is multiplied by length ** alpha, which makes long hypotheses worse."""
    return total * length**alpha


@normalize_length("Count only the tokens of the answer.")
def start_counted(self: Solution, total: float, length: int, alpha: float) -> float:
    """The length includes the start token."""
    return Solution.normalize_length(self, total, length + 1, alpha)


@normalize_length("Divide by length ** alpha.")
def alpha_ignored(self: Solution, total: float, length: int, alpha: float) -> float:
    """The log-probability is divided by the length itself, whatever alpha is."""
    return total / length


class FirstToEnd(Solution, paper=BEAM):
    """The search stops when the first hypothesis ends, even if an unfinished hypothesis is better."""

    instead = "Continue until all hypotheses of the beam have ended, or `longest` is reached."

    def is_done(self, beam: list[Hypothesis], end: int) -> bool:
        return any(self.is_finished(tokens, end) for _, tokens in beam)

    def select_answer(self, beam: list[Hypothesis], alpha: float, end: int) -> Hypothesis:
        ended = [hypothesis for hypothesis in beam if self.is_finished(hypothesis[1], end)]
        return super().select_answer(ended or beam, alpha, end)


class FirstEndStops(Solution, paper=BEAM):
    """The search stops when the first hypothesis ends, and chooses among all hypotheses of the beam."""

    instead = "Continue until all hypotheses of the beam have ended, or `longest` is reached."

    def is_done(self, beam: list[Hypothesis], end: int) -> bool:
        return any(self.is_finished(tokens, end) for _, tokens in beam)


@normalize_length("Divide by length ** alpha, as this exercise's stub says.")
def penalty_of_wu(self: Solution, total: float, length: int, alpha: float) -> float:
    """The length penalty is ((5 + length) / 6) ** alpha, that of Wu et al. 2016."""
    return float(total / ((5 + length) / 6) ** alpha)


@mistake(Solution.select_answer, LENGTH, "Return the score that the hypotheses were compared by.")
def sum_returned(self: Solution, beam: list[Hypothesis], alpha: float, end: int) -> Hypothesis:
    """The answer has the largest score, but its sum of log-probabilities is returned instead of this score."""
    return max(beam, key=lambda pair: self.normalize_length(pair[0], len(pair[1]) - 1, alpha))


@mistake(
    Solution.keep_finished,
    f"{BEAM}; this exercise's stub: a finished hypothesis keeps competing",
    "Add a finished hypothesis to the candidates unchanged, so that it competes for its place in the beam.",
)
def ended_dropped(self: Solution, hypothesis: Hypothesis) -> list[Hypothesis]:
    """A hypothesis that has ended is skipped in the next step, and its answer is lost."""
    return []


class EndedAside(Solution, paper=f"{BEAM}; this exercise's stub: a finished hypothesis keeps competing"):
    """Finished hypotheses are put aside, and worse hypotheses take their places in the beam."""

    instead = "Leave a finished hypothesis in the beam, where it occupies one of the `width` places."

    def prune(
        self, candidates: list[Hypothesis], width: int, parents: list[int], alpha: float
    ) -> list[Hypothesis]:
        beam = super().prune(candidates, width, parents, alpha)
        self.aside += [hypothesis for hypothesis in beam if self.is_finished(hypothesis[1], self.end)]
        return [hypothesis for hypothesis in beam if not self.is_finished(hypothesis[1], self.end)]

    def is_done(self, beam: list[Hypothesis], end: int) -> bool:
        return not beam

    def select_answer(self, beam: list[Hypothesis], alpha: float, end: int) -> Hypothesis:
        return super().select_answer(self.aside + beam, alpha, end)

    def beam_search(
        self, step: Step, start: int, end: int, width: int, longest: int, alpha: float
    ) -> tuple[Array, ...]:
        self.aside: list[Hypothesis] = []
        self.end = end
        return super().beam_search(step, start, end, width, longest, alpha)


class OnlyEndedCount(EndedAside):
    """Finished hypotheses are put aside. The answer is a finished hypothesis if there are any, even if an
    unfinished hypothesis is better."""

    instead = "Leave finished hypotheses in the beam, and choose among all hypotheses of the beam."

    def select_answer(self, beam: list[Hypothesis], alpha: float, end: int) -> Hypothesis:
        return super().select_answer([] if self.aside else beam, alpha, end)


@mistake(Solution.select_answer, LENGTH, "Divide all sums first, then choose the largest score.")
def chosen_by_sum(self: Solution, beam: list[Hypothesis], alpha: float, end: int) -> Hypothesis:
    """The answer is the hypothesis with the largest sum, although its score is divided by the length."""
    total, tokens = max(beam, key=lambda hypothesis: hypothesis[0])
    return self.normalize_length(total, len(tokens) - 1, alpha), tokens


@mistake(Solution.select_answer, BEAM, "Return the hypothesis with the largest score.")
def worst_of_beam(self: Solution, beam: list[Hypothesis], alpha: float, end: int) -> Hypothesis:
    """The worst hypothesis of the beam is returned."""
    ranked = [(self.normalize_length(total, len(tokens) - 1, alpha), tokens) for total, tokens in beam]
    return min(ranked, key=lambda hypothesis: hypothesis[0])
