"""Exercises: greedy search and beam search."""

from regard.course.exercises.exercise import Case, Chances, Exercise
from regard.course.reference import decoding as stepping

START, END = 1, 2


def _greedy(seed: int) -> list[Case]:
    def case(name: str, which: int, size: int, longest: int) -> Case:
        arguments = {"step": Chances(97 * seed + which, size), "start": START, "end": END, "longest": longest}
        return Case(name=name, arguments=arguments)

    return [
        case("prime sizes", 0, 7, 11),
        case("a small vocabulary", 1, 3, 13),
        case("an early end", 2, 5, 17),
        case("another model", 3, 5, 7),
        case("one step", 4, 11, 1),
        case("no end in reach", 5, 13, 5),
    ]


def _beam(seed: int) -> list[Case]:
    def case(name: str, which: int, size: int, width: int, longest: int, alpha: float) -> Case:
        arguments = {
            "step": Chances(89 * seed + which, size),
            "start": START,
            "end": END,
            "width": width,
            "longest": longest,
            "alpha": alpha,
        }
        return Case(name=name, arguments=arguments)

    return [
        case("prime sizes", 0, 7, 3, 5, 0.6),
        case("a small vocabulary", 1, 3, 2, 11, 0.7),
        case("a wide beam", 2, 5, 11, 7, 1.0),
        case("length does not count", 3, 5, 3, 7, 0.0),
        case("length counts", 4, 5, 3, 7, 1.3),
        case("a beam of one", 5, 7, 1, 5, 0.6),
        case("one step", 6, 7, 3, 1, 0.6),
        case("another model", 7, 5, 2, 13, 0.6),
        case("short against long", 8, 3, 3, 11, 1.3),
    ]


GREEDY = '''"""Exercise: greedy search.

Write it, then: regard check THIS_FILE.py
"""


def greedy_search(step, start, end, longest):
    """Return the tokens that a model writes when it always takes the likeliest next one.

    step: a function; step(tokens) returns the log-probabilities (V,) of the token that follows a list of tokens,
    which begins with `start`. Stop after `end`, or after `longest` tokens.
    Returns a list of tokens, without `start`, with `end` where it was reached.
    """
    raise NotImplementedError
'''
BEAM = '''"""Exercise: beam search (Sutskever et al. 2014, section 3.2; for the length Wu et al. 2016, section 7).

Write it, then: regard check THIS_FILE.py
"""


def beam_search(step, start, end, width, longest, alpha):
    """Return the best tokens that a beam of `width` hypotheses finds, and their figure.

    step: a function; step(tokens) returns the log-probabilities (V,) of the token that follows a list of tokens,
    which begins with `start`.
    After each step the beam keeps the `width` hypotheses with the largest sums of log-probabilities, of all
    continuations of all hypotheses; one that has come to `end` stays as it is, and takes its place in the beam.
    Stop when all have ended, or after `longest` tokens. The answer is the hypothesis of the beam with the largest
    figure: sum of log-probabilities / length ** alpha, where the length counts the tokens of the answer.
    Returns a list of tokens, without `start`, with `end` where it was reached; and the figure.
    """
    raise NotImplementedError
'''

EXERCISES = (
    Exercise(
        name="greedy_search",
        title="greedy search",
        stub=GREEDY,
        reference=stepping.greedy_search,
        cases=_greedy,
        outputs=("tokens",),
        names=("greedy", "greedy_decode", "greedy_decoding"),
    ),
    Exercise(
        name="beam_search",
        title="beam search",
        stub=BEAM,
        reference=stepping.beam_search,
        cases=_beam,
        outputs=("tokens", "figure"),
        names=("beam", "beam_decode"),
    ),
)
