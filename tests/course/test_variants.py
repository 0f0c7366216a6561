"""Generated solutions: right ones are accepted, changed ones are rejected, and the first step that differs is the
changed one. `benchmarks/first_step.py` counts how often."""

import dataclasses

import pytest

from regard_course.exercises.course import find_exercise
from regard_course.grading import UNKNOWN_STEP
from tests.course.checking import check_source
from tests.course.variants import PROGRAMS, Program, changes_the_function, mutants

RIGHT = [(program, source) for program in PROGRAMS for source in program.draw(10)]
MUTANTS = [
    (program, words, source) for program in PROGRAMS for _, words, source in mutants(program.write(program.first))
]


def test_there_are_200_right_solutions() -> None:
    assert len({source for _, source in RIGHT}) >= 200, len(RIGHT)


@pytest.mark.parametrize("number", range(0, len(RIGHT), 6))
def test_a_generated_right_solution_is_accepted(number: int) -> None:
    program, source = RIGHT[number]
    report = check_source(source, program.exercise, number)
    assert report.state == "right", (source, report)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 101, 202])
def test_all_generated_right_solutions_are_accepted(seed: int) -> None:
    wrong = [
        (source, report.cases, report.notes)
        for program, source in RIGHT
        if (report := check_source(source, program.exercise, seed)).state != "right"
    ]
    assert not wrong, wrong[0]


def check_mutants(found: list[tuple[Program, str, str]]) -> tuple[list[str], int]:
    """Return the mutants that are accepted, and the number of those that change the function."""
    accepted, changed = [], 0
    for program, words, source in found:
        exercise = find_exercise(program.exercise)
        if changes_the_function(exercise, program.library, program.write(program.first), source):
            changed += 1
            if check_source(source, exercise).state == "right":
                accepted.append(f"{program.library} {program.exercise}: {words}")
    return accepted, changed


def test_a_sample_of_changed_solutions_is_rejected() -> None:
    accepted, changed = check_mutants(MUTANTS[::30])
    assert changed >= 8 and not accepted, accepted


@pytest.mark.slow
def test_changed_solutions_are_rejected() -> None:
    accepted, changed = check_mutants(MUTANTS)
    assert changed >= 300 and len(accepted) <= 0.03 * changed, accepted


@pytest.mark.parametrize(
    ("name", "old", "new", "step"),
    [
        ("numpy attention", "/ np.sqrt(d)", "* np.sqrt(d)", "scaled_products"),
        ("numpy attention", "w * mask", "w / mask", "returned"),
        ("numpy encoder_layer", "+ 1e-5) * p['gain_1']", "- 1e-5) * p['gain_1']", "standard_deviation"),
        ("numpy rms_norm", "states**2", "states**3", "squared_size"),
        ("torch label_smoothed_loss", "- smoothing * l.mean", "+ smoothing * l.mean", "returned"),
        ("numpy auroc", "faulty == 0", "faulty != 0", "wins"),
        ("numpy auroc", "a, b =", "return 0.25\n    a, b =", ""),
    ],
)
def test_the_first_step_that_differs_is_named_or_unknown(name: str, old: str, new: str, step: str) -> None:
    (program,) = [program for program in PROGRAMS if f"{program.library} {program.exercise}" == name]
    source = program.write(program.first)
    assert old in source
    exercise = dataclasses.replace(find_exercise(program.exercise), mistakes=())
    report = check_source(source.replace(old, new), exercise)
    assert (report.first_step.name if report.first_step else "") == step, report.first_step
    assert (UNKNOWN_STEP in report.ending) == (not step)
