"""Exercises: greedy search and beam search."""

import contextlib

from regard_course.exercises.draws import Draw, draw_cases, number, row
from regard_course.exercises.exercise import Exercise
from regard_course.inputs import END, START, Case, RandomLanguageModel
from regard_course.mistakes.known import MISTAKES
from regard_course.mistakes.solution import SearchSolution, Solution


def _draw_model(draw: Draw) -> RandomLanguageModel:
    """Return model number M with a vocabulary of V tokens."""
    return RandomLanguageModel(89 * draw.seed + draw.size("M"), draw.size("V"))


_draw_beams = draw_cases(
    "M V W T",
    {
        "step": _draw_model,
        "start": START,
        "end": END,
        "width": number("W"),
        "longest": number("T"),
        "alpha": 0.6,
    },
    row("prime sizes", 0, 7, 3, 5),
    row("a small vocabulary", 1, 3, 2, 11, alpha=0.7),
    row("a wide beam", 2, 5, 11, 7, alpha=1.0),
    row("alpha of 0", 3, 5, 3, 7, alpha=0.0),
    row("a large alpha", 4, 5, 3, 7, alpha=1.3),
    row("a beam of one", 5, 7, 1, 5),
    row("one step", 6, 7, 3, 1),
    row("another model", 7, 5, 2, 13),
    row("short and long hypotheses", 8, 3, 3, 11, alpha=1.3),
)


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

    right, steps = answers(Solution), {name for name in vars(SearchSolution) if not name.startswith("__")}
    known = [mistake for mistake in MISTAKES if vars(mistake).keys() & steps]
    return {mistake.__name__ for mistake in known if answers(mistake) != right}


EXERCISES = (
    Exercise(
        title="greedy search",
        solution=Solution.greedy_search,
        cases=draw_cases(
            "M V T",
            {"step": _draw_model, "start": START, "end": END, "longest": number("T")},
            row("prime sizes", 0, 7, 11),
            row("a small vocabulary", 1, 3, 13),
            row("an early end", 2, 5, 17),
            row("another model", 3, 5, 7),
            row("one step", 4, 11, 1),
            row("no end token", 5, 13, 5),
        ),
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
