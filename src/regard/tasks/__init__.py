"""Synthetic tasks: each knows its answers and what every answer depends on. And translation, whose text does.

A task's module is imported when it is asked for: Dates brings a library of its own along.
"""

import functools
import importlib
import importlib.util
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from regard.errors import InputError, unknown_choice
from regard.io.reading import is_file
from regard.late import late
from regard.plugins import PluginError, describe_error, plugin_imports
from regard.tasks.base import NULL, PAST_END, AnyTask, Task, TaskConfig
from regard.tasks.batch import Batch
from regard.tasks.pairs import Pair, PairTask, SequenceTask, links
from regard.tasks.source import Beginning, Source

if TYPE_CHECKING:
    from regard.tasks.counting import Counting
    from regard.tasks.dates import Dates, DatesConfig
    from regard.tasks.difference import Difference
    from regard.tasks.phrases import Phrases, PhrasesConfig
    from regard.tasks.recall import Recall, RecallConfig
    from regard.tasks.sequences import Copy, Reverse, SequenceConfig, Sort
    from regard.tasks.signal import Signal, Signal2
    from regard.tasks.translation import Translation, TranslationConfig

late(__name__)

TASKS = {
    "counting": "Counting",
    "difference": "Difference",
    "signal": "Signal",
    "signal2": "Signal2",
    "recall": "Recall",
    "copy": "Copy",
    "reverse": "Reverse",
    "sort": "Sort",
    "dates": "Dates",
    "phrases": "Phrases",
    "translation": "Translation",
}
"""Every task by name, with its class."""
_copies: dict[str, Path] = {}
"""Where the content of a task's file lies on a machine that has not got the file itself."""


def find_task(name: str) -> type[AnyTask]:
    """Return the task called `name`, or the one subclass of `Task` or `PairTask` that the Python file `name`
    defines.

    A file is run once in a process, unless it changes. Raises `InputError` for an unknown name, or a file that is
    missing, fails, or has not exactly one task.
    """
    if not isinstance(name, str):
        raise InputError(f"task {name!r} is no name: choose {', '.join(TASKS)}, or a Python file")
    if name in TASKS:
        found: type[AnyTask] = getattr(importlib.import_module(__name__), TASKS[name])
        return found
    if not name.endswith(".py"):
        raise unknown_choice("task", name, TASKS, other="a Python file")
    path = _copies.get(name, Path(name))
    if not is_file(path):
        raise PluginError(f"task file {name!r} does not exist: give the path of a Python file")
    return _task_of_file(path.resolve(), path.stat().st_mtime_ns)


def use_copy(name: str, copy: Path) -> None:
    """Let the file `copy` stand for the task file `name` in this process."""
    _copies[name] = copy


@functools.cache
def _task_of_file(path: Path, changed: int) -> type[AnyTask]:
    """Run a file as it was `changed`, in nanoseconds since 1970, and return its task."""
    del changed
    spec = importlib.util.spec_from_file_location(f"regard_task_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        with plugin_imports(path.parent, spec.name):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's file can fail in any way
        raise PluginError(f"task file {str(path)!r} cannot be run: {describe_error(error)}; mend it") from error
    found = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Task | PairTask) and value.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise PluginError(
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

    def __str__(self) -> str:
        return f"{self.task}: {self.input!r} -> {self.answer}"


def examples() -> list[Example]:
    """Return an example of each task that draws its own, always the same."""
    found = []
    for seed, task in enumerate(filter(lambda each: each.draws, map(find_task, TASKS))):
        drawn = task.restore(None, {}).example(torch.Generator().manual_seed(seed))
        found.append(Example(task.name, task.summary, *drawn))
    return found


__all__ = [
    "NULL",
    "PAST_END",
    "TASKS",
    "AnyTask",
    "Batch",
    "Beginning",
    "Copy",
    "Counting",
    "Dates",
    "DatesConfig",
    "Difference",
    "Example",
    "Pair",
    "PairTask",
    "Phrases",
    "PhrasesConfig",
    "Recall",
    "RecallConfig",
    "Reverse",
    "SequenceConfig",
    "SequenceTask",
    "Signal",
    "Signal2",
    "Sort",
    "Source",
    "Task",
    "TaskConfig",
    "Translation",
    "TranslationConfig",
    "examples",
    "find_task",
    "links",
    "use_copy",
]
