"""The course: exercises, and the checker of a learner's own code.

`exercises/` asks, `loops/` answers in plain loops, `catalogue/` answers as learners do when they go wrong. A
learner's code runs in a process of its own (`sandbox.py`, `child.py`, `answering.py`); what it answers is judged
here (`judging.py`, `diagnosis.py`).
"""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.course.check import check, stubs_in, write_stubs
    from regard.course.notebooks import notebooks_in
    from regard.course.pages import check_site, write_site
    from regard.course.report import CaseReport, CheckReport, Diagnosis, ExerciseReport, Finding

late(__name__)

__all__ = [
    "CaseReport",
    "CheckReport",
    "Diagnosis",
    "ExerciseReport",
    "Finding",
    "check",
    "check_site",
    "notebooks_in",
    "stubs_in",
    "write_site",
    "write_stubs",
]
