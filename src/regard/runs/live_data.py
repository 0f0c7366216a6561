"""The data of a page that computes the answers of a run without a server: `LiveData` of
`viz/js/live/subject.js`."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.data.batch import PairBatch, collate, read_source
from regard.data.vocabulary import CharacterVocabulary, WordVocabulary
from regard.errors import InputError
from regard.models.base import ModelConfig
from regard.models.query import QueryModel, QueryModelConfig
from regard.models.recurrent import RecurrentSeq2Seq
from regard.models.transformer import Transformer
from regard.runs.answer_run import AnswerRun
from regard.runs.packed_parameters import pack_parameters
from regard.runs.pair_run import PairRun
from regard.runs.run_types import AnyRun
from regard.streams import make_generator
from regard.tasks.counting import Counting, Difference
from regard.tasks.signal import Signal, Signal2
from regard.viz.serialization import map_data

MAX_PARAMETERS = 1_000_000
MAX_STEPS = 512
"""Length of the longest input that a page answers."""
SAMPLES = 200
"""Number of inputs on which the effect of rounding the parameters is measured."""
RANDOM_INPUTS = 50
"""Number of these inputs that are stored in a page as random inputs."""
TOLERANCE = 9e-5
"""Largest change of a logit by rounding. The remaining tolerance, up to 1e-4, is for sums in a different
order."""
WITHOUT = ("importance", "roles", "search", "values")
"""Buttons of the explorer that a page without a server does not support."""
LEAST_STEPS = {"counting": 2000, "difference": 4000}
"""Number of training steps in a page, after which all 5 seeds reach an exact match of 99 %."""
LETTER_TASKS = (Counting, Difference, Signal, Signal2)
MODELS: dict[type, str] = {QueryModel: "query", Transformer: "transformer", RecurrentSeq2Seq: "recurrent"}


def live_data(run: AnyRun) -> dict[str, Any]:
    """Return the contents of a page as `LiveData` of `live/subject.js`, including the `parameters`.

    Raises `InputError` for a run that a page cannot compute.
    """
    if (reason := _unsupported(run)) is not None:
        raise InputError(f"{run.where!r} has no live page: {reason}; regard show {run.where} serves it")
    inputs, logits = _samples(run)
    parameters, change = pack_parameters(run.model, logits, tolerance=TOLERANCE)
    attention = map_data(run.attend(inputs[0]["source"]))
    layers = [{name: layer[name] for name in ("name", "title", "kind")} for layer in attention["layers"]]
    about = {
        **run.about(),
        "where": run.where,
        "without": WITHOUT,
        "snapshots": False,
        "writes": False,
        "back": None,
    }
    return {
        "about": {**about, "draws": True, "back": None},
        "kind": MODELS[type(run.model)],
        "config": vars(run.config.model),
        "task": _task(run),
        "layers": layers,
        "opens": attention["opens"],
        "head": attention["head"],
        "seen": _seen(run),
        "samples": inputs[:RANDOM_INPUTS],
        "parameters": parameters,
        "change": change,
        "training": _training(run),
    }


def _unsupported(run: AnyRun) -> str | None:
    """Return the reason why a page cannot compute a run, or None if the page can."""
    count = sum(value.numel() for value in run.model.parameters())
    if run.config.custom_parts:
        return f"its {run.config.custom_parts[0]} is Python code, which a page cannot run"
    if type(run.model) not in MODELS:
        return f"model {run.config.kind} is not one of {', '.join(MODELS.values())}"
    if run.config.model.attention != ModelConfig.attention:
        return f"a page does not compute the attention mechanism {run.config.model.attention}"
    if run.config.kept_heads:
        return "its heads were pruned"
    if isinstance(run, AnswerRun):
        if type(run.task) not in LETTER_TASKS:
            return f"task {run.name} is not supported in a page"
    elif not isinstance(run, PairRun) or any(
        type(vocabulary) not in (CharacterVocabulary, WordVocabulary)
        for vocabulary in (run.task.source_vocabulary, run.task.target_vocabulary)
    ):
        return "its inputs are pieces of a learned vocabulary, and a page cannot split text into such pieces"
    if count > MAX_PARAMETERS:
        return f"its model has {count:,} parameters, but a page stores at most {MAX_PARAMETERS:,}"
    return None


def _samples(run: AnyRun) -> tuple[list[dict[str, Any]], Callable[[], list[Tensor]]]:
    """Return random inputs as `Known` of `live/tasks.js`, and a function that computes the logits of their
    answers."""
    model = run.model.eval()
    if isinstance(run, AnswerRun):
        vary_len = run.config.training.vary_len
        batch = run.task.sample(SAMPLES, make_generator(0, "sample"), vary_len=vary_len)
        first = run.draw(seed=0)
        texts = [first, *(run.task.render(row) for row in batch.inputs)]
        known = [{"source": text, "target": "", "alignment": []} for text in texts]
        return known, partial(_call, lambda: [model(batch.inputs, batch.mask)])
    assert isinstance(run, PairRun)
    pairs = list(run.unseen(SAMPLES, 0))
    known = [pair._asdict() for pair in pairs]
    sources = [pair.source for pair in pairs]
    targets = list(map(run.task.target_vocabulary.encode, run.translate(sources)))
    pair_batch = PairBatch(read_source(sources, run.task.source_vocabulary), collate(targets))
    arguments = (pair_batch.source, pair_batch.source_mask, pair_batch.target_in)
    return known, partial(_call, lambda: [model(*arguments)])


@torch.inference_mode()
def _call(compute: Callable[[], list[Tensor]]) -> list[Tensor]:
    return compute()


def _task(run: AnyRun) -> dict[str, Any]:
    """Return the task as `LetterTask` or `PairTask` of `live/tasks.js`."""
    if isinstance(run, AnswerRun):
        task = run.task
        return {
            "name": task.name,
            "vocabulary": task.vocabulary,
            "signals": task.signals,
            "max_len": run.max_len,
            "outputs": task.outputs,
            "classes": task.classes,
            "accepts": task.accepts,
        }
    assert isinstance(run, PairRun)
    source, target = run.task.source_vocabulary, run.task.target_vocabulary
    assert isinstance(source, CharacterVocabulary) and isinstance(target, CharacterVocabulary)
    return {
        "name": run.name,
        "source": source.symbols,
        "target": target.symbols,
        "max_len": run.task.max_source,
        "most_source": min(run.task.longest_source, MAX_STEPS),
        "most_target": min(run.task.longest_target, MAX_STEPS),
        "unit": source.unit,
    }


def _seen(run: AnyRun) -> list[int]:
    """Return the minimum and maximum lengths of training inputs, without signals."""
    if isinstance(run, AnswerRun):
        return [1 if run.config.training.vary_len else run.max_len, run.max_len]
    assert isinstance(run, PairRun)
    return [1, run.longest_seen]


def _training(run: AnyRun) -> dict[str, Any] | None:
    """Return the training options with which the page trains the run's model again, or None if the page cannot
    train."""
    config = run.config
    if type(run.task) not in (Counting, Difference) or not isinstance(run, AnswerRun):
        return None
    model = config.model
    assert isinstance(model, QueryModelConfig)
    extended = model.enc_layers or model.multihead or model.pos_enc or model.self_att
    if extended or config.training.vary_len or model.score != "scaled_dot":
        return None
    recipe = config.training.optimization
    return {
        "steps": max(config.training.steps, LEAST_STEPS[run.name]),
        "batchsize": config.training.batchsize,
        "lr": config.training.lr or recipe.default_lr(model),
        "output_lr": recipe.output_lr,
        "betas": recipe.betas,
        "warmup": recipe.warmup,
    }
