"""Right implementations in many styles pass, and none is ever blamed, whatever the sizes and numbers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.course.candidates import find_candidates
from regard.course.exercises import EXERCISES
from tests.course.checking import LEARNERS, checked, names_of

FILES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(LEARNERS.glob("*.py"))}
ANSWERS = [
    (file, exercise)
    for file, source in FILES.items()
    for exercise in find_candidates(names_of(source), None).exercises
]
LARGE = [(file, exercise) for file, exercise in ANSWERS if exercise in ("transformer", "decoder_layer")]
QUICK = [each for each in ANSWERS if each not in LARGE and each[1] != "train_copy"]
SLOW = ("learning_by_hand", "train_copy")
KINKS = {"feed_forward": 991, "encoder_layer": 626, "decoder_layer": 45, "transformer": 38}
"""Seeds whose inputs nearly turn a ReLU on: the slopes to both sides differ."""


@pytest.mark.parametrize(
    ("file", "exercise"),
    [pytest.param(*each, marks=[pytest.mark.slow] if each == SLOW else []) for each in ANSWERS],
    ids=lambda each: str(each),
)
def test_what_is_right_passes(file: str, exercise: str) -> None:
    report = checked(FILES[file], exercise)
    assert report.state == "right", report
    assert report.diagnoses == []


@pytest.mark.parametrize("exercise", sorted({exercise for _, exercise in QUICK}))
@settings(max_examples=2)
@given(seed=st.integers(1, 10**6))
def test_what_is_right_is_not_blamed_on_a_sample(exercise: str, seed: int) -> None:
    files = [file for file, answered in QUICK if answered == exercise]
    report = checked(FILES[files[seed % len(files)]], exercise, seed)
    assert report.state == "right", report


@pytest.mark.parametrize(("exercise", "seed"), KINKS.items())
def test_at_a_kink_either_slope_is_right(exercise: str, seed: int) -> None:
    slopes = next(each for each in EXERCISES if each.name == exercise)
    (case,) = [each for each in slopes.cases(seed) if each.name == "gradients"]
    assert any(abs(after - before) > 0.02 * abs(after) for before, after in slopes.slopes(case).values())
    report = checked(FILES["stacking_module"], exercise, seed)
    assert report.state == "right", report


@pytest.mark.slow
@pytest.mark.parametrize(("file", "exercise"), QUICK, ids=lambda each: str(each))
@settings(max_examples=8)
@given(seed=st.integers(1, 10**6))
def test_what_is_right_is_never_blamed(file: str, exercise: str, seed: int) -> None:
    report = checked(FILES[file], exercise, seed)
    assert report.state == "right", report


@pytest.mark.slow
@pytest.mark.parametrize(("file", "exercise"), LARGE, ids=lambda each: str(each))
@settings(max_examples=3)
@given(seed=st.integers(1, 10**6))
def test_what_is_right_and_large_is_never_blamed(file: str, exercise: str, seed: int) -> None:
    report = checked(FILES[file], exercise, seed)
    assert report.state == "right", report


def test_sizes_differ_from_seed_to_seed() -> None:
    (attention,) = [each for each in EXERCISES if each.name == "attention"]
    shapes = {attention.cases(seed)[0].arguments["query"].shape for seed in range(20)}
    assert len(shapes) > 5


def test_every_exercise_is_answered_in_two_styles_or_more_and_the_heart_of_it_in_five() -> None:
    counts = {each.name: sum(exercise == each.name for _, exercise in ANSWERS) for each in EXERCISES}
    assert min(counts.values()) >= 2, counts
    assert counts["multi_head_attention"] >= 5
    assert len(FILES) >= 20
