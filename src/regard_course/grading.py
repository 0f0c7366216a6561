"""Grade answers: compare them with the expected outputs, and name the mistakes that explain incorrect answers."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from regard_course.arrays import Outputs, decode_outputs, equal_arrays, equal_gradients, equal_outputs
from regard_course.diagnosis import Mistake, diagnose_one, diagnose_two, find_example
from regard_course.exercises.exercise import Exercise
from regard_course.first_step import choose_case, find_first_step
from regard_course.inputs import MESSAGES, Array, Case
from regard_course.report import CaseReport, Diagnosis, ExerciseReport, Finding, Verdict
from regard_course.translated import say

# Errors that say what to correct: the first quantity that differs would hide it.
CLEAR = re.compile(
    r"\w*(Name|Local|Attribute|Import|NotFound)Error|TypeError: .*(argument|tuple|the result|das Ergebnis)|.*ambiguous"
)
MAX_TOKENS = 8
"""Maximum number of tokens that are shown from a sequence."""
Answer = Mapping[str, Any]
Record = Callable[[Case], Sequence[Sequence[Array]]]
"""Function that returns the arrays of the learner's runs with an input."""


def begin_report(exercise: Exercise, name: str, seed: int) -> ExerciseReport:
    """Return the report on an answer that was not begun. `name`: the learner's function or class."""
    return ExerciseReport(
        exercise=exercise.name, title=exercise.title, object=name, state="not begun", inputs=len(exercise.cases(seed))
    )


def grade(
    exercise: Exercise, name: str, seed: int, attempts: Sequence[Sequence[Answer]], record: Record | None = None
) -> ExerciseReport:
    """Return the report on the answers to all cases.

    name: the learner's function or class. attempts: answers for each interpretation of its parameters. record: runs
    the code again if no known mistake explains its answers.
    """
    cases, report = exercise.cases(seed), begin_report(exercise, name, seed)
    if any(answer.get("started") is False for answer in attempts[0]):
        return report
    answered = [index for index, answer in enumerate(attempts[0]) if not answer.get("skipped")]
    cases = [cases[index] for index in answered]
    attempts = [[answers[index] for index in answered] for answers in attempts]
    expected = [exercise.expected(case) for case in cases]
    answers, explanations = _select_attempt(exercise, cases, attempts, expected)
    reports = _grade_cases(exercise, cases, answers, expected)
    wrong = any(report.verdict in ("wrong", "failed") for report in reports)
    # If a mistake is named, notes on inputs that the diagnosis leaves out could only repeat or contradict it.
    noted = [a for a, case in zip(answers, cases, strict=True) if case.diagnose or not explanations]
    notes = dict.fromkeys((serious, words) for a in noted for serious, words in a.get("notes", []))
    missing: dict[str, None] = {}
    for given, answer in zip(cases, answers, strict=True):
        if "outputs" in answer:
            missing |= dict.fromkeys((given.outputs or exercise.outputs)[len(answer["outputs"]) :])
    faulty = wrong or bool(missing) or any(serious for serious, _ in notes)
    shown_notes = [words for serious, words in notes if faulty or serious is not False]
    if missing:
        shown_notes.append(say(MESSAGES["fewer_outputs"], ", ".join(map(say, missing))))
    different = [
        bool(_first_difference(exercise, case, answer, outputs))
        for case, answer, outputs in zip(cases, answers, expected, strict=True)
    ]
    parts, first_step = list[str](), None
    if not explanations and any(different):
        parts = ["note_first"] if shown_notes else ["unknown_mistake", "start_here"]
    remark, exact = _remark(exercise, cases, answers, expected) if wrong and not explanations else ("", False)
    if remark:
        shown_notes, parts = [remark, *shown_notes], ["note_first"] if not shown_notes else parts
    clear = exact or all(report.verdict == "failed" and CLEAR.match(report.words) for report in reports)
    if wrong and not explanations and record and not exercise.call and not clear:
        failed = [report.verdict == "failed" for report in reports]
        case = choose_case(exercise, cases, different if sum(different) >= sum(failed) else failed)
        if case is not None:
            first_step = find_first_step(exercise, case, record(case), decode_outputs(answers[cases.index(case)]))
        if not (set(shown_notes) - {remark}) and parts:
            parts = ["unknown_mistake", *([] if first_step else ["unknown_step", "start_here"])]
    return dataclasses.replace(
        report,
        first_step=first_step,
        state="wrong" if faulty else "right",
        cases=reports,
        diagnoses=[
            Diagnosis(
                findings=[
                    Finding(
                        name=spaced_name(mistake.__name__),
                        did=say(mistake.did),
                        instead=say(mistake.instead),
                        paper=say(mistake.paper),
                        example=find_example(mistake, exercise),
                    )
                    for mistake in mistakes
                ]
            )
            for mistakes in (explanations if wrong else [])
        ],
        notes=shown_notes,
        lines=next((list(answer["lines"]) for answer in answers if answer.get("lines")), []),
        ending=" ".join(say(MESSAGES[part]) for part in parts),
    )


