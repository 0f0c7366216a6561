"""Check a learner's code in this process, which is faster than in a separate process."""

import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard_course.arrays import decode_outputs, equal_outputs
from regard_course.candidates import find_candidates
from regard_course.exercises.course import find_exercise
from regard_course.exercises.exercise import Exercise
from regard_course.grading import grade
from regard_course.learner_calls import collect_answers, record_answer
from regard_course.report import ExerciseReport

SCORE = "def score(q, k):\n    return q @ k.transpose(0, 2, 1) / q.shape[-1] ** 0.5\n"
LEARNERS = Path(__file__).parent / "learners"
Command = Callable[..., tuple[int, str, str]]


def write(folder: Path, text: str) -> Path:
    """Write a learner's file."""
    path = folder / "mine.py"
    path.write_text(text, encoding="utf-8")
    return path


def execute(source: str) -> dict[str, Any]:
    """Return the names that a learner's file defines."""
    module = types.ModuleType("learner")
    sys.modules["learner"] = module
    exec(compile(source, "learner.py", "exec"), vars(module))
    return vars(module)


def check_source(source: str, name: str | Exercise, seed: int = 0) -> ExerciseReport:
    """Return the report on a file's answer to one exercise."""
    exercise, names = find_exercise(name) if isinstance(name, str) else name, execute(source)
    function = find_candidates(names, [exercise], chosen=True).exercises[exercise.name]
    cases = exercise.cases(seed)
    answers: list[dict[str, Any]] = []

    def is_right(answer: dict[str, Any]) -> bool:
        outputs = decode_outputs(answer)
        return outputs is not None and equal_outputs(cases[0], outputs, exercise.expected(cases[0]))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # wrong code divides by zero
        collect_answers(exercise, names[function], cases, is_right, answers.append)
        attempts: list[list[dict[str, Any]]] = []
        for answer in answers:
            if answer["attempt"] == len(attempts):
                attempts.append([])
            attempts[answer["attempt"]].append(answer)
        return grade(exercise, function, seed, attempts, lambda case: record_answer(exercise, names[function], case))


def mistake_names(report: ExerciseReport) -> list[list[str]]:
    """Return the names of the mistakes in every explanation."""
    return [[finding.name for finding in diagnosis.findings] for diagnosis in report.diagnoses]
