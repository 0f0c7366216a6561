"""The course: lessons, exercises, and the checker of a learner's own code.

`exercises/` holds stubs and inputs, `reference/` the right answers, `mistakes/` solutions with a known mistake. A
learner's code runs in a separate process (`sandbox`, `worker`, `learner_calls`). The main process compares its
answers (`grading`) and finds the mistakes that explain them (`diagnosis`).
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
