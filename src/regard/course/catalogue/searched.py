"""Usual mistakes in searches."""

from collections.abc import Callable

import numpy as np

from regard.course.catalogue.stepwise import Hypothesis, Workings
from regard.course.catalogue.workings import Array

GREEDY = "Greedy search: after the tokens so far, the likeliest next one, until the end token"
BEAM = "Sutskever et al. 2014, section 3.2: all continuations, of which the beam keeps the likeliest hypotheses"
LENGTH = (
    "Wu et al. 2016, section 7: hypotheses of several lengths are compared after division by a power of "
    "the length"
)


class Unlikeliest(Workings):
    """The least likely token is taken: argmin, or argmax of negative log-probabilities."""

    instead = "Take the largest log-probability: the one next to 0."
    paper = GREEDY

    def choose(self, chances: Array) -> int:
        return int(np.argmin(chances))

    def worth(self, chances: Array) -> Array:
        return -chances


class OnlyLastToken(Workings):
    """The model is asked about the last token alone: it forgets what it wrote before."""

    instead = "Give `step` all tokens so far, from the start token on."
    paper = GREEDY

    def asked(self, tokens: list[int]) -> list[int]:
        return tokens[-1:]


class WithoutStart(Workings):
    """The model is asked without the start token."""

    instead = "Give `step` all tokens so far, the start token first."
    paper = GREEDY

    def asked(self, tokens: list[int]) -> list[int]:
        return tokens[1:] or tokens


class NeverEnds(Workings):
    """The search goes on after the end token."""

    instead = "Stop at the end token; in a beam, a hypothesis that ends in it is not continued."
    paper = GREEDY

    def ends(self, token: int, end: int) -> bool:
        return False

    def finished(self, tokens: list[int], end: int) -> bool:
        return False


class StartIncluded(Workings):
    """The answer begins with the start token."""

    instead = "Return what comes after the start token."
    paper = "This exercise's stub: without the start token, with the end token"

    def told(self, tokens: list[int], start: int, end: int) -> list[int]:
        return tokens


class EndDropped(Workings):
    """The end token is missing from the answer."""

    instead = "Return the end token too, where it was reached."
    paper = "This exercise's stub: without the start token, with the end token"

    def told(self, tokens: list[int], start: int, end: int) -> list[int]:
        return [token for token in tokens[1:] if token != end]


class OneTooFew(Workings):
    """The search stops one token before `longest`, as where the start token is counted."""

    instead = "Find `longest` tokens at most, the start token not counted."
    paper = "This exercise's stub: longest counts the tokens of the answer"

    def room(self, longest: int) -> int:
        return longest - 1


class OneTooMany(Workings):
    """The search goes one token past `longest`."""

    instead = "Find `longest` tokens at most."
    paper = "This exercise's stub: longest counts the tokens of the answer"

    def room(self, longest: int) -> int:
        return longest + 1


class BeamOfOne(Workings):
    """The beam keeps one hypothesis: it is greedy search."""

    instead = "Keep the `width` best hypotheses after every step."
    paper = BEAM

    def kept(self, found: list[Hypothesis], width: int, parents: list[int]) -> list[Hypothesis]:
        return super().kept(found, 1, parents)


class EachKeepsItsBest(Workings):
    """Each hypothesis keeps its own best continuation: hypotheses never compete with each other."""

    instead = "Sort the continuations of all hypotheses together, and keep the `width` best of them all."
    paper = BEAM

    def kept(self, found: list[Hypothesis], width: int, parents: list[int]) -> list[Hypothesis]:
        if len(set(parents)) == 1:
            return super().kept(found, width, parents)
        best = []
        for each in sorted(set(parents)):
            best.append(
                max((f for f, parent in zip(found, parents, strict=True) if parent == each), key=lambda f: f[0])
            )
        return super().kept(best, width, parents)


class PrunedByFigure(Workings):
    """The beam is pruned by what is divided by the length: a short hypothesis loses its place to longer ones."""

    instead = "Keep the largest sums of log-probabilities; divide by length ** alpha for the last choice alone."
    paper = f"{BEAM}; this exercise's stub: the length counts for the answer"

    def pruned(self, found: list[Hypothesis], width: int, parents: list[int], alpha: float) -> list[Hypothesis]:
        figures = [self.average(total, len(tokens) - 1, alpha) for total, tokens in found]
        order = sorted(range(len(found)), key=lambda each: -figures[each])
        return [found[each] for each in order[:width]]


