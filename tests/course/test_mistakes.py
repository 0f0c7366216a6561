"""The steps of `Solution` agree with plain loops, and each mistake differs from all others."""

from itertools import combinations

import numpy as np
import pytest

from regard_course.arrays import ROUNDING, equal_outputs
from regard_course.diagnosis import find_example, relevant_mistakes, run_solution
from regard_course.exercises.course import EXERCISES
from regard_course.exercises.exercise import Exercise, as_outputs
from regard_course.grading import spaced_name
from regard_course.mistakes.known import MISTAKES
from tests.course.reference import SOLUTIONS

SAME = {
    ("base hundred thousand", "last frequency included"),
    ("keys as values", "values by key weights"),
    ("keys times queries", "query and key weights swapped"),
    ("queries times queries", "keys by query weights"),
    ("scale by time", "scale by keys"),
    ("tanh of each", "only memory scores"),
}
"""Pairs that no input can distinguish: queries, keys and values have the same source, or a softmax cancels a
constant, or the width of the Transformer's positions is 10."""


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
def test_the_solution_agrees_with_plain_loops(exercise: Exercise) -> None:
    for seed in (0, 7, 23):
        for case in [*exercise.cases(seed), *exercise.small_cases()]:
            if case.diagnose:
                outputs = exercise.expected(case)
                right = as_outputs(SOLUTIONS[exercise.name](**case.arguments))
                assert len(outputs) == len(right) == len(exercise.outputs)
                assert equal_outputs(case, outputs, right), case.name


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
def test_mistakes_differ_by_far_more_than_rounding_and_from_each_other(exercise: Exercise) -> None:
    cases = [case for case in exercise.cases(0) if case.diagnose]
    answers = {
        mistake: [run_solution(mistake, exercise, case) for case in cases] for mistake in relevant_mistakes(exercise)
    }
    expected = [exercise.expected(case) for case in cases]
    for mistake, results in answers.items():
        assert any(outputs is not None for outputs in results), mistake
        errors = [
            np.inf if a.shape != b.shape else np.nan_to_num(np.abs(a - b), nan=np.inf).max(initial=0)
            for outputs, right in zip(results, expected, strict=True)
            if outputs is not None
            for a, b in zip(outputs, right, strict=True)
        ]
        assert max(errors) > 50 * ROUNDING or None in results, mistake
    same = set()
    for first, second in combinations(answers, 2):
        pairs = list(zip(cases, answers[first], answers[second], strict=True))
        if all(
            (a is None) == (b is None) and (a is None or b is None or equal_outputs(case, a, b)) for case, a, b in pairs
        ):
            same.add((spaced_name(first.__name__), spaced_name(second.__name__)))
    assert same <= SAME


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
def test_every_mistake_is_visible_with_other_seeds(exercise: Exercise) -> None:
    for seed in (4, 5):
        cases = [case for case in exercise.cases(seed) if case.diagnose]
        right = [run_solution(exercise.base, exercise, case) for case in cases]
        for mistake in relevant_mistakes(exercise):
            answers = [run_solution(mistake, exercise, case) for case in cases]
            same = [
                a is not None and b is not None and equal_outputs(case, a, b)
                for case, a, b in zip(cases, answers, right, strict=True)
            ]
            assert not all(same), f"{mistake.__name__} with seed {seed}"


def test_every_mistake_has_description_advice_and_source() -> None:
    for mistake in MISTAKES:
        assert mistake.did.endswith(".")
        assert mistake.instead.endswith((".", ")", "...")) and mistake.paper, mistake


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
def test_every_mistake_has_an_example_in_numbers(exercise: Exercise) -> None:
    for mistake in relevant_mistakes(exercise):
        example = find_example(mistake, exercise)
        assert example is not None and example.right != example.wrong, mistake
        assert max(map(len, (example.right, example.wrong))) < 300
