"""The files for teachers in `examples/classroom/`."""

import base64
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard_course.exercises.course import find_exercise

CLASSROOM = Path(__file__).parents[2] / "examples" / "classroom"
WRONG = "import numpy as np\n\ndef score(q, k):\n    return q @ k.transpose(0, 2, 1)\n"


def test_the_exercise_of_the_tutorial_names_its_mistakes(tmp_path: Path) -> None:
    own = CLASSROOM / "own_exercise.py"
    mine = tmp_path / "mine.py"
    text = own.read_text(encoding="utf-8").partition("average = ")[0].replace("from regard_course", "# from")
    mine.write_text(text, encoding="utf-8")
    assert regard.check(mine, exercises=own).right
    text = text.replace("def moving_average", "def right").replace("def looks_ahead", "def moving_average")
    mine.write_text(text, encoding="utf-8")
    (report,) = regard.check(mine, exercises=own, seed=5).exercises
    assert report.explanation == "The window contains later steps." and report.points == 1  # of one step


def test_the_workflow_reports_partial_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (CLASSROOM / "classroom.yml").read_text(encoding="utf-8")
    block = re.search(r"python - <<'POINTS'.*?\n(.*?)\n +POINTS", text, re.DOTALL)
    assert block is not None and "regard check exercises --seed" in text
    lines = block[1].splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    (tmp_path / "a.py").write_text(WRONG, encoding="utf-8")
    (tmp_path / "b.py").write_text(WRONG.replace("1)\n", "1) / q.shape[-1] ** 0.5\n"), encoding="utf-8")
    reports = [regard.check(tmp_path / name).json() for name in ("a.py", "b.py")]
    for content, score in ((reports[0], 0), (reports, 9)):
        (tmp_path / "report.json").write_text(json.dumps(content), encoding="utf-8")
        script = "\n".join(line[indent:] for line in lines)
        done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
        result = json.loads(base64.b64decode(done.stdout.removeprefix("result=")))
        (test,) = result["tests"]
        assert test["name"] == "score" and test["score"] == score
        assert result["status"] == ("pass" if score else "fail")


def test_the_inputs_of_the_otter_test_exist() -> None:
    text = (CLASSROOM / "otter_attention.py").read_text(encoding="utf-8")
    names = re.findall(r'"([^"]+)"', text.partition("INPUTS = (")[2].partition("\n)")[0])
    assert names == [case.name for case in find_exercise("attention").cases(0)]
    assert "10 * answer.points" in (CLASSROOM / "nbgrader_attention.py").read_text(encoding="utf-8")
