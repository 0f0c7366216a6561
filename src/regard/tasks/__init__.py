"""Synthetic tasks: each knows its answers and what every answer depends on."""

import importlib.util
import inspect
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import torch

from regard.errors import InputError
from regard.tasks.base import NULL, PAD, Batch, Task, TaskConfig
from regard.tasks.counting import Counting
from regard.tasks.dates import Dates, DatesConfig
from regard.tasks.difference import Difference
from regard.tasks.pairs import Pair, PairTask, SequenceTask, links
from regard.tasks.recall import Recall, RecallConfig
from regard.tasks.sequences import Copy, Reverse, SequenceConfig, Sort
from regard.tasks.signal import Signal, Signal2
from regard.tasks.translation import Translation, TranslationConfig

AnyTask = Task | SequenceTask
"""A task with a number for each output step, or one from sequence to sequence."""
TASKS: dict[str, type[Task | PairTask]] = {
    task.name: task for task in (Counting, Difference, Signal, Signal2, Recall, Copy, Reverse, Sort, Dates)
}
"""Those that draw their own samples."""


def find_task(name: str) -> type[AnyTask]:
    """Return the task called `name`, translation among them, or the one subclass of `Task` or `PairTask` that
    the Python file `name` defines.

    Raises `InputError` for an unknown name, or a file that is missing, fails, or has not exactly one task.
    """
    if name in TASKS:
        return TASKS[name]
    if name == Translation.name:
        return Translation
    if name.endswith(".py"):
        return _task_of_file(Path(name))
    names = [*TASKS, Translation.name]
    near = get_close_matches(name, names, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    raise InputError(f"task {name!r} is unknown: choose {', '.join(names)} or a Python file{meant}")


def _task_of_file(path: Path) -> type[Task | PairTask]:
    if not path.is_file():
        raise InputError(f"task file {str(path)!r} does not exist: give the path of a Python file")
    spec = importlib.util.spec_from_file_location(f"regard_task_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a user's file can fail in any way
        raise InputError(f"task file {str(path)!r} cannot be run: {type(error).__name__}: {error}") from error
    found = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Task | PairTask) and value.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise InputError(
            f"task file {str(path)!r} defines {len(found)} tasks: define one subclass of Task or PairTask"
        )
    return found[0]


@dataclass(frozen=True)
class Example:
    """One input of a task and its answer."""

    task: str
    summary: str
    input: str
    answer: str


def examples() -> list[Example]:
    """Return an example of each task, always the same."""
    return [_example(task_class(), seed) for seed, task_class in enumerate(TASKS.values())]


def _example(task: Task | PairTask, seed: int) -> Example:
    generator = torch.Generator().manual_seed(seed)
    if isinstance(task, PairTask):
        pair = task.pair(generator)
        return Example(task.name, task.summary, pair.source, pair.target)
    inputs, targets, _ = task.sample(1, generator)
    answer = " ".join(map(str, targets[0].tolist()))
    return Example(task.name, task.summary, task.render(inputs[0]), answer)


__all__ = [
    "NULL",
    "PAD",
    "TASKS",
    "AnyTask",
    "Batch",
    "Copy",
    "Counting",
    "Dates",
    "DatesConfig",
    "Difference",
    "Example",
    "Pair",
    "PairTask",
    "Recall",
    "RecallConfig",
    "Reverse",
    "SequenceConfig",
    "SequenceTask",
    "Signal",
    "Signal2",
    "Sort",
    "Task",
    "TaskConfig",
    "Translation",
    "TranslationConfig",
    "examples",
    "find_task",
    "links",
]
