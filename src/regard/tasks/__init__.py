"""Synthetic tasks with known answers and known relevance, and translation from parallel text.

The module of a task is imported on first use, because Dates needs an additional library.
"""

import functools
import importlib
import importlib.util
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from regard.errors import unknown_choice
from regard.io.reading import is_file
from regard.late import late
from regard.plugins import PluginError, check_loaded, describe_error, plugin_imports
from regard.tasks.base import (
    NULL as NULL,
    PAST_END as PAST_END,
    AnyTask as AnyTask,
    Task as Task,
    TaskConfig as TaskConfig,
)
from regard.tasks.batch import (
    IGNORE as IGNORE,
    Batch as Batch,
    BatchContext as BatchContext,
    BatchSource as BatchSource,
    TokenBatch as TokenBatch,
)
from regard.tasks.pairs import (
    Pair as Pair,
    PairTask as PairTask,
    SequenceTask as SequenceTask,
    alignment_mask as alignment_mask,
)
from regard.tasks.tokens import PADDING as PADDING, TokenTask as TokenTask

if TYPE_CHECKING:
    from regard.tasks.counting import Counting as Counting, Difference as Difference
    from regard.tasks.dates import Dates as Dates, DatesTaskConfig as DatesTaskConfig
    from regard.tasks.dyck import Dyck as Dyck, DyckTaskConfig as DyckTaskConfig
    from regard.tasks.induction import Induction as Induction, InductionTaskConfig as InductionTaskConfig
    from regard.tasks.modular import Modular as Modular, ModularTaskConfig as ModularTaskConfig
    from regard.tasks.mqar import Mqar as Mqar, MqarTaskConfig as MqarTaskConfig
    from regard.tasks.parity import Parity as Parity, ParityTaskConfig as ParityTaskConfig
    from regard.tasks.phrases import Phrases as Phrases, PhrasesTaskConfig as PhrasesTaskConfig
    from regard.tasks.recall import Recall as Recall, RecallTaskConfig as RecallTaskConfig
    from regard.tasks.regression import Regression as Regression, RegressionTaskConfig as RegressionTaskConfig
    from regard.tasks.selective_copy import (
        SelectiveCopy as SelectiveCopy,
        SelectiveCopyTaskConfig as SelectiveCopyTaskConfig,
    )
    from regard.tasks.sequences import (
        Copy as Copy,
        Reverse as Reverse,
        SequenceConfig as SequenceConfig,
        Sort as Sort,
    )
    from regard.tasks.signal import Signal as Signal, Signal2 as Signal2
    from regard.tasks.text import Text as Text, TextTaskConfig as TextTaskConfig
    from regard.tasks.translation import Translation as Translation
    from regard.tasks.translation_config import TranslationTaskConfig as TranslationTaskConfig

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
    "induction": "Induction",
    "mqar": "Mqar",
    "modular": "Modular",
    "regression": "Regression",
    "selective-copy": "SelectiveCopy",
    "parity": "Parity",
    "dyck": "Dyck",
    "translation": "Translation",
    "text": "Text",
}
"""Name and class of every task."""


def find_task(name: str) -> type[AnyTask]:
    """Return the class of a task, given its name or a Python file.

        >>> find_task("counting").__name__
        'Counting'

    A file must define exactly one subclass of `Task`, `PairTask` or `TokenTask`. A file is executed once per
    process, and again if the file changes. Raises `InputError` for an unknown name, or for a file that is
    missing, fails, or does not define exactly one task.
    """
    if name in TASKS:
        task: type[AnyTask] = getattr(importlib.import_module(__name__), TASKS[name])
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
    del changed
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
            f"task file {str(path)!r} defines {len(classes)} tasks: define one subclass of Task, PairTask or "
            f"TokenTask"
        )
    return classes[0]


@dataclass(frozen=True)
class Example:
    """One input of a task and its answer."""

    task: str
    summary: str
    input: str
    answer: str

    def __str__(self) -> str:
        return f"{self.task}: {self.input!r} -> {self.answer}"


def list_tasks() -> list[Example]:
    """Return one fixed example of each synthetic task."""
    results = []
    for seed, task in enumerate(filter(lambda task: task.draws, map(find_task, TASKS))):
        pair = task.restore(None, {}).example(torch.Generator().manual_seed(seed))
        results.append(Example(task.name, task.summary, *pair))
    return results
