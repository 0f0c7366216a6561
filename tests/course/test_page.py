"""docs/how-to/check-your-code.md lists the exercises."""

import re
from pathlib import Path

from regard_course.exercises.course import EXERCISES
from regard_course.mistakes.known import MISTAKES

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "check-your-code.md").read_text(encoding="utf-8")


def test_the_page_lists_every_exercise_and_the_number_of_mistakes() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == [exercise.name for exercise in EXERCISES]
    (count,) = re.findall(r"over (\d+) known mistakes", PAGE)
    assert int(count) < len(MISTAKES) < int(count) + 10
