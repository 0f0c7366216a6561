"""Mistakes in greedy search and beam search."""

import numpy as np

from regard.course.mistakes.solution import Hypothesis, Solution, Step
from regard.course.mistakes.transformer_solution import Array

GREEDY = "Greedy search: the most likely next token after the tokens so far, until the end token"
BEAM = "Sutskever et al. 2014, section 3.2: the beam keeps the most likely hypotheses among all continuations"
LENGTH = "Wu et al. 2016, section 7: hypotheses are divided by a power of their length before they are compared"
TOKENS = "This exercise's stub: without the start token, with the end token"
LONGEST = "This exercise's stub: stop after `longest` tokens"


class Unlikeliest(Solution, paper=GREEDY):
    """The least likely token is chosen: argmin, or argmax of negative log-probabilities."""

    instead = "Choose the largest log-probability, the one closest to 0."

    def choose_token(self, log_probabilities: Array) -> int:
        return int(np.argmin(log_probabilities))

    def token_gains(self, log_probabilities: Array) -> Array:
        return -log_probabilities


class OnlyLastToken(Solution, paper=GREEDY):
    """The model receives only the last token and not the tokens before it."""

    instead = "Call `step` with all tokens so far, beginning with the start token."

    def step_input(self, tokens: list[int]) -> list[int]:
        return tokens[-1:]


class WithoutStart(Solution, paper=GREEDY):
    """The model is called without the start token."""

    instead = "Call `step` with all tokens so far, beginning with the start token."

    def step_input(self, tokens: list[int]) -> list[int]:
        return tokens[1:] or tokens


class NeverEnds(Solution, paper=GREEDY):
    """The search continues after the end token."""

    instead = "Stop at the end token. In a beam, do not continue a hypothesis that ends in it."

    def is_end(self, token: int, end: int) -> bool:
        return False

    def is_finished(self, tokens: list[int], end: int) -> bool:
        return False


class StartIncluded(Solution, paper=TOKENS):
    """The answer begins with the start token."""

    instead = "Return the tokens after the start token."

    def strip_tokens(self, tokens: list[int], start: int, end: int) -> list[int]:
        return tokens


class EndDropped(Solution, paper=TOKENS):
    """The end token is missing from the answer."""

    instead = "Return the end token too if it was reached."

    def strip_tokens(self, tokens: list[int], start: int, end: int) -> list[int]:
        return [token for token in tokens[1:] if token != end]


class OneTooFew(Solution, paper=LONGEST):
    """The search stops one token before `longest`, for example because it counts the start token."""

    instead = "Return up to `longest` tokens, not counting the start token."

    def token_limit(self, longest: int) -> int:
        return longest - 1


class OneTooMany(Solution, paper=LONGEST):
    """The search returns one token more than `longest`."""

    instead = "Return at most `longest` tokens."

    def token_limit(self, longest: int) -> int:
        return longest + 1


class BeamOfOne(Solution, paper=BEAM):
    """The beam keeps one hypothesis, so it is greedy search."""

    instead = "Keep the `width` best hypotheses after every step."

    def select_top(self, candidates: list[Hypothesis], width: int, parents: list[int]) -> list[Hypothesis]:
        return super().select_top(candidates, 1, parents)


class EachKeepsItsBest(Solution, paper=BEAM):
    """Each hypothesis keeps its own best continuation: hypotheses do not compete with each other."""

    instead = "Sort the continuations of all hypotheses together, and keep the `width` best."

    def select_top(self, candidates: list[Hypothesis], width: int, parents: list[int]) -> list[Hypothesis]:
        if len(set(parents)) == 1:
            return super().select_top(candidates, width, parents)
        best = []
        for parent in sorted(set(parents)):
            children = [c for c, owner in zip(candidates, parents, strict=True) if owner == parent]
            best.append(max(children, key=lambda candidate: candidate[0]))
        return super().select_top(best, width, parents)


class PrunedByFigure(Solution, paper=f"{BEAM}; this exercise's stub: the length counts for the answer"):
    """The beam is pruned by sums divided by the length: short hypotheses lose their places to longer ones."""

    instead = "Keep the largest sums of log-probabilities; divide by length ** alpha only to choose the answer."

    def prune(
        self, candidates: list[Hypothesis], width: int, parents: list[int], alpha: float
    ) -> list[Hypothesis]:
        figures = [self.normalize_length(total, len(tokens) - 1, alpha) for total, tokens in candidates]
        order = sorted(range(len(candidates)), key=lambda index: -figures[index])
        return [candidates[index] for index in order[:width]]


