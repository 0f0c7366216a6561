"""From a run's folder to a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

import torch

from regard import runs
from regard.errors import InputError
from regard.training import (
    build_model,
    find_run,
    load_weights,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from regard.models import ModelConfig
    from regard.runs.answer_run import AnswerRun
    from regard.runs.flags import LoadFlags
    from regard.runs.pair_run import PairRun
    from regard.runs.run_types import AnyRun
    from regard.runs.sequence_run import SequenceRun
    from regard.runs.translation_run import TranslationRun
    from regard.tasks import (
        AnyTask,
        DatesConfig,
        PhrasesConfig,
        RecallConfig,
        SequenceConfig,
        TaskConfig,
        TranslationConfig,
    )
    from regard.training import (
        RunConfig,
        RunFolder,
        TrainingConfig,
        TranslationTraining,
    )

SAVEPATH = "models"
Read = TypeVar("Read")
Counts = Literal["counting", "difference", "signal", "signal2"]
Reorders = Literal["copy", "reverse", "sort"]
RUNS = {("numbers", True): "AnswerRun", ("text", True): "PairRun", ("text", False): "TranslationRun"}
"""By what a task's answers are, and whether it draws its samples: the kind of its runs, which is loaded then."""


@overload
def load(run: Counts, **where: Unpack[LoadFlags]) -> AnswerRun[TaskConfig]: ...
@overload
def load(run: Literal["recall"], **where: Unpack[LoadFlags]) -> AnswerRun[RecallConfig]: ...
@overload
def load(run: Reorders, **where: Unpack[LoadFlags]) -> PairRun[SequenceConfig]: ...
@overload
def load(run: Literal["dates"], **where: Unpack[LoadFlags]) -> PairRun[DatesConfig]: ...
@overload
def load(run: Literal["phrases"], **where: Unpack[LoadFlags]) -> PairRun[PhrasesConfig]: ...
@overload
def load(
    run: Literal["translation"], **where: Unpack[LoadFlags]
) -> TranslationRun[TranslationConfig, ModelConfig, TranslationTraining]: ...
@overload
def load(run: str | Path, **where: Unpack[LoadFlags]) -> AnyRun: ...
def load(
    run: str | Path, *, savepath: str | Path = SAVEPATH, trust_code: bool = False, trust_edited: bool = False
) -> AnyRun:
    """Load a run by its folder, or by its task's name under `savepath`.

    A translator is put on a GPU, where there is one; other models are too small for that to help. Raises
    `InputError` where the run is missing, damaged or not one of Regard's. Nothing is unpickled, and a
    run that names code of its own (a task's file, a model, a score) is refused unless you have trained with that
    code here, or say `trust_code`. A run whose files were edited, or are of several runs, is refused by their
    digests; with `trust_edited` what differs is said on standard error, and the run is used as it is.
    """
    folder = find_run(run, Path(savepath), trust_edited=trust_edited)
    folder.tell_again()
    return read_run(folder, trust_code=trust_code)


def read_run(folder: RunFolder, *, trust_code: bool = False) -> AnyRun:
    """Load a run whose differences from what was written may have been shown already."""
    return of_one_run(folder, lambda: _load(folder, trust_code=trust_code))


def of_one_run(folder: RunFolder, read: Callable[[], Read]) -> Read:
    """Return what `read` reads in a folder; again, where another run has taken its place meanwhile, for what was
    read may be of both."""
    while True:
        identity = folder.identity
        try:
            found = read()
        except InputError:
            if folder.identity == identity:
                raise
        else:
            if folder.identity == identity:
                return found


def _load(folder: RunFolder, *, trust_code: bool) -> AnyRun:
    config = folder.read_config(trust_code=trust_code)
    task = stored_task(config, folder)
    model = build_model(config, task)
    step = load_weights(model, folder)
    if not task.draws and torch.cuda.is_available():
        model.cuda()
    kind: type[AnyRun] = getattr(runs, RUNS[task.answers, task.draws])
    return kind(folder.path, config, step, cast(Any, task), cast(Any, model.eval()), folder.trust_edited)


def load_translator(
    run: str | Path, *, savepath: str | Path = SAVEPATH, trust_code: bool = False, trust_edited: bool = False
) -> SequenceRun:
    """Load a run that answers with text; raises `InputError` where it does not, and as `load` does."""
    found = load(run, savepath=savepath, trust_code=trust_code, trust_edited=trust_edited)
    if found.task.answers == "numbers":
        raise InputError(f"run {str(run)!r} answers with numbers, not text: try `regard test {run} --input ...`")
    return cast("SequenceRun", found)


def stored_task(config: RunConfig[Any, ModelConfig, TrainingConfig], folder: RunFolder) -> AnyTask:
    """Return the task of a run; raises `InputError` where its vocabularies are missing or damaged."""
    return config.task_class.restore(config.task, folder.read_vocabularies(config.tokenizer))
