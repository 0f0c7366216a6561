"""The process of a learner's code receives no expected answer."""

from pathlib import Path

import pytest

import regard
from tests.course.checking import write

SPY = """
import gc, sys
import numpy as np

SEEN = []

def score(query, key):
    right = query @ key.transpose(0, 2, 1) / query.shape[-1] ** 0.5
    if SEEN:
        return right  # later frames contain this function's own results
    SEEN.append(1)
    frame, values = sys._getframe(), []
    while frame is not None:
        values += [*frame.f_locals.values(), *frame.f_globals.values()]
        frame = frame.f_back
    values += gc.get_objects()
    for value in values:
        if isinstance(value, np.ndarray) and value is not right and value.shape == right.shape:
            if value.dtype == float and np.allclose(value, right):
                raise ValueError("an expected answer is in this process")
    known = [name for name in sys.modules if name.startswith("regard_course")]
    if any(word in name for name in known for word in ("mistakes", "exercises", "grading", "diagnosis")):
        raise ValueError(f"the solutions are in this process: {known}")
    return right
"""


@pytest.mark.parametrize("imports", ["", "import torch\n"], ids=["numpy", "torch"])
def test_frames_objects_and_modules_contain_no_solution(tmp_path: Path, imports: str) -> None:
    report = regard.check(write(tmp_path, imports + SPY))
    assert report.right, report


READS = "reads the solutions of the course: remove this import"


@pytest.mark.parametrize(
    "code",
    [
        "from regard_course.mistakes.solution import Solution\nattention = Solution().attention",
        "from regard_course.exercises.course import EXERCISES\ndef attention(q, k, v, mask=None): ...",
        "import importlib\nimportlib.import_module('regard_course.mistakes.solution')",
        "import regard_course, pathlib\n"
        "pathlib.Path(regard_course.__file__).with_name('mistakes').joinpath('solution.py').read_text()",
        "import regard\ndef attention(q, k, v, mask=None): ...\nregard.check(attention)",
        "def score(q, k):\n    try:\n        from regard_course.mistakes.solution import Solution\n"
        "    except Exception:\n        pass\n    return Solution().score(q, k)",
    ],
    ids=["import", "exercises", "importlib", "file", "check", "answer"],
)
def test_a_file_that_reads_the_solutions_is_stopped(tmp_path: Path, code: str) -> None:
    report = regard.check(write(tmp_path, code + "\n"))
    assert report.exercises[0].state == "stopped" and READS in report.exercises[0].trouble, report
