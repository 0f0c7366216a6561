"""From a task's name and flags to a trained run."""

import dataclasses
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.api.answers import AnswerRun
from regard.api.loading import SAVEPATH, load, stored_task
from regard.api.pairs import PairRun
from regard.api.translation import TranslationRun, text_of, validation
from regard.errors import InputError
from regard.memory import keep_memory
from regard.progress import progress_bar, tell
from regard.tasks import AnyTask, Translation, find_task
from regard.text.buckets import Buckets, Place
from regard.text.merges import DroppedMerges
from regard.text.parallel import Text
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
    train_together,
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
    # The synthetic tasks' models are so small that a GPU would only slow them.
    with join_world(gpu=issubclass(find_task(task), Translation)) as world:
        show = progress and world.first
        if resume:
            config = _unchanged(folder.read_config(), task, flags)
            built = stored_task(config, folder)
        else:
            config = make_config(task, flags).resolved()
            _check_tensorboard(config)
            with world.one_by_one():
                built, config = _new_task(config, Path(savepath) / PREPARED, show=show)
        validate = None
        if isinstance(built, Translation):
            keep_memory()
            validate = validation(built)
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
        with (
            progress_bar(built.name, state.step, config.training.steps, show=show) as on_metrics,
            _tensorboard(config, folder, state.step, first=world.first) as on_curves,
        ):

            def tell_both(metrics: dict[str, float]) -> None:
                on_metrics(metrics)
                on_curves(metrics)

            train_steps(state, config, batches, folder, tell_both, validate=validate, world=world)
        world.wait()
    return load(folder.path)


def train_seeds(
    task: str, savepaths: Sequence[str | Path], *, seeds: Sequence[int], **flags: Any
) -> list[AnswerRun]:
    """Train query models from several seeds at once, each into a folder of its own, and return the runs.

    `flags`: those that all share, as in `train`. What is there already, all of it or none, goes on at its last
    checkpoint. Raises `InputError` as `train` does, and where the runs that are there stand at different steps.
    """
    configs = [make_config(task, {**flags, "seed": seed}).resolved() for seed in seeds]
    folders = [RunFolder(Path(savepath) / configs[0].name) for savepath in savepaths]
    built = [find_task(task)(config.size) for config in configs]  # type: ignore[call-arg]
    states = [start(config, each) for config, each in zip(configs, built, strict=True)]
    for folder, config, state in zip(folders, configs, states, strict=True):
        if folder.exists():
            state.restore(folder)
            folder.cut_metrics(state.step)
        else:
            with new_run(folder.path, config, overwrite=False) as building:
                state.begin(building)
    if len({state.step for state in states}) > 1:
        raise InputError("the runs stand at different steps: train each one alone")
    batches = [
        Batches(each, config.training, state.generator)  # type: ignore[arg-type]
        for each, config, state in zip(built, configs, states, strict=True)
    ]
    train_together(states, configs[0], batches, folders)
    return [load(folder.path) for folder in folders]  # type: ignore[misc]


@contextmanager
def _tensorboard(
    config: RunConfig, folder: RunFolder, step: int, *, first: bool
) -> Iterator[Callable[[dict[str, float]], None]]:
    """Yield what to call with each line of metrics, to be shown by TensorBoard where that was asked for."""
    if not (first and getattr(config.training, "tensorboard", False)):
        yield lambda metrics: None
        return
    from torch.utils.tensorboard import SummaryWriter

    # What was written past the step that is gone on from is written again.
    with SummaryWriter(str(folder.path / "tensorboard"), purge_step=step) as writer:

        def write(metrics: dict[str, float]) -> None:
            for name, value in metrics.items():
                if name != "step":
                    writer.add_scalar(name, value, int(metrics["step"]))

        yield write


def _check_tensorboard(config: RunConfig) -> None:
    """Raise `InputError` where TensorBoard is asked for and not installed."""
    if getattr(config.training, "tensorboard", False) and importlib.util.find_spec("tensorboard") is None:
        raise InputError("tensorboard needs it installed: pip install 'regard[track]'")


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
    settings, recut = config.training, None
    if settings.merge_dropout:
        source, target = (
            DroppedMerges(each, settings.merge_dropout, settings.seed)
            for each in (task.source_vocabulary, task.target_vocabulary)
        )
        recut = (source, target)
    return Buckets(corpus, settings.tokens, settings.seed, Place(*state.progress.place), recut)


def _text(config: RunConfig) -> Text:
    """Return the text to train on."""
    text = text_of(config.size, "train", strict=config.size.strict)
    if text is None:
        raise InputError("translation needs text to train on: give --train SOURCE TARGET, or --train PAIRS.tsv")
    return text


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
