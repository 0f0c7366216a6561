"""Load a run from its folder."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, cast, overload

import torch
from torch import nn

from regard.arguments import public
from regard.errors import InputError
from regard.tasks.text import Text
from regard.training.building import build_model, load_weights
from regard.training.run_folder import RunFolder, find_run, warn_not_finite

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from regard.runs.run_types import AnyRun
    from regard.runs.sequence_run import PairRun, SequenceRun, TranslationRun
    from regard.runs.tensor_run import AnswerRun, LanguageRun
    from regard.tasks.base import AnyTask
    from regard.training.config import RunConfig

SAVEPATH = "models"
Result = TypeVar("Result")
AnswerTask = Literal["counting", "difference", "signal", "signal2", "recall"]
PairTask = Literal["copy", "reverse", "sort", "dates", "phrases"]
TextTask = Literal["translation"]
LanguageTask = Literal["induction", "mqar", "modular", "regression", "selective-copy", "parity", "dyck", "text"]
RUN_CLASSES = {
    ("numbers", True): "tensor_run:AnswerRun",
    ("text", True): "sequence_run:PairRun",
    ("text", False): "sequence_run:TranslationRun",
    ("tokens", True): "tensor_run:LanguageRun",
    ("tokens", False): "tensor_run:LanguageRun",
}
"""Module and class of a run, by the form of the task's answers and by whether the task generates its samples."""


class LoadOptions(TypedDict, total=False):
    """Options of `load`."""

    savepath: str | Path
    trust_code: bool
    trust_edited: bool


@overload
def load(run: AnswerTask, **options: Unpack[LoadOptions]) -> AnswerRun[Any, Any]: ...
@overload
def load(run: PairTask, **options: Unpack[LoadOptions]) -> PairRun[Any, Any]: ...
@overload
def load(run: TextTask, **options: Unpack[LoadOptions]) -> TranslationRun[Any, Any]: ...
@overload
def load(run: LanguageTask, **options: Unpack[LoadOptions]) -> LanguageRun[Any, Any]: ...
@overload
def load(run: str | Path, **options: Unpack[LoadOptions]) -> AnyRun: ...
@public
def load(
    run: str | Path, *, savepath: str | Path = SAVEPATH, trust_code: bool = False, trust_edited: bool = False
) -> AnyRun:
    """Load a run by its folder, or by its task's name under `savepath`.

    Translation models are moved to a GPU if one is available. Other models are too small to run faster on a GPU.

    `trust_code`: execute the custom code of the run (a task file, a model, a score), even if you have not trained with
    that code here. `trust_edited`: use a run whose files do not match their digests, and report the differences on
    standard error. Raises `InputError` for a run that is missing or damaged, or that needs `trust_code` or
    `trust_edited`. Nothing is unpickled.

        run = regard.load("signal2")
        run.attend("BCCCBAABACCCA")
    """
    folder = find_run(run, Path(savepath), trust_edited=trust_edited)
    folder.report_again()
    return read_run(folder, trust_code=trust_code)


def read_run(folder: RunFolder, *, trust_code: bool = False) -> AnyRun:
    """Load a run from its folder. Accepted edits that were reported before are not reported again."""

    def read() -> AnyRun:
        config = folder.read_config(trust_code=trust_code)
        task = read_task(config, folder)
        model = build_model(config, task)
        step = load_weights(model, folder)
        if not task.draws and torch.cuda.is_available():
            model.cuda()
        return make_run(folder, config, step, task, model)

    return read_consistently(folder, read)


def read_consistently(folder: RunFolder, read: Callable[[], Result]) -> Result:
    """Return the result of `read`, and repeat `read` if another run replaced the folder meanwhile. Otherwise the
    result could mix files of both runs."""
    while True:
        identity = folder.identity
        try:
            result = read()
        except InputError:
            if folder.identity == identity:
                raise
        else:
            if folder.identity == identity:
                return result


def make_run(folder: RunFolder, config: RunConfig, step: int, task: AnyTask, model: nn.Module) -> AnyRun:
    """Return a run of the class that fits its task. Print a warning if a parameter of the model is not finite."""
    warn_not_finite(model.state_dict(), str(folder.path))
    module, _, name = RUN_CLASSES[task.answers, task.draws].partition(":")
    run_class: type[AnyRun] = getattr(import_module(f"regard.runs.{module}"), name)
    return run_class(folder.path, config, step, cast(Any, task), cast(Any, model.eval()), folder.trust_edited)


def read_task(config: RunConfig, folder: RunFolder) -> AnyTask:
    """Return the task of a run. Raises `InputError` if its vocabularies are missing or damaged."""
    vocabularies = folder.read_vocabularies(config.tokenizer, config.task_class.file_names)
    task = config.task_class.restore(config.task, vocabularies)
    if isinstance(task, Text):
        task.digest = next(iter(config.text.get("text", [])), None)
    return task


@public
def load_translator(
    run: str | Path, *, savepath: str | Path = SAVEPATH, trust_code: bool = False, trust_edited: bool = False
) -> SequenceRun:
    """Load a run that answers with text; see `load`. Raises `InputError` for a run that answers with numbers."""
    loaded = load(run, savepath=savepath, trust_code=trust_code, trust_edited=trust_edited)
    if loaded.task.answers == "tokens":
        raise InputError(f"run {str(run)!r} is a language model: try `regard generate {run} PROMPT`")
    if loaded.task.answers == "numbers":
        raise InputError(f"run {str(run)!r} answers with numbers, not text: try `regard test {run} --input ...`")
    return cast("SequenceRun", loaded)