def _select_attempt(
    exercise: Exercise, cases: Sequence[Case], attempts: Sequence[Sequence[Answer]], expected: Sequence[Outputs]
) -> tuple[Sequence[Answer], list[list[Mistake]]]:
    """Return an attempt, and the mistakes or pairs of mistakes that explain it. A correct attempt has priority, then
    an attempt that a single mistake explains, then the first attempt."""
    for answers in attempts:
        reports = _grade_cases(exercise, cases, answers, expected)
        if all(report.verdict not in ("wrong", "failed") for report in reports):
            return answers, []
    for answers in attempts:
        explanations = diagnose_one(exercise, cases, [decode_outputs(answer) for answer in answers])
        if explanations:
            return answers, explanations
    first = attempts[0]
    return first, diagnose_two(exercise, cases, [decode_outputs(answer) for answer in first])


def _grade_cases(
    exercise: Exercise, cases: Sequence[Case], answers: Sequence[Answer], expected: Sequence[Outputs]
) -> list[CaseReport]:
    reports = []
    for case, answer, outputs in zip(cases, answers, expected, strict=True):
        verdict: tuple[Verdict, str] = "failed", str(answer.get("error"))
        if "outputs" in answer:
            words = _first_difference(exercise, case, answer, outputs)
            verdict = ("wrong", words) if words else _grade_gradients(exercise, case, answer)
        reports.append(CaseReport(name=case.name, verdict=verdict[0], words=verdict[1]))
    return reports


def _first_difference(exercise: Exercise, case: Case, answer: Answer, expected: Outputs) -> str:
    """Return the first incorrect output and its difference, or an empty result."""
    outputs = decode_outputs(answer) or []
    for name, output, right in zip(case.outputs or exercise.outputs, outputs, expected, strict=False):
        if not equal_arrays(output, right, case.valid_steps):
            words = describe_difference(output, right, case.valid_steps)
            return f"{say(name)}: {words}" if len(exercise.outputs) > 1 else words
    return ""


def _remark(
    exercise: Exercise, cases: Sequence[Case], answers: Sequence[Answer], expected: Sequence[Outputs]
) -> tuple[str, bool]:
    """Return what all results have in common that is wrong, or an empty text, and whether nothing else is to be said:
    another order of the results, a missing batch, or whole numbers."""
    answered = zip(cases, map(decode_outputs, answers), expected, strict=True)
    found = [(case, outputs, right) for case, outputs, right in answered if outputs]
    for order in list(permutations(range(len(exercise.outputs))))[1:] if found else ():
        swapped = [[outputs[n] for n in order] if len(outputs) == len(order) else [] for _, outputs, _ in found]
        if all(equal_outputs(part[0], mine, part[2]) for part, mine in zip(found, swapped, strict=True)):
            return say(MESSAGES["other_order"], ", ".join(map(say, exercise.outputs))), True
    firsts = [(outputs[0], right[0]) for _, outputs, right in found]
    if firsts and all(right.ndim == 3 and mine.shape == right.shape[1:] for mine, right in firsts):
        return say(MESSAGES["no_batch"], say(exercise.outputs[0]), firsts[0][0].shape, firsts[0][1].shape), True
    if (
        firsts
        and not any(_is_whole(right) for _, right in firsts)
        and all(_is_whole(mine) and mine.shape == right.shape for mine, right in firsts)
    ):
        return say(MESSAGES["whole_numbers"]), False
    return "", False


