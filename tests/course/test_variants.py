"""Generated solutions: right ones are accepted, changed ones are rejected, and the first step that differs is the
changed one."""

import contextlib
import sys
import warnings
from typing import Any

import numpy as np
import pytest

from regard_course.arrays import convert_argument, convert_result, equal_outputs
from regard_course.exercises.course import find_exercise
from regard_course.first_step import QUANTITIES
from regard_course.inputs import Case
from regard_course.learner_calls import call_function
from tests.course.checking import check_source, execute, mistake_names
from tests.course.variants import PROGRAMS, Program

RIGHT = [(program, source) for program in PROGRAMS for source in program.draw(10)]
MUTANTS = [(program, *mutant) for program in PROGRAMS for mutant in program.mutants()]


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


def corners(program: Program) -> list[Case]:
    """Return valid inputs of all kinds: other seeds, and small, large, tied and whole numbers."""
    exercise = find_exercise(program.exercise)
    cases = [case for seed in (7, 8, 9) for case in exercise.cases(seed)]
    found = list(cases)
    for case in cases[:3]:
        for change in (lambda x: 1e-3 * x, lambda x: 30 * x, np.round, lambda x: 0 * x + 0.5):
            if program.exercise in ("attention_rollout", "induction_score", "auroc", "patching_effect"):
                continue  # whose arguments are not any numbers
            arguments = {
                name: change(value) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value
                for name, value in case.arguments.items()
            }
            found.append(Case(name=case.name, arguments=arguments, valid_steps=case.valid_steps))
    return found


def answers(program: Program, source: str) -> list[Any]:
    function, found = execute(source)[program.exercise], []
    for case in corners(program):
        outputs = None
        with contextlib.suppress(Exception), np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arguments = {name: convert_argument(value, program.library) for name, value in case.arguments.items()}
            outputs = convert_result(call_function(function, arguments), len(find_exercise(program.exercise).outputs))
        found.append(outputs)
    return found


def changes_the_function(program: Program, source: str) -> bool:
    """Return whether a changed solution differs from the right one on a valid input, by more than rounding."""
    right = answers(program, program.write(program.first))
    return any(
        mine is not None and (theirs is None or not equal_outputs(case, theirs, mine))
        for case, mine, theirs in zip(corners(program), right, answers(program, source), strict=True)
    )


def check_mutants(mutants: list[Any]) -> tuple[list[str], list[str], int, int, int]:
    """Return the mutants that are accepted, those whose first step is wrong, and the numbers of those that change the
    function, of those without a known mistake, and of those with the right first step."""
    accepted, misplaced, changed, unknown, right = [], [], 0, 0, 0
    for program, step, words, source in mutants:
        if not changes_the_function(program, source):
            continue
        changed += 1
        report = check_source(source, program.exercise)
        label = f"{program.library} {program.exercise} {step or '-'}: {words}"
        if report.state == "right":
            accepted.append(label)
        elif not mistake_names(report) and step and report.first_step:
            unknown += 1
            if report.first_step.name in expected_names(program, step):
                right += 1
            else:
                misplaced.append(f"{label}; named {report.first_step.name}")
        elif not mistake_names(report) and step:
            unknown += 1
            misplaced.append(f"{label}; not named")
    return accepted, misplaced, changed, unknown, right


def expected_names(program: Program, step: str) -> set[str]:
    """Return the names of a changed step. What an exercise returns is its last step."""
    last = {"masked_softmax", "softmax", "without_sink", "join_layers", "renormalize", "project_output", "rms_gain"}
    names = {step, *({"softmax"} if step == "masked_softmax" else ())}
    return names | last | {"returned", "normalize", "feed_forward", "context"} if step == "returned" else names


def test_a_sample_of_changed_solutions_is_rejected() -> None:
    accepted, misplaced, changed, _, _ = check_mutants(MUTANTS[::30])
    assert changed >= 8 and len(accepted) <= 1, accepted
    assert set(QUANTITIES) >= {"masked_softmax"} and len(misplaced) <= changed / 3, misplaced


@pytest.mark.slow
def test_changed_solutions_are_rejected_and_placed() -> None:
    accepted, misplaced, changed, unknown, right = check_mutants(MUTANTS)
    counts = f"{len(MUTANTS)} mutants, {changed} change the function, {changed - len(accepted)} are rejected"
    steps = f"{unknown} without a known mistake, {right} with the right first step"
    sys.stdout.write("\n".join(["", counts, steps, "accepted:", *accepted, "misplaced:", *misplaced, ""]))
    assert len(accepted) <= 0.03 * changed, accepted
    assert right >= 0.8 * unknown, misplaced
