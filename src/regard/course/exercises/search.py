"""Exercises: greedy search and beam search."""

import contextlib

from regard.course.exercises.exercise import Exercise
from regard.course.inputs import END, START, Case, RandomLanguageModel
from regard.course.mistakes import Solution, search_mistakes


def _greedy(seed: int) -> list[Case]:
    def case(name: str, number: int, size: int, longest: int) -> Case:
        arguments = {
            "step": RandomLanguageModel(97 * seed + number, size),
            "start": START,
            "end": END,
            "longest": longest,
        }
        return Case(name=name, arguments=arguments)

    return [
        case("prime sizes", 0, 7, 11),
        case("a small vocabulary", 1, 3, 13),
        case("an early end", 2, 5, 17),
        case("another model", 3, 5, 7),
        case("one step", 4, 11, 1),
        case("no end token", 5, 13, 5),
    ]


def _beam(seed: int) -> list[Case]:
    """Return inputs on which every mistake changes an answer that changes one with seed 0."""
    cases = _draw_beams(seed)
    while seed and not _shown_mistakes(_draw_beams(0)) <= _shown_mistakes(cases):
        seed += 1_000
        cases = _draw_beams(seed)
    return cases


def _shown_mistakes(cases: list[Case]) -> set[str]:
    def answers(solution: type[Solution]) -> list[str]:
        with contextlib.suppress(ZeroDivisionError):  # an answer without tokens
            return [str(solution().beam_search(**case.arguments)) for case in cases]
        return []

    right = answers(Solution)
    known = [value for value in vars(search_mistakes).values() if isinstance(value, type)]
    return {value.__name__ for value in known if issubclass(value, Solution) and answers(value) != right}


def _draw_beams(seed: int) -> list[Case]:
    def case(name: str, number: int, size: int, width: int, longest: int, alpha: float) -> Case:
        arguments = {
            "step": RandomLanguageModel(89 * seed + number, size),
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
        case("alpha of 0", 3, 5, 3, 7, 0.0),
        case("a large alpha", 4, 5, 3, 7, 1.3),
        case("a beam of one", 5, 7, 1, 5, 0.6),
        case("one step", 6, 7, 3, 1, 0.6),
        case("another model", 7, 5, 2, 13, 0.6),
        case("short and long hypotheses", 8, 3, 3, 11, 1.3),
    ]


EXERCISES = (
    Exercise(
        title="greedy search",
        solution=Solution.greedy_search,
        cases=_greedy,
        instruction="Write it",
        outputs=("tokens",),
        aliases=("greedy", "greedy_decode", "greedy_decoding"),
    ),
    Exercise(
        title="beam search",
        source="Sutskever et al. 2014, section 3.2; Wu et al. 2016, section 7, for the length",
        solution=Solution.beam_search,
        cases=_beam,
        instruction="Write it",
        outputs=("tokens", "score"),
        aliases=("beam", "beam_decode"),
    ),
)
