"""Usual mistakes in searches."""

from collections.abc import Callable

import numpy as np

from regard.course.mistakes.solution import Hypothesis, Solution
from regard.course.mistakes.transformer_solution import Array

GREEDY = "Greedy search: after the tokens so far, the likeliest next one, until the end token"
BEAM = "Sutskever et al. 2014, section 3.2: all continuations, of which the beam keeps the likeliest hypotheses"
LENGTH = (
    "Wu et al. 2016, section 7: hypotheses of several lengths are compared after division by a power of "
    "the length"
)


class Unlikeliest(Solution):
    """The least likely token is taken: argmin, or argmax of negative log-probabilities."""

    instead = "Take the largest log-probability: the one next to 0."
    paper = GREEDY

    def choose_token(self, chances: Array) -> int:
        return int(np.argmin(chances))

    def token_gains(self, chances: Array) -> Array:
        return -chances


class OnlyLastToken(Solution):
    """The model is asked about the last token alone: it forgets what it wrote before."""

    instead = "Give `step` all tokens so far, from the start token on."
    paper = GREEDY

    def step_input(self, tokens: list[int]) -> list[int]:
        return tokens[-1:]


class WithoutStart(Solution):
    """The model is asked without the start token."""

    instead = "Give `step` all tokens so far, the start token first."
    paper = GREEDY

    def step_input(self, tokens: list[int]) -> list[int]:
        return tokens[1:] or tokens


class NeverEnds(Solution):
    """The search goes on after the end token."""

    instead = "Stop at the end token; in a beam, a hypothesis that ends in it is not continued."
    paper = GREEDY

    def is_end(self, token: int, end: int) -> bool:
        return False

    def is_finished(self, tokens: list[int], end: int) -> bool:
        return False


class StartIncluded(Solution):
    """The answer begins with the start token."""

    instead = "Return what comes after the start token."
    paper = "This exercise's stub: without the start token, with the end token"

    def strip_tokens(self, tokens: list[int], start: int, end: int) -> list[int]:
        return tokens


class EndDropped(Solution):
    """The end token is missing from the answer."""

    instead = "Return the end token too, where it was reached."
    paper = "This exercise's stub: without the start token, with the end token"

    def strip_tokens(self, tokens: list[int], start: int, end: int) -> list[int]:
        return [token for token in tokens[1:] if token != end]


class OneTooFew(Solution):
    """The search stops one token before `longest`, as where the start token is counted."""

    instead = "Find `longest` tokens at most, the start token not counted."
    paper = "This exercise's stub: longest counts the tokens of the answer"

    def token_limit(self, longest: int) -> int:
        return longest - 1


class OneTooMany(Solution):
    """The search goes one token past `longest`."""

    instead = "Find `longest` tokens at most."
    paper = "This exercise's stub: longest counts the tokens of the answer"

    def token_limit(self, longest: int) -> int:
        return longest + 1


class BeamOfOne(Solution):
    """The beam keeps one hypothesis: it is greedy search."""

    instead = "Keep the `width` best hypotheses after every step."
    paper = BEAM

    def select_top(self, found: list[Hypothesis], width: int, parents: list[int]) -> list[Hypothesis]:
        return super().select_top(found, 1, parents)


class EachKeepsItsBest(Solution):
    """Each hypothesis keeps its own best continuation: hypotheses never compete with each other."""

    instead = "Sort the continuations of all hypotheses together, and keep the `width` best of them all."
    paper = BEAM

    def select_top(self, found: list[Hypothesis], width: int, parents: list[int]) -> list[Hypothesis]:
        if len(set(parents)) == 1:
            return super().select_top(found, width, parents)
        best = []
        for each in sorted(set(parents)):
            best.append(
                max((f for f, parent in zip(found, parents, strict=True) if parent == each), key=lambda f: f[0])
            )
        return super().select_top(best, width, parents)


class PrunedByFigure(Solution):
    """The beam is pruned by what is divided by the length: a short hypothesis loses its place to longer ones."""

    instead = "Keep the largest sums of log-probabilities; divide by length ** alpha for the last choice alone."
    paper = f"{BEAM}; this exercise's stub: the length counts for the answer"

    def prune(self, found: list[Hypothesis], width: int, parents: list[int], alpha: float) -> list[Hypothesis]:
        figures = [self.normalise_length(total, len(tokens) - 1, alpha) for total, tokens in found]
        order = sorted(range(len(found)), key=lambda each: -figures[each])
        return [found[each] for each in order[:width]]


class ProbabilitiesAdded(Solution):
    """Probabilities are added up where log-probabilities should be: two likely tokens beat one certain one."""

    instead = "Add the log-probabilities as `step` gives them: a product of probabilities is a sum of logs."
    paper = BEAM

    def token_gains(self, chances: Array) -> Array:
        return np.exp(chances)


