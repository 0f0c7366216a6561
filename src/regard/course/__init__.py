"""The course: lessons, exercises, and a checker for learners' code.

`exercises/` contains inputs, and `mistakes/` contains the correct solution, whose methods are the stubs, and
solutions with a known mistake. A learner's code runs in a separate process (`sandbox`, `processes`, `worker`,
`learner_calls`), which imports neither of them. The main process grades the answers of this code (`grading`) and
finds the mistakes that explain incorrect answers (`diagnosis`). `own` loads exercises from outside the package,
and `marks` checks the answers of a class. `translations/` contains the course in other languages.
"""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.course.check import build_stubs as build_stubs, check as check, write_stubs as write_stubs
    from regard.course.marks import Mark as Mark, Marks as Marks, mark_folder as mark_folder
    from regard.course.notebooks import build_notebooks as build_notebooks
    from regard.course.originals import build_texts as build_texts, list_gaps as list_gaps
    from regard.course.own import make_exercise as make_exercise
    from regard.course.pages import check_site as check_site, write_site as write_site
    from regard.course.report import (
        CaseReport as CaseReport,
        CheckReport as CheckReport,
        Diagnosis as Diagnosis,
        ExerciseReport as ExerciseReport,
        Finding as Finding,
    )

late(__name__)
