"""Finding a task by name, or in a file of one's own."""

from pathlib import Path

import pytest

from regard.errors import InputError
from regard.tasks import TASKS, Counting, PairTask, Task, examples, find_task

OWN_TASK = '''
from regard.tasks import Task

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
    assert list(TASKS)[4:] == ["recall", "copy", "reverse", "sort", "dates"]


def test_in_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN_TASK)
    task = find_task(str(file))()
    assert isinstance(task, Task)
    assert task.answer(task.parse("ABA")).tolist() == [[2]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("countign", None, "task 'countign' is unknown: .* or a Python file; did you mean counting?"),
        ("none.py", None, "task file '.*none.py' does not exist"),
        ("bad.py", "1 / 0", "task file '.*bad.py' cannot be run: ZeroDivisionError: division by zero"),
        ("empty.py", "", "defines 0 tasks: define one subclass of Task"),
    ],
)
def test_what_cannot_be_found_is_said(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    if name.endswith(".py"):
        file = tmp_path / name
        name = str(file)
        if content is not None:
            file.write_text(content)
    with pytest.raises(InputError, match=message):
        find_task(name)


def test_examples_answer_themselves() -> None:
    assert [each.task for each in examples()] == list(TASKS)
    for each in examples():
        task = TASKS[each.task]()
        if isinstance(task, PairTask):
            known = task.known(each.input)
            assert known is not None and known.target == each.answer
        else:
            assert " ".join(map(str, task.answer(task.parse(each.input))[0].tolist())) == each.answer