class LengthNotDivided(Solution):
    """The hypotheses are compared without regard to length, so short ones win."""

    instead = "Divide the log-probability by length ** alpha before the best is chosen."
    paper = LENGTH

    def normalise_length(self, total: float, length: int, alpha: float) -> float:
        return total


class LengthMultiplied(Solution):
    """The log-probability is multiplied by length ** alpha: long hypotheses get worse still."""

    instead = "Divide by length ** alpha: log-probabilities are negative."
    paper = LENGTH

    def normalise_length(self, total: float, length: int, alpha: float) -> float:
        return total * length**alpha


class StartCounted(Solution):
    """The start token is counted in the length."""

    instead = "Count the tokens of the answer only."
    paper = LENGTH

    def normalise_length(self, total: float, length: int, alpha: float) -> float:
        return super().normalise_length(total, length + 1, alpha)


class AlphaIgnored(Solution):
    """The log-probability is divided by the length itself, whatever alpha is."""

    instead = "Divide by length ** alpha."
    paper = LENGTH

    def normalise_length(self, total: float, length: int, alpha: float) -> float:
        return total / length


class FirstToEnd(Solution):
    """The search stops when the first hypothesis ends, though a better one is under way."""

    instead = "Go on until all hypotheses of the beam have ended, or `longest` is reached."
    paper = BEAM

    def is_done(self, beam: list[Hypothesis], end: int) -> bool:
        return any(self.is_finished(tokens, end) for _, tokens in beam)

    def select_answer(self, beam: list[Hypothesis], alpha: float, end: int) -> Hypothesis:
        ended = [each for each in beam if self.is_finished(each[1], end)]
        return super().select_answer(ended or beam, alpha, end)


class EndedDropped(Solution):
    """A hypothesis that has ended is skipped in the next step, and lost with its answer."""

    instead = "Put it back among the continuations as it is: it competes for its place in the beam."
    paper = f"{BEAM}; this exercise's stub: one that has ended stays as it is"

    def keep_finished(self, hypothesis: Hypothesis) -> list[Hypothesis]:
        return []


class EndedAside(Solution):
    """Hypotheses that have ended are put aside, and the beam goes on with as many others as it is wide: what was
    out of it comes back into the search."""

    instead = "Leave it in the beam, where it takes one of the `width` places."
    paper = f"{BEAM}; this exercise's stub: one that has ended takes its place in the beam"

    def prune(self, found: list[Hypothesis], width: int, parents: list[int], alpha: float) -> list[Hypothesis]:
        beam = super().prune(found, width, parents, alpha)
        self.aside += [each for each in beam if self.is_finished(each[1], self.end)]
        return [each for each in beam if not self.is_finished(each[1], self.end)]

    def is_done(self, beam: list[Hypothesis], end: int) -> bool:
        return not beam

    def select_answer(self, beam: list[Hypothesis], alpha: float, end: int) -> Hypothesis:
        return super().select_answer(self.aside + beam, alpha, end)

    def beam_search(
        self, step: Callable[[list[int]], Array], start: int, end: int, width: int, longest: int, alpha: float
    ) -> tuple[Array, ...]:
        self.aside: list[Hypothesis] = []
        self.end = end
        return super().beam_search(step, start, end, width, longest, alpha)


class OnlyEndedCount(EndedAside):
    """Hypotheses that have ended are put aside, and where there are any the answer is one of them, whatever is
    still under way."""

    instead = "Leave them in the beam, and choose among all of it."

    def select_answer(self, beam: list[Hypothesis], alpha: float, end: int) -> Hypothesis:
        return super().select_answer([] if self.aside else beam, alpha, end)


class ChosenBySum(Solution):
    """The answer is the hypothesis with the largest sum, though its figure is divided by the length."""

    instead = "Divide all sums first, and choose the largest of what comes out."
    paper = LENGTH

    def select_answer(self, beam: list[Hypothesis], alpha: float, end: int) -> Hypothesis:
        total, tokens = max(beam, key=lambda each: each[0])
        return self.normalise_length(total, len(tokens) - 1, alpha), tokens


class LastOfBeam(Solution):
    """The worst hypothesis of the beam comes back."""

    instead = "Return the hypothesis with the largest figure."
    paper = BEAM

    def select_answer(self, beam: list[Hypothesis], alpha: float, end: int) -> Hypothesis:
        ranked = [(self.normalise_length(total, len(tokens) - 1, alpha), tokens) for total, tokens in beam]
        return min(ranked, key=lambda each: each[0])
