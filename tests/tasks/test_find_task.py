"""Tasks are found by name or in a user file."""

import math
import os
from pathlib import Path

import pytest

from regard.errors import InputError
from regard.tasks.all_tasks import TASKS, find_task, list_tasks
from regard.tasks.base import Task
from regard.tasks.batch import IGNORE
from regard.tasks.counting import Counting
from regard.tasks.language_tasks import Regression
from regard.tasks.pairs import PairTask
from regard.tasks.tokens import TokenTask

OWN_TASK = '''
from regard.tasks.base import Task

class Vowels(Task):
    """How many A?"""
    name = "vowels"
    summary = "count A"
    outputs = 1

    def answer(self, inputs):
        return (inputs == 0).sum(1, keepdim=True)

    def relevance(self, inputs):
        return (inputs == 0).unsqueeze(1)
'''


def test_by_name() -> None:
    assert find_task("counting") is Counting
    assert list(TASKS)[:4] == ["counting", "difference", "signal", "signal2"]
    assert list(TASKS)[4:10] == ["recall", "copy", "reverse", "sort", "dates", "phrases"]
    language_tasks = ["induction", "mqar", "modular", "regression", "selective-copy", "parity", "dyck"]
    assert list(TASKS)[10:] == [*language_tasks, "translation", "text"]


def test_in_a_users_file(tmp_path: Path) -> None:
    file = tmp_path / "check.py"
    file.write_text(OWN_TASK)
    task = find_task(str(file)).restore(None, {})
    assert isinstance(task, Task)
    assert task.answer(task.parse("ABA")).tolist() == [[2]]


def test_a_file_is_run_once_unless_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "check.py"
    file.write_text(OWN_TASK + "\nwith open(__file__ + '.runs', 'a') as runs: runs.write('x')\n")
    assert find_task(str(file)) is find_task(str(tmp_path / "." / "check.py"))
    assert (tmp_path / "check.py.runs").read_text() == "x"
    before = find_task(str(file))
    os.utime(file, ns=(1, 1))
    assert find_task(str(file)) is not before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("countign", None, "task 'countign' is unknown: did you mean counting?"),
        ("none.py", None, "task file '.*none.py' does not exist"),
        ("bad.py", "1 / 0", "task file '.*bad.py' failed: ZeroDivisionError: division by zero"),
        ("empty.py", "", "defines 0 tasks: define one subclass of Task"),
    ],
)
def test_unknown_task_is_reported(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    if name.endswith(".py"):
        file = tmp_path / name
        name = str(file)
        if content is not None:
            file.write_text(content)
    with pytest.raises(InputError, match=message):
        find_task(name)


def test_examples_are_parsed_and_answered() -> None:
    assert [example.task for example in list_tasks()] == [name for name in TASKS if name not in ("translation", "text")]
    for example in list_tasks():
        task = find_task(example.task).restore(None, {})
        if isinstance(task, PairTask):
            known = task.known(example.input)
            assert known is not None and known.target == example.answer
        elif isinstance(task, Regression):
            answer = task.answer(task.parse(example.input))[0, -1]
            assert math.isfinite(float(example.answer)) and answer.isfinite()
        elif isinstance(task, TokenTask):
            answers = task.answer(task.parse(example.input))[0]
            assert task.render(answers[answers != IGNORE]) == example.answer
        else:
            assert isinstance(task, Task)
            assert " ".join(map(str, task.answer(task.parse(example.input))[0].tolist())) == example.answer
