"""From a run's folder to a run."""

from pathlib import Path

import torch

from regard.api.answers import AnswerRun
from regard.api.pairs import PairRun
from regard.api.translation import TranslationRun
from regard.tasks import AnyTask, PairTask, Translation, find_task
from regard.text.prepare import read_vocabularies
from regard.training import RunConfig, RunFolder, build_model, find_run, load_parameters

SAVEPATH = "models"


def load(run: str | Path, *, savepath: str | Path = SAVEPATH) -> AnswerRun | PairRun | TranslationRun:
    """Load a run by its folder, or by its task's name under `savepath`.

    A translator is put on a GPU, where there is one; other models are too small for that to help. Raises
    `InputError` where the run is missing, damaged or not one of Regard's. Nothing is unpickled; but a run on a
    task of one's own runs the Python file of that task, so load only those whose file you know.
    """
    folder = find_run(run, Path(savepath))
    config = folder.read_config()
    task = stored_task(config, folder)
    model = build_model(config, task)
    step = load_parameters(model, folder)
    if isinstance(task, Translation) and torch.cuda.is_available():
        model.cuda()
    kind = (
        TranslationRun if isinstance(task, Translation) else PairRun if isinstance(task, PairTask) else AnswerRun
    )
    return kind(folder.path, config, step, task, model.eval())  # type: ignore[arg-type]


def stored_task(config: RunConfig, folder: RunFolder) -> AnyTask:
    """Return the task of a run; raises `InputError` where its vocabularies are missing or damaged."""
    found = find_task(config.task)
    if issubclass(found, Translation):
        return Translation(config.size, *read_vocabularies(*folder.read_vocabularies(config.tokenizer)))
    return found(config.size)  # type: ignore[call-arg]