def _grade_gradients(exercise: Exercise, case: Case, answer: Answer) -> tuple[Verdict, str]:
    if not case.gradients:
        return "right", ""
    gradients = answer.get("gradients") or {}
    if not gradients:
        if case.name != "gradients":
            return "right", ""
        return "not compared", say("NumPy has no gradients: counts as right if all others are")
    expected = exercise.expected_gradients(case)
    missing = [name for name in expected if gradients.get(name) is None]
    not_finite = [name for name in expected if name not in missing and not np.isfinite(gradients[name])]
    different = [
        name
        for name in expected
        if name not in missing + not_finite and not equal_gradients(gradients[name], expected[name])
    ]
    if missing:
        return "wrong", say(MESSAGES["no_gradient"], ", ".join(missing))
    if not_finite:
        return "wrong", say(MESSAGES["nan_gradient"], ", ".join(not_finite))
    if different:
        name, right = different[0], sum(expected[different[0]]) / 2
        numbers = name, f"{gradients[name]:.4g}", f"{right:.4g}"
        return "wrong", say("the gradient of {0} is {1}, should be {2}: is a part detached?", *numbers)
    return "right", ""


def describe_difference(output: Array, right: Array, valid_steps: Array | None) -> str:
    """Return in short how an output differs from the correct one: by shape, NaN or the number with the largest error.

    >>> describe_difference(np.array([[1.0, 5.0]]), np.array([[1.0, 2.0]]), None)
    '5 at [0, 1], should be 2'
    """
    if output.ndim == right.ndim == 1 and output.shape != right.shape and _is_whole(output) and _is_whole(right):
        return say("{0}, should be {1}", _show_tokens(output), _show_tokens(right))
    if output.ndim == 0 < right.ndim:
        return say("a single number, should be an array of shape {0}", right.shape)
    if output.shape != right.shape:
        shapes = [f"({', '.join(map(str, array.shape))})" for array in (output, right)]
        return say("shape {0}, should be {1}", *shapes)
    if np.isnan(output).any() and not np.isnan(right).any():
        return say("{0} of {1} numbers are NaN", int(np.isnan(output).sum()), output.size)
    error = np.abs(output - right)
    if valid_steps is not None:
        valid = valid_steps.reshape(valid_steps.shape + (1,) * (error.ndim - valid_steps.ndim))
        error = np.where(valid, error, 0)
    index = np.unravel_index(int(np.argmax(error)), error.shape)
    if output.size > 1 and output.ndim == 1 and np.array_equal(right, np.round(right)):
        return say("{0}, should be {1}", output.astype(int).tolist(), right.astype(int).tolist())
    number, where = f"{output[index]:.4g}", f"[{', '.join(str(int(i)) for i in index)}]"
    mine = say("{0} at {1}", number, where) if output.ndim else number
    return say("{0}, should be {1}", mine, f"{right[index]:.4g}")


def _is_whole(array: Array) -> bool:
    return bool(np.isfinite(array).all() and np.array_equal(array, np.round(array)))


def _show_tokens(tokens: Array) -> str:
    """Return the first tokens of a sequence as text, with the sequence's length if tokens were omitted."""
    text = ", ".join(str(int(token)) for token in tokens[:MAX_TOKENS])
    return f"[{text}]" if len(tokens) <= MAX_TOKENS else say("[{0}, ...] ({1} tokens)", text, len(tokens))


def spaced_name(name: str) -> str:
    """Return the name of a function or class as words.

    >>> spaced_name("mask_after_softmax"), spaced_name("WrongSign")
    ('mask after softmax', 'wrong sign')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").lower()
