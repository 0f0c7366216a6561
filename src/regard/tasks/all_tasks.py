"""All tasks by name, and tasks of a user's Python file.

The module of a task is imported on first use, because Dates needs an additional library.
"""

import functools
import importlib
import importlib.util
import inspect
from dataclasses import dataclass
from pathlib import Path

import torch

from regard.arguments import public
from regard.errors import unknown_choice
from regard.io import is_file
from regard.plugins import PluginError, check_loaded, describe_error, plugin_imports
from regard.tasks.base import AnyTask, Task
from regard.tasks.pairs import PairTask
from regard.tasks.tokens import TokenTask

TASKS = {  # Name, module and class of every task; its config class is also in `regard/__init__.py`
    "counting": "counting:Counting",
    "difference": "counting:Difference",
    "signal": "counting:Signal",
    "signal2": "counting:Signal2",
    "recall": "recall:Recall",
    "copy": "pairs:Copy",
    "reverse": "pairs:Reverse",
    "sort": "pairs:Sort",
    "dates": "dates:Dates",
    "phrases": "phrases:Phrases",
    "induction": "language_tasks:Induction",
    "mqar": "language_tasks:Mqar",
    "modular": "language_tasks:Modular",
    "regression": "language_tasks:Regression",
    "selective-copy": "language_tasks:SelectiveCopy",
    "parity": "language_tasks:Parity",
    "dyck": "language_tasks:Dyck",
    "translation": "translation:Translation",
    "text": "text:Text",
}


def find_task(name: str) -> type[AnyTask]:
    """Return the class of a task, given its name or a Python file.

        >>> find_task("counting").__name__
        'Counting'

    A file must define exactly one subclass of `Task`, `PairTask` or `TokenTask`. A file is executed once per process,
    and again if the file changes.
    """
    if name in TASKS:
        module, _, cls = TASKS[name].partition(":")
        task: type[AnyTask] = getattr(importlib.import_module(f"regard.tasks.{module}"), cls)
        return task
    if not name.endswith(".py"):
        raise unknown_choice("task", name, TASKS, other="a Python file")
    path = Path(name)
    if not is_file(path):
        raise PluginError(f"task file {name!r} does not exist: give the path of a Python file")
    return _load_task_file(path.resolve(), path.stat().st_mtime_ns)


@functools.cache
def _load_task_file(path: Path, changed: int) -> type[AnyTask]:
    """Execute a file and return its task; `changed`, the modification time in ns, is part of the cache key."""
    spec = importlib.util.spec_from_file_location(f"regard_task_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    check_loaded(path, again=True)
    try:
        with plugin_imports(path.parent, spec.name):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's file can fail in any way
        raise PluginError(f"task file {str(path)!r} failed: {describe_error(error)}; fix the file") from error
    classes = [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, Task | PairTask | TokenTask)
        and value.__module__ == module.__name__
    ]
    if len(classes) != 1:
        raise PluginError(
            f"task file {str(path)!r} defines {len(classes)} tasks: define one subclass of Task, PairTask or TokenTask"
        )
    return classes[0]


@public
@dataclass(frozen=True)
class Example:
    """One input of a task and its answer."""

    task: str
    summary: str
    input: str
    answer: str

    def __str__(self) -> str:
        return f"{self.task}: {self.input!r} -> {self.answer}"


@public
def list_tasks() -> list[Example]:
    """Return one fixed example of each synthetic task."""
    results = []
    for seed, task in enumerate(filter(lambda task: task.draws, map(find_task, TASKS))):
        pair = task.restore(None, {}).example(torch.Generator().manual_seed(seed))
        results.append(Example(task.name, task.summary, *pair))
    return results
