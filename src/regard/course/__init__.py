"""The course: lessons, exercises, and a checker for learners' code.

`exercises/` contains inputs, and `mistakes/` contains the correct solution, whose methods are the stubs, and
solutions with a known mistake. A learner's code runs in a separate process (`sandbox`, `worker`,
`learner_calls`). The main process grades the answers of this code (`grading`) and finds the mistakes that
explain incorrect answers (`diagnosis`).
"""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.course.check import build_stubs, check, write_stubs
    from regard.course.notebooks import build_notebooks
    from regard.course.pages import check_site, write_site
    from regard.course.report import CaseReport, CheckReport, Diagnosis, ExerciseReport, Finding

late(__name__)

__all__ = [
    "CaseReport",
    "CheckReport",
    "Diagnosis",
    "ExerciseReport",
    "Finding",
    "build_notebooks",
    "build_stubs",
    "check",
    "check_site",
    "write_site",
    "write_stubs",
]
