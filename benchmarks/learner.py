"""Run a function on the learner of a training run of Regard, instead of the training loop."""

from collections.abc import Callable
from typing import Any, TypeVar

import regard
from regard.training.trainer import Learner

Result = TypeVar("Result")


def with_learner(work: Callable[[Any, Any], Result], task: str, savepath: str, flags: dict[str, Any]) -> Result:
    """Prepare a training run, and return `work(learner, settings)`.

    A step is `learner.learn(settings.schedule_at(learner.step))`. The run in the folder is not trained.
    """
    results: list[Result] = []

    def work_instead(learner: Any, *_: Any, **__: Any) -> None:
        results.append(work(learner, learner.settings))

    original, Learner.train = Learner.train, work_instead  # type: ignore[method-assign, assignment]
    try:
        regard.train(task, **flags, savepath=savepath, overwrite=True, progress=False)
    finally:
        Learner.train = original  # type: ignore[method-assign]
    return results[0]
