"""Run a function on the learner of a training run of Regard, instead of the training loop."""

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

import regard

Result = TypeVar("Result")


def with_learner(work: Callable[[Any, Any], Result], task: str, savepath: str, flags: dict[str, Any]) -> Result:
    """Prepare a training run, and return `work(learner, settings)`.

    A step is `learner.learn(settings.schedule_at(learner.step))`. The run in the folder is not trained.
    """
    training: Any = importlib.import_module("regard.runs.training")
    results: list[Result] = []

    def work_instead(learner: Any, settings: Any, *_: Any, **__: Any) -> None:
        results.append(work(learner, settings))

    original, training.train_steps = training.train_steps, work_instead
    try:
        regard.train(task, **flags, savepath=savepath, overwrite=True, progress=False)
    finally:
        training.train_steps = original
    return results[0]