class ProbabilitiesAdded(Solution, paper=BEAM):
    """Probabilities are added instead of log-probabilities: two likely tokens beat one certain token."""

    instead = "Add the log-probabilities that `step` returns: the log of a product is a sum of logs."

    def token_gains(self, log_probabilities: Array) -> Array:
        return np.exp(log_probabilities)


class LengthNotDivided(Solution, paper=LENGTH):
    """The hypotheses are compared without dividing by their length, so short ones win."""

    instead = "Divide the log-probability by length ** alpha before you choose the best."

    def normalize_length(self, total: float, length: int, alpha: float) -> float:
        return total


class LengthMultiplied(Solution, paper=LENGTH):
    """The log-probability is multiplied by length ** alpha, which makes long hypotheses worse."""

    instead = "Divide by length ** alpha: log-probabilities are negative."

    def normalize_length(self, total: float, length: int, alpha: float) -> float:
        return total * length**alpha


class StartCounted(Solution, paper=LENGTH):
    """The length includes the start token."""

    instead = "Count only the tokens of the answer."

    def normalize_length(self, total: float, length: int, alpha: float) -> float:
        return super().normalize_length(total, length + 1, alpha)


class AlphaIgnored(Solution, paper=LENGTH):
    """The log-probability is divided by the length itself, whatever alpha is."""

    instead = "Divide by length ** alpha."

    def normalize_length(self, total: float, length: int, alpha: float) -> float:
        return total / length


class FirstToEnd(Solution, paper=BEAM):
    """The search stops when the first hypothesis ends, even if an unfinished one is better."""

    instead = "Continue until all hypotheses of the beam have ended, or `longest` is reached."

    def is_done(self, beam: list[Hypothesis], end: int) -> bool:
        return any(self.is_finished(tokens, end) for _, tokens in beam)

    def select_answer(self, beam: list[Hypothesis], alpha: float, end: int) -> Hypothesis:
        ended = [hypothesis for hypothesis in beam if self.is_finished(hypothesis[1], end)]
        return super().select_answer(ended or beam, alpha, end)


class EndedDropped(Solution, paper=f"{BEAM}; this exercise's stub: it keeps competing for its place"):
    """A hypothesis that has ended is skipped in the next step, and its answer is lost."""

    instead = "Put it back among the candidates unchanged, so that it competes for its place in the beam."

    def keep_finished(self, hypothesis: Hypothesis) -> list[Hypothesis]:
        return []


class EndedAside(Solution, paper=f"{BEAM}; this exercise's stub: it keeps competing for its place"):
    """Finished hypotheses are put aside, and the beam is filled up with others that did not belong in it."""

    instead = "Leave it in the beam, where it occupies one of the `width` places."

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
    """Finished hypotheses are put aside, and the answer is one of them if there are any, even if a better one is
    unfinished.
    """

    instead = "Leave them in the beam, and choose among all hypotheses of the beam."

    def select_answer(self, beam: list[Hypothesis], alpha: float, end: int) -> Hypothesis:
        return super().select_answer([] if self.aside else beam, alpha, end)


class ChosenBySum(Solution, paper=LENGTH):
    """The answer is the hypothesis with the largest sum, although its figure is divided by the length."""

    instead = "Divide all sums first, then choose the largest figure."

    def select_answer(self, beam: list[Hypothesis], alpha: float, end: int) -> Hypothesis:
        total, tokens = max(beam, key=lambda hypothesis: hypothesis[0])
        return self.normalize_length(total, len(tokens) - 1, alpha), tokens


class LastOfBeam(Solution, paper=BEAM):
    """The worst hypothesis of the beam is returned."""

    instead = "Return the hypothesis with the largest figure."

    def select_answer(self, beam: list[Hypothesis], alpha: float, end: int) -> Hypothesis:
        ranked = [(self.normalize_length(total, len(tokens) - 1, alpha), tokens) for total, tokens in beam]
        return min(ranked, key=lambda hypothesis: hypothesis[0])
