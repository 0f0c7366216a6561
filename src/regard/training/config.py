"""Everything that decides a training, as frozen dataclasses: the task's size, the model, the training.

The command line is generated from these classes, so the docstring under a field is its `--help`.
"""

import dataclasses
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from regard.errors import InputError, check_range
from regard.models import QueryModelConfig
from regard.tasks import Task, TaskConfig, find_task
from regard.training.recipes import RECIPES


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How to train."""

    steps: int = 2000
    """Training steps, one batch each."""
    batchsize: int = 100
    """Samples in a batch."""
    lr: float | None = None
    """Learning rate: the peak of the recipe's schedule, or its constant. None: the recipe's own, for recipe
    regard 0.05, with encoder layers 0.005; for recipe seed 0.01, with encoder layers 0.001."""
    recipe: Literal["regard", "seed"] = "regard"
    """regard: Adam with warm-up, cosine decay, clipped gradients and a faster output layer, from small random
    queries. seed: Adam at a constant rate, from zero queries and positions, as the primer did it."""
    vary_len: bool = False
    """Train over all lengths from 1 to max_len, with a mask; the model gains one learned step to rest on."""
    seed: int = 0
    """Random seed of initialisation and samples (0 or more)."""

    def __post_init__(self) -> None:
        """Raise `InputError` where a value is out of range."""
        check_range("steps", self.steps, 1, 10**9)
        check_range("batchsize", self.batchsize, 1, 10**6)
        check_range("seed", self.seed, 0, 2**32 - 1)
        if self.lr is not None and not 0 < self.lr < float("inf"):
            raise InputError(f"lr {self.lr} is out of range: a finite number above 0")
        if self.recipe not in RECIPES:
            raise InputError(f"recipe {self.recipe!r} is unknown: choose {' or '.join(RECIPES)}")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All of a run: stored with it, so that nothing needs to be said twice."""

    task: str
    """Name of the task, or absolute path of the Python file that defines it."""
    size: TaskConfig = field(default_factory=TaskConfig)
    model: QueryModelConfig = field(default_factory=QueryModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def build_task(self) -> Task:
        """Return the task at its size."""
        return find_task(self.task)(self.size)

    def flags(self) -> dict[str, Any]:
        """Return all flags, by name."""
        parts = (getattr(self, part) for part in CONCEPTS)
        return {each.name: getattr(part, each.name) for part in parts for each in dataclasses.fields(part)}

    def resolved(self) -> "RunConfig":
        """Return the config with the recipe's own learning rate where none was given."""
        if self.training.lr is not None:
            return self
        lr = RECIPES[self.training.recipe].default_lr(self.model)
        return dataclasses.replace(self, training=dataclasses.replace(self.training, lr=lr))


CONCEPTS: dict[str, type] = {"size": TaskConfig, "model": QueryModelConfig, "training": TrainingConfig}
"""The parts of a `RunConfig` that flags set; their field names are distinct."""


def make_config(task: str, flags: dict[str, Any] | None = None) -> RunConfig:
    """Return the config of `task` with its own defaults, changed by `flags` (field name to value).

    Raises `InputError` for a flag that does not exist or a value of the wrong type or out of range.
    """
    values = dict(find_task(task).defaults) | (flags or {})
    parts = {}
    for part, concept in CONCEPTS.items():
        names = [each.name for each in dataclasses.fields(concept)]
        parts[part] = _structure(concept, {name: values.pop(name) for name in names if name in values})
    for name in values:
        known = list(RunConfig(task=task).flags())
        near = get_close_matches(name, known, n=1)
        raise InputError(f"flag {name!r} is unknown: {f'did you mean {near[0]!r}?' if near else known}")
    return RunConfig(task=str(Path(task).resolve()) if task.endswith(".py") else task, **parts)


def config_from_json(stored: Any) -> RunConfig:
    """Rebuild a config from what `dataclasses.asdict` made of it; raises `InputError` where it is off."""
    if not isinstance(stored, dict) or set(stored) != {"task", *CONCEPTS} or not isinstance(stored["task"], str):
        raise InputError(f"config needs exactly task, {', '.join(CONCEPTS)}")
    parts = {}
    for part, concept in CONCEPTS.items():
        names = {each.name for each in dataclasses.fields(concept)}
        if not isinstance(stored[part], dict) or set(stored[part]) != names:
            raise InputError(f"config {part!r} needs exactly {', '.join(sorted(names))}")
        parts[part] = _structure(concept, stored[part])
    return RunConfig(task=stored["task"], **parts)


def _structure(concept: type, values: dict[str, Any]) -> Any:
    """Make a dataclass from values whose types are checked; an int is accepted for a float."""
    hints = get_type_hints(concept)
    for name, value in values.items():
        hint = hints[name]
        allowed = (
            {type(choice) for choice in get_args(hint)} if _is_literal(hint) else {*(get_args(hint) or (hint,))}
        )
        if float in allowed:
            allowed.add(int)
        if type(value) not in allowed:
            wanted = " or ".join(sorted("None" if each is type(None) else each.__name__ for each in allowed))
            raise InputError(f"{name} {value!r} is of type {type(value).__name__}: give {wanted}")
    return concept(**values)


def _is_literal(hint: Any) -> bool:
    return getattr(hint, "__origin__", None) is Literal