class ProbabilitiesAdded(Workings):
    """Probabilities are added up where log-probabilities should be: two likely tokens beat one certain one."""

    instead = "Add the log-probabilities as `step` gives them: a product of probabilities is a sum of logs."
    paper = BEAM

    def worth(self, chances: Array) -> Array:
        return np.exp(chances)


class LengthNotDivided(Workings):
    """The hypotheses are compared without regard to length, so short ones win."""

    instead = "Divide the log-probability by length ** alpha before the best is chosen."
    paper = LENGTH

    def average(self, total: float, length: int, alpha: float) -> float:
        return total


class LengthMultiplied(Workings):
    """The log-probability is multiplied by length ** alpha: long hypotheses get worse still."""

    instead = "Divide by length ** alpha: log-probabilities are negative."
    paper = LENGTH

    def average(self, total: float, length: int, alpha: float) -> float:
        return total * length**alpha


class StartCounted(Workings):
    """The start token is counted in the length."""

    instead = "Count the tokens of the answer only."
    paper = LENGTH

    def average(self, total: float, length: int, alpha: float) -> float:
        return super().average(total, length + 1, alpha)


class AlphaIgnored(Workings):
    """The log-probability is divided by the length itself, whatever alpha is."""

    instead = "Divide by length ** alpha."
    paper = LENGTH

    def average(self, total: float, length: int, alpha: float) -> float:
        return total / length


class FirstToEnd(Workings):
    """The search stops when the first hypothesis ends, though a better one is under way."""

    instead = "Go on until all hypotheses of the beam have ended, or `longest` is reached."
    paper = BEAM

    def done(self, beam: list[Hypothesis], end: int) -> bool:
        return any(self.finished(tokens, end) for _, tokens in beam)

    def best(self, beam: list[Hypothesis], alpha: float, end: int) -> Hypothesis:
        ended = [each for each in beam if self.finished(each[1], end)]
        return super().best(ended or beam, alpha, end)


class EndedDropped(Workings):
    """A hypothesis that has ended is skipped in the next step, and lost with its answer."""

    instead = "Put it back among the continuations as it is: it competes for its place in the beam."
    paper = f"{BEAM}; this exercise's stub: one that has ended stays as it is"

    def carried(self, hypothesis: Hypothesis) -> list[Hypothesis]:
        return []


class EndedAside(Workings):
    """Hypotheses that have ended are put aside, and the beam goes on with as many others as it is wide: what was
    out of it comes back into the search."""

    instead = "Leave it in the beam, where it takes one of the `width` places."
    paper = f"{BEAM}; this exercise's stub: one that has ended takes its place in the beam"

    def pruned(self, found: list[Hypothesis], width: int, parents: list[int], alpha: float) -> list[Hypothesis]:
        beam = super().pruned(found, width, parents, alpha)
        self.aside += [each for each in beam if self.finished(each[1], self.end)]
        return [each for each in beam if not self.finished(each[1], self.end)]

    def done(self, beam: list[Hypothesis], end: int) -> bool:
        return not beam

    def best(self, beam: list[Hypothesis], alpha: float, end: int) -> Hypothesis:
        return super().best(self.aside + beam, alpha, end)

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

    def best(self, beam: list[Hypothesis], alpha: float, end: int) -> Hypothesis:
        return super().best([] if self.aside else beam, alpha, end)


class ChosenBySum(Workings):
    """The answer is the hypothesis with the largest sum, though its figure is divided by the length."""

    instead = "Divide all sums first, and choose the largest of what comes out."
    paper = LENGTH

    def best(self, beam: list[Hypothesis], alpha: float, end: int) -> Hypothesis:
        total, tokens = max(beam, key=lambda each: each[0])
        return self.average(total, len(tokens) - 1, alpha), tokens


class LastOfBeam(Workings):
    """The worst hypothesis of the beam comes back."""

    instead = "Return the hypothesis with the largest figure."
    paper = BEAM

    def best(self, beam: list[Hypothesis], alpha: float, end: int) -> Hypothesis:
        ranked = [(self.average(total, len(tokens) - 1, alpha), tokens) for total, tokens in beam]
        return min(ranked, key=lambda each: each[0])
