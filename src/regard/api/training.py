"""From a task's name and flags to a trained run."""

import dataclasses
from pathlib import Path
from typing import Any

from regard.api.answers import AnswerRun
from regard.api.loading import SAVEPATH, load, stored_task
from regard.api.pairs import PairRun
from regard.api.translation import TranslationRun, validation
from regard.errors import InputError
from regard.progress import progress_bar, tell
from regard.tasks import AnyTask, Translation, find_task
from regard.text.buckets import Buckets, Place
from regard.text.parallel import ParallelText
from regard.text.prepare import Cutting, learn_vocabularies, prepare_corpus
from regard.text.subwords import Subwords
from regard.training import (
    Batches,
    RunConfig,
    RunFolder,
    TrainingState,
    digest,
    join_world,
    make_config,
    new_run,
    start,
    train_steps,
)

PREPARED = "prepared"
"""Folder, beside the runs, of corpora and vocabularies."""


def train(
    task: str,
    *,
    savepath: str | Path = SAVEPATH,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    **flags: Any,
) -> AnswerRun | PairRun | TranslationRun:
    """Train a model on a task and return the run, saved in a folder named for the task under `savepath`.

    `task`: a name (see `regard tasks`), "translation", or the path of a Python file with a task of your own.
    `flags`: those of `regard train TASK --help`, with the task's defaults; `model` names the model, where the
    task leaves a choice, and `preset` the size of a Transformer for translation. `resume` continues the run that
    is there, exactly as if it had not stopped; `overwrite` replaces it. Under `torchrun`, all its processes
    train together. Raises `InputError` for what cannot be asked, `MachineError` where the disk refuses.
    """
    folder = RunFolder(Path(savepath) / find_task(task).name)
    with join_world() as world:
        show = progress and world.first
        if resume:
            config = _unchanged(folder.read_config(), task, flags)
            built = stored_task(config, folder)
        else:
            config = make_config(task, flags).resolved()
            with world.one_by_one():
                built, config = _new_task(config, Path(savepath) / PREPARED, show=show)
        validate = validation(built) if isinstance(built, Translation) else None
        state = start(config, built, world)
        if resume:
            state.restore(folder)
        with world.one_by_one():
            batches = _batches(config, built, state, Path(savepath) / PREPARED, show=show)
        if resume and world.first:
            folder.cut_metrics(state.step)
        elif not resume:
            with world.one_by_one():
                if world.first:
                    with new_run(folder.path, config, overwrite=overwrite) as building:
                        if isinstance(built, Translation):
                            building.write_vocabularies(_files(built))
                        state.begin(building)
        with progress_bar(built.name, state.step, config.training.steps, show=show) as on_metrics:
            train_steps(state, config, batches, folder, on_metrics, validate=validate, world=world)
        world.wait()
    return load(folder.path)


def _new_task(config: RunConfig, root: Path, *, show: bool) -> tuple[AnyTask, RunConfig]:
    """Return a task, with vocabularies learned from its text where it has one, and the config that knows
    them."""
    found = find_task(config.task)
    if not issubclass(found, Translation):
        return found(config.size), config  # type: ignore[call-arg]
    size = config.size
    cutting = Cutting(kind=size.tokenizer, size=size.vocab_size, joint=size.joint, lowercase=size.lowercase)
    task = Translation(size, *learn_vocabularies(_text(config), cutting, root, progress=show))
    return task, dataclasses.replace(config, tokenizer=digest(_files(task)))


def _files(task: Translation) -> dict[str, str]:
    """Return a task's vocabularies as the files of a run."""
    vocabularies = {"source": task.source_vocabulary, "target": task.target_vocabulary}
    return {name: each.to_json() for name, each in vocabularies.items() if isinstance(each, Subwords)}


def _batches(
    config: RunConfig, task: AnyTask, state: TrainingState, root: Path, *, show: bool
) -> Batches | Buckets:
    """Return where batches come from: the task itself, or a corpus, which is prepared first."""
    if not isinstance(task, Translation):
        return Batches(task, config.training, state.generator)  # type: ignore[arg-type]
    assert isinstance(task.source_vocabulary, Subwords) and isinstance(task.target_vocabulary, Subwords)
    corpus = prepare_corpus(
        _text(config),
        (task.source_vocabulary, task.target_vocabulary),
        root,
        max_len=config.size.max_len,
        strict=config.size.strict,
        progress=show,
    )
    tell(f"Training on {corpus.counts}", show=show)
    return Buckets(corpus, config.training.tokens, config.training.seed, Place(*state.progress.place))


def _text(config: RunConfig) -> ParallelText:
    """Return the text to train on."""
    if not config.size.train:
        raise InputError("translation needs text to train on: give --train SOURCE TARGET, or --train PAIRS.tsv")
    return ParallelText(config.size.train, strict=config.size.strict)


def _unchanged(stored: RunConfig, task: str, flags: dict[str, Any]) -> RunConfig:
    """Return a stored config; raises `InputError` where a flag does not exist or asks the run to be another
    one."""
    asked = make_config(task, {"model": stored.kind, **flags}).resolved().flags()
    for name in flags:
        if name in asked and asked[name] != stored.flags()[name]:
            raise InputError(
                f"{name} {asked[name]} differs from the run's {stored.flags()[name]}: a run goes on as it began; "
                f"leave {name} out, or train a new run"
            )
    return stored
