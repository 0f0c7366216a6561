"""From a task's name and flags to a trained run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from regard import training
from regard.errors import InputError
from regard.fast.memory import keep_memory
from regard.io import hold_lock
from regard.runs.asking import asked, check_text, name_of
from regard.runs.loading import SAVEPATH, load, read_run
from regard.runs.starting import (
    beginning_of,
    config_of,
    open_run,
    task_of,
    tell_frozen,
    telling,
    text_of,
    validation_of,
    with_digests,
)
from regard.training import (
    ALONE,
    OneLearner,
    RunFolder,
    check_free,
    join_world,
    limit_threads,
    start,
    train_steps,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from regard.models import PoolingConfig, QueryModelConfig, RecurrentConfig, TransformerConfig
    from regard.runs.answers import AnswerRun
    from regard.runs.flags import (
        AnyFlags,
        AnyTrainFlags,
        CountPoolingFlags,
        CountQueryFlags,
        DatesRecurrentFlags,
        DatesTransformerFlags,
        PhrasesRecurrentFlags,
        PhrasesTransformerFlags,
        RecallPoolingFlags,
        RecallQueryFlags,
        ReorderRecurrentFlags,
        ReorderTransformerFlags,
        TranslationFlags,
        TranslationRecurrentFlags,
        WhereFlags,
    )
    from regard.runs.kinds import AnyRun
    from regard.runs.loading import Counts, Reorders
    from regard.runs.pairs import PairRun
    from regard.runs.translation import TranslationRun
    from regard.tasks import (
        DatesConfig,
        PhrasesConfig,
        RecallConfig,
        SequenceConfig,
        TaskConfig,
        TranslationConfig,
    )
    from regard.training import (
        PoolingTraining,
        QueryTraining,
        RecurrentTraining,
        RunConfig,
        TransformerTraining,
        TranslationTraining,
    )

PREPARED = "prepared"
"""Folder, beside the runs, of corpora and vocabularies."""
Folder = str | Path


@overload
def train(
    task: Counts,
    *,
    model: Literal["query"] = ...,
    **flags: Unpack[CountQueryFlags],
) -> AnswerRun[TaskConfig, QueryModelConfig, QueryTraining]: ...
@overload
def train(
    task: Counts,
    *,
    model: Literal["pooling"],
    **flags: Unpack[CountPoolingFlags],
) -> AnswerRun[TaskConfig, PoolingConfig, PoolingTraining]: ...
@overload
def train(
    task: Literal["recall"],
    *,
    model: Literal["pooling"] = ...,
    **flags: Unpack[RecallPoolingFlags],
) -> AnswerRun[RecallConfig, PoolingConfig, PoolingTraining]: ...
@overload
def train(
    task: Literal["recall"],
    *,
    model: Literal["query"],
    **flags: Unpack[RecallQueryFlags],
) -> AnswerRun[RecallConfig, QueryModelConfig, QueryTraining]: ...
@overload
def train(
    task: Reorders,
    *,
    model: Literal["recurrent"] = ...,
    **flags: Unpack[ReorderRecurrentFlags],
) -> PairRun[SequenceConfig, RecurrentConfig, RecurrentTraining]: ...
@overload
def train(
    task: Reorders,
    *,
    model: Literal["transformer"],
    **flags: Unpack[ReorderTransformerFlags],
) -> PairRun[SequenceConfig, TransformerConfig, TransformerTraining]: ...
@overload
def train(
    task: Literal["dates"],
    *,
    model: Literal["recurrent"] = ...,
    **flags: Unpack[DatesRecurrentFlags],
) -> PairRun[DatesConfig, RecurrentConfig, RecurrentTraining]: ...
@overload
def train(
    task: Literal["dates"],
    *,
    model: Literal["transformer"],
    **flags: Unpack[DatesTransformerFlags],
) -> PairRun[DatesConfig, TransformerConfig, TransformerTraining]: ...
@overload
def train(
    task: Literal["phrases"],
    *,
    model: Literal["transformer"] = ...,
    **flags: Unpack[PhrasesTransformerFlags],
) -> PairRun[PhrasesConfig, TransformerConfig, TransformerTraining]: ...
@overload
def train(
    task: Literal["phrases"],
    *,
    model: Literal["recurrent"],
    **flags: Unpack[PhrasesRecurrentFlags],
) -> PairRun[PhrasesConfig, RecurrentConfig, RecurrentTraining]: ...
@overload
def train(
    task: Literal["translation"],
    *,
    model: Literal["transformer"] = ...,
    **flags: Unpack[TranslationFlags],
) -> TranslationRun[TranslationConfig, TransformerConfig, TranslationTraining]: ...
@overload
def train(
    task: Literal["translation"],
    *,
    model: Literal["recurrent"],
    **flags: Unpack[TranslationRecurrentFlags],
) -> TranslationRun[TranslationConfig, RecurrentConfig, TranslationTraining]: ...
@overload
def train(
    task: RunConfig,
    **where: Unpack[WhereFlags],
) -> AnyRun: ...
@overload
def train(
    task: str,
    **flags: Unpack[AnyTrainFlags],
) -> AnyRun: ...
def train(
    task: str | RunConfig,
    *,
    savepath: Folder = SAVEPATH,
    start_from: Folder | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    trust_code: bool = False,
    trust_edited: bool = False,
    **flags: Any,
) -> AnyRun:
    """Train a model on a task and return the run, saved in a folder named for the task under `savepath`.

    `task`: a name (see `regard tasks`), "translation", the path of a Python file with a task of your own, or a
    whole config as `regard.make_config` returns it. `trust_code`, `trust_edited`: as in `load`, for a run that is
    resumed or begun from.
    `flags`: those of `regard train TASK --help`, with the task's defaults; `model` names the model, where the
    task leaves a choice, and `preset` the size of a Transformer for translation. `start_from`: a run of the task,
    by its folder or its name under `savepath`; the new one begins with its parameters, has its model and its
    vocabularies, and whatever `flags` do not say as it is there, but for text and what was frozen. `resume`
    continues the run that is there, exactly as if it had not stopped, with the text that it began with, which may
    be at other places by now; `overwrite` replaces it. Under `torchrun`,
    all its processes train together. Raises `InputError` for what cannot be asked, `MachineError` where the disk
    refuses.
    """
    if resume and overwrite:
        raise InputError("resume goes on with the run that is there, overwrite replaces it: choose one")
    folder = RunFolder(Path(savepath) / name_of(task), trust_edited)
    prepared = Path(savepath) / PREPARED
    config, before = config_of(folder, task, flags, start_from, resume=resume, trust_code=trust_code)
    # The synthetic tasks' models are so small that a GPU would only slow them.
    with join_world(gpu=not config.task_class.draws) as world, world.alone_in(folder.path):
        if not resume and world.agree(not world.torchruns.isdisjoint(folder.torchruns)):
            resume, config, before = True, folder.read_config(), None
        if not resume:
            check_free(folder.path, overwrite=overwrite)  # before minutes of preparation
        show = progress and world.first
        text = text_of(config, resume=resume, show=show)
        if resume:
            check_text(config, text)
        with world.one_by_one():
            built = task_of(config, folder if resume else None, before, prepared, show=show)
        keep_memory()
        validate = validation_of(config, built, resume=resume, show=show)
        config = with_digests(config, built, validate, None if resume else text)
        state = start(config, built, world, None if before is None else before.model.state_dict())
        before = None  # its parameters take no room any longer
        tell_frozen(state, show=show)
        if resume:
            folder.read_model()  # which is replaced at the next checkpoint, so an edited one is refused now
            state.restore(folder)
        with world.one_by_one():
            batches = built.batches(config.training, beginning_of(state, prepared, world, show=show))
        with world.one_by_one():
            if world.first:
                open_run(
                    folder, config, built, state, resume=resume, overwrite=overwrite, torchruns=world.torchruns
                )
        learner = OneLearner(state, config.training, batches, folder, world=world, drops=config.model.dropout > 0)
        threads = limit_threads(state.model) if config.task_class.draws else nullcontext()
        with threads, world.watched(), telling(config, folder, state.step, world, show=show) as tell_metrics:
            train_steps(learner, config.training, tell_metrics, validate=validate)
        world.wait()
    return read_run(folder)


def train_seeds(
    task: str, savepaths: Sequence[Folder], *, seeds: Sequence[int], **flags: Unpack[AnyFlags]
) -> list[AnyRun]:
    """Train query models from several seeds at once, each into a folder of its own, and return the runs.

    `flags`: those that all share, as in `train`. What is there already, all of it or none, goes on at its last
    checkpoint. Raises `InputError` as `train` does, and where the runs that are there stand at different steps.
    """
    configs = [asked(task, {**flags, "seed": seed}) for seed in seeds]
    folders = [RunFolder(Path(savepath) / configs[0].name) for savepath in savepaths]
    built = [config.task_class.restore(config.task, {}) for config in configs]
    states = [start(config, each) for config, each in zip(configs, built, strict=True)]
    with ExitStack() as held:
        for folder, config, each, state in zip(folders, configs, built, states, strict=True):
            held.enter_context(hold_lock(folder.path))
            if folder.exists():
                state.restore(folder)
            open_run(folder, config, each, state, resume=folder.exists(), overwrite=False)
        if len({state.step for state in states}) > 1:
            raise InputError("the runs stand at different steps: train each one alone")
        batches = [
            each.batches(config.training, beginning_of(state, Path(PREPARED), ALONE, show=False))
            for each, config, state in zip(built, configs, states, strict=True)
        ]
        train_steps(training.StackedLearner(states, configs[0].training, batches, folders), configs[0].training)
    return [load(folder.path) for folder in folders]
