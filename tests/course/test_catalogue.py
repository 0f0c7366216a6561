"""The catalogue answers as plain loops do, and each of its mistakes answers otherwise, and in its own way."""

from itertools import combinations

import numpy as np
import pytest

from regard.course.catalogue import MISTAKES, Workings
from regard.course.diagnosis import example_of, usual_mistakes, work_out
from regard.course.exercises import EXERCISES, Exercise
from regard.course.judging import plain_words
from regard.course.likeness import ROUNDING, agree

SAME = {
    ("keys as values", "values by key weights"),
    ("keys times queries", "query and key weights swapped"),
    ("queries times queries", "keys by query weights"),
    ("scale by time", "scale by keys"),
    ("tanh of each", "only memory scores"),
}
"""What nothing can tell apart: where queries, keys and values have one source, or a softmax loses a constant."""


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda each: each.name)
def test_right_workings_answer_as_plain_loops(exercise: Exercise) -> None:
    for seed in (0, 7, 23):
        for case in [*exercise.cases(seed), *exercise.small()]:
            if case.report_metrics:
                found, right = work_out(Workings, exercise, case), exercise.expected(case)
                assert found is not None and len(found) == len(right) == len(exercise.outputs)
                assert agree(case, found, right), case.name


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda each: each.name)
def test_mistakes_differ_by_far_more_than_rounding_and_from_each_other(exercise: Exercise) -> None:
    cases = [case for case in exercise.cases(0) if case.report_metrics]
    answers = {each: [work_out(each, exercise, case) for case in cases] for each in usual_mistakes(exercise.name)}
    for mistake, found in answers.items():
        assert any(each is not None for each in found), mistake
        rights = [exercise.expected(case) for case in cases]
        apart = [
            np.inf if one.shape != other.shape else np.nan_to_num(np.abs(one - other), nan=np.inf).max(initial=0)
            for given, right in zip(found, rights, strict=True)
            if given is not None
            for one, other in zip(given, right, strict=True)
        ]
        assert max(apart) > 50 * ROUNDING or any(each is None for each in found), mistake
    same = set()
    for one, other in combinations(answers, 2):
        pairs = list(zip(cases, answers[one], answers[other], strict=True))
        if all(
            (a is None) == (b is None) and (a is None or b is None or agree(case, a, b)) for case, a, b in pairs
        ):
            same.add((plain_words(one.__name__), plain_words(other.__name__)))
    assert same <= SAME


def test_every_mistake_says_what_was_done_what_to_do_and_where_it_stands() -> None:
    for mistake in MISTAKES:
        assert mistake.__doc__ and mistake.__doc__.strip().endswith(".")
        assert mistake.instead.endswith((".", ")", "...")) and mistake.paper, mistake


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda each: each.name)
def test_every_mistake_is_shown_on_numbers(exercise: Exercise) -> None:
    for mistake in usual_mistakes(exercise.name):
        example = example_of(mistake, exercise)
        assert example is not None and example.right != example.wrong, mistake
        assert max(map(len, (example.right, example.wrong))) < 300
