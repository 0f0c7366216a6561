"""From answers to a report: what is right, what is wrong, and which usual mistake it is."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from regard.course.diagnosis import Mistake, diagnose_one, diagnose_three, diagnose_two, example_of
from regard.course.exercises import Case, Exercise
from regard.course.exercises.exercise import Array
from regard.course.likeness import Outputs, alike, same_slope
from regard.course.report import CaseReport, Diagnosis, ExerciseReport, Finding

DETACHED = (
    "no gradient comes to {names}: is something cut off (.detach(), .data, .item(), .numpy(), torch.tensor(...), "
    "torch.no_grad())?"
)
LOOK = "what is tried in the first wrong line says where to look."
UNNAMED = f"No usual mistake answers so; {LOOK}"
CUT = f"No usual mistake and no two together answer so (not all sets of three were tried); {LOOK}"
NOTED = "Mend what the note says first; if the answer stays wrong, the first wrong line says where to look."
MOST = 8
"""Numbers of a sequence that are written."""
NOT_A_NUMBER = (
    "the gradient of {names} is NaN: a NaN that is overwritten later is gone from the answer, but not"
    " from the gradient. "
    "Keep it from arising: no row of nothing but -inf before a softmax"
)
Answer = Mapping[str, Any]


def judge(
    exercise: Exercise, called: str, cases: Sequence[Case], readings: Sequence[Sequence[Answer]]
) -> ExerciseReport:
    """Return the report on what was answered to all cases, in one or more readings of the learner's
    parameters.
    """
    if any(answer.get("begun") is False for answer in readings[0]):
        return ExerciseReport(exercise=exercise.name, title=exercise.title, object=called, state="not begun")
    asked = [place for place, answer in enumerate(readings[0]) if not answer.get("skipped")]
    cases = [cases[place] for place in asked]
    readings = [[answers[place] for place in asked] for answers in readings]
    right = [exercise.expected(case) for case in cases]
    chosen, explained, whole = _chosen(exercise, cases, readings, right)
    judged = [_judge(exercise, *each) for each in zip(cases, chosen, right, strict=True)]
    wrong = any(each.verdict in ("wrong", "failed") for each in judged)
    notes = _notes(chosen)
    faulty = wrong or any(serious for serious, _ in notes)
    shown = [words for serious, words in notes if faulty or serious or "in place" in words]
    differs = any(_differs(exercise, *each) for each in zip(cases, chosen, right, strict=True))
    ending = "" if explained or not differs else NOTED if shown else UNNAMED if whole else CUT
    return ExerciseReport(
        exercise=exercise.name,
        title=exercise.title,
        object=called,
        state="wrong" if faulty else "right",
        cases=judged,
        diagnoses=[explanation(each, exercise) for each in explained] if wrong else [],
        notes=shown,
        lines=next((list(each["lines"]) for each in chosen if each.get("lines")), []),
        ending=ending,
    )


def _chosen(
    exercise: Exercise, cases: Sequence[Case], readings: Sequence[Sequence[Answer]], right: Sequence[Outputs]
) -> tuple[Sequence[Answer], list[list[Mistake]], bool]:
    """Return the reading that is right, or one that mistakes explain, else the first; the mistakes, and whether
    all sets of them were tried.
    """
    for answers in readings:
        judged = [_judge(exercise, *each) for each in zip(cases, answers, right, strict=True)]
        if all(each.verdict not in ("wrong", "failed") for each in judged):
            return answers, [], True
    for answers in readings:
        found = diagnose_one(exercise, cases, [_outputs(each) for each in answers])
        if found:
            return answers, found, True
    answered = [_outputs(each) for each in readings[0]]
    two = diagnose_two(exercise, cases, answered)
    if two or not any(_differs(exercise, *each) for each in zip(cases, readings[0], right, strict=True)):
        return readings[0], two, True
    three = diagnose_three(exercise, cases, answered)
    return readings[0], three.found, three.whole


def _notes(answers: Sequence[Answer]) -> list[tuple[bool, str]]:
    every = [(bool(serious), words) for answer in answers for serious, words in answer.get("notes", [])]
    return list(dict.fromkeys(every))


def _outputs(answer: Answer) -> Outputs | None:
    if "outputs" not in answer:
        return None
    return [np.array(each["data"], float).reshape(each["shape"]) for each in answer["outputs"]]


def _judge(exercise: Exercise, case: Case, answer: Answer, right: Outputs) -> CaseReport:
    """Return how one case went."""
    given = _outputs(answer)
    if given is None:
        return CaseReport(name=case.name, verdict="failed", words=str(answer["error"]))
    words = _differs(exercise, case, answer, right)
    return (
        CaseReport(name=case.name, verdict="wrong", words=words)
        if words
        else _judge_slopes(exercise, case, answer)
    )


def _differs(exercise: Exercise, case: Case, answer: Answer, right: Outputs) -> str:
    """Return in which output an answer differs from the right one, and how; nothing where there is no answer."""
    for name, one, other in zip(case.outputs or exercise.outputs, _outputs(answer) or [], right, strict=False):
        if not alike(one, other, case.counts):
            words = difference(one, other, case.counts)
            return f"{name}: {words}" if len(exercise.outputs) > 1 else words
    return ""


def _judge_slopes(exercise: Exercise, case: Case, answer: Answer) -> CaseReport:
    if not case.slopes:
        return CaseReport(name=case.name, verdict="right")
    slopes = answer.get("slopes") or {}
    if not slopes:
        words = "NumPy has no gradients" if case.name == "gradients" else ""
        return CaseReport(name=case.name, verdict="not compared" if words else "right", words=words)
    known = exercise.slopes(case)
    cut = [name for name in known if slopes.get(name) is None]
    broken = [name for name in known if slopes.get(name) is not None and not np.isfinite(slopes[name])]
    other = [name for name in known if name not in cut + broken and not same_slope(slopes[name], known[name])]
    if cut:
        words = DETACHED.format(names=", ".join(cut))
    elif broken:
        words = NOT_A_NUMBER.format(names=", ".join(broken))
    elif other:
        name, should = other[0], sum(known[other[0]]) / 2
        words = f"the gradient of {name} is {slopes[name]:.4g}, and should be {should:.4g}: " + (
            "is a part of the way detached?"
        )
    else:
        return CaseReport(name=case.name, verdict="right")
    return CaseReport(name=case.name, verdict="wrong", words=words)


def difference(given: Array, right: Array, counts: Array | None) -> str:
    """Return in a few words how an answer differs from the right one."""
    if given.ndim == right.ndim == 1 and given.shape != right.shape and _whole(given) and _whole(right):
        return f"{_begun(given)}, should be {_begun(right)}"
    if given.shape != right.shape:
        return f"shape {_shape(given)}, should be {_shape(right)}"
    if np.isnan(given).any() and not np.isnan(right).any():
        return f"{int(np.isnan(given).sum())} of {given.size} numbers are NaN"
    apart = np.abs(given - right)
    if counts is not None:
        apart = np.where(counts.reshape(counts.shape + (1,) * (apart.ndim - counts.ndim)), apart, 0)
    place = np.unravel_index(int(np.argmax(apart)), apart.shape)
    if given.size > 1 and given.ndim == 1 and np.array_equal(right, np.round(right)):
        return f"{given.astype(int).tolist()}, should be {right.astype(int).tolist()}"
    where = f" at [{', '.join(str(int(each)) for each in place)}]" if given.ndim else ""
    return f"{given[place]:.4g}{where}, should be {right[place]:.4g}"


def _whole(array: Array) -> bool:
    return bool(np.isfinite(array).all() and np.array_equal(array, np.round(array)))


def _begun(tokens: Array) -> str:
    """Write the first numbers of a sequence of whole ones, and how many there are of a longer one."""
    found = ", ".join(str(int(each)) for each in tokens[:MOST])
    return f"[{found}]" if len(tokens) <= MOST else f"[{found}, ...] ({len(tokens)})"


def _shape(array: Array) -> str:
    return f"({', '.join(map(str, array.shape))})"


def explanation(mistakes: Sequence[Mistake], exercise: Exercise) -> Diagnosis:
    """Return mistakes in words, with a small input on which they show."""
    findings = [
        Finding(
            name=plain_words(each.__name__),
            did=" ".join((each.__doc__ or "").split()),
            instead=each.instead,
            paper=each.paper,
            example=example_of(each, exercise),
        )
        for each in mistakes
    ]
    return Diagnosis(findings=findings)


def plain_words(name: str) -> str:
    """Return the name of a class as words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
