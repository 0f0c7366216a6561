"""Correct solutions in many styles pass, for all sizes and numbers."""

import pytest
from hypothesis import given, settings, strategies as st

from regard_course.candidates import find_candidates
from regard_course.exercises.course import EXERCISES
from tests.course.checking import LEARNERS, check_source, execute

FILES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(LEARNERS.glob("*.py"))}
ANSWERS = [
    (file, exercise)
    for file, source in FILES.items()
    for exercise in find_candidates(execute(source), EXERCISES).exercises
]
QUICK = [answer for answer in ANSWERS if answer[1] not in ("transformer", "decoder_layer", "train_copy")]
SLOW = ("learning_by_hand", "train_copy")
KINKS = {"feed_forward": 324, "encoder_layer": 202, "decoder_layer": 3, "transformer": 8}
"""Seeds with an input near the kink of a ReLU, where the gradients on the two sides differ."""


@pytest.mark.parametrize(
    ("file", "exercise"),
    [pytest.param(*answer, marks=[pytest.mark.slow] if answer == SLOW else []) for answer in ANSWERS],
    ids=str,
)
def test_right_solutions_pass(file: str, exercise: str) -> None:
    report = check_source(FILES[file], exercise)
    assert report.state == "right", report
    assert report.diagnoses == []


@pytest.mark.parametrize("exercise", sorted({exercise for _, exercise in QUICK}))
@settings(max_examples=2)
@given(seed=st.integers(1, 10**6))
def test_a_sample_of_right_solutions_passes_with_any_seed(exercise: str, seed: int) -> None:
    files = [file for file, answered in QUICK if answered == exercise]
    report = check_source(FILES[files[seed % len(files)]], exercise, seed)
    assert report.state == "right", report


@pytest.mark.parametrize(("exercise", "seed"), KINKS.items())
def test_at_a_kink_the_gradient_of_either_side_is_right(exercise: str, seed: int) -> None:
    item = next(item for item in EXERCISES if item.name == exercise)
    (case,) = [case for case in item.cases(seed) if case.name == "gradients"]
    assert any(abs(after - before) > 0.02 * abs(after) for before, after in item.expected_gradients(case).values())
    report = check_source(FILES["stacking_module"], exercise, seed)
    assert report.state == "right", report


@pytest.mark.slow
@pytest.mark.parametrize(("file", "exercise"), [answer for answer in ANSWERS if answer[1] != "train_copy"], ids=str)
@settings(max_examples=5)
@given(seed=st.integers(1, 10**6))
def test_right_solutions_pass_with_any_seed(file: str, exercise: str, seed: int) -> None:
    report = check_source(FILES[file], exercise, seed)
    assert report.state == "right", report


def test_sizes_differ_from_seed_to_seed() -> None:
    (attention,) = [exercise for exercise in EXERCISES if exercise.name == "attention"]
    shapes = {attention.cases(seed)[0].arguments["query"].shape for seed in range(20)}
    assert len(shapes) > 5


def test_every_exercise_has_solutions_in_several_styles() -> None:
    counts = {item.name: sum(exercise == item.name for _, exercise in ANSWERS) for item in EXERCISES}
    assert min(counts.values()) >= 2, counts
    assert counts["multi_head_attention"] >= 5
    assert len(FILES) >= 20
