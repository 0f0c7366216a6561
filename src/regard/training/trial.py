"""A first try of what is a user's own: a score, a model or a task that does not do what it should is refused, in
one line, before anything is trained or written.

What is tried is a batch of two, forward and backward, at the cost of a training step; no random state is touched.
"""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import make_encoder_layer, make_positions, make_score
from regard.data import PairBatch, collate
from regard.errors import InputError
from regard.models import AnswerModel, ModelConfig, Seq2Seq, TaskModel
from regard.plugins import PluginError, describe_error
from regard.tasks import TASKS, AnyTask, Batch, BatchContext
from regard.training.config import RunConfig

TRIED = 2
"""Samples in the batch."""
WIDTH = 8
"""Of the queries and keys that a score is tried with."""


def owned(config: RunConfig) -> list[str]:
    """Return what of a run is a user's own code, as it is called."""
    model = config.model
    parts = {"score": model.score, "positions": model.positions, "layer": model.layer}
    return [
        *([f"task file {config.on!r}"] if config.on not in TASKS else []),
        *([f"model {config.kind!r}"] if ":" in config.kind else []),
        *(f"{part} {name!r}" for part, name in parts.items() if ":" in name),
    ]


def try_score(name: str) -> None:
    """Raise `PluginError` unless a score of one's own scores each query against each key."""
    query, keys = torch.zeros(2, 3, 5, WIDTH), torch.zeros(2, 3, 7, WIDTH)
    expected = (2, 3, 5, 7)
    said = f"score {name!r}"
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            score = make_score(name, WIDTH, WIDTH)
            found = score(query, score.prepare(keys))
    except InputError:
        raise
    except Exception as error:  # a user's class can fail in any way
        raise PluginError(
            f"{said} fails on queries {tuple(query.shape)} and keys {tuple(keys.shape)}: "
            f"{describe_error(error)}; its forward takes queries and what its prepare returned"
        ) from error
    _check_tensor(said, "scores", found, expected)


def try_parts(model: ModelConfig) -> None:
    """Raise `PluginError` unless the parts of one's own, each by itself, do what they should."""
    if ":" in model.score:
        try_score(model.score)
    states, mask = torch.zeros(2, 5, WIDTH), torch.ones(2, 1, 5, dtype=torch.bool)
    if ":" in model.positions:
        said = f"positions {model.positions!r}"
        _try_part(said, lambda: make_positions(model.positions, WIDTH, 7), states, offset=2)
    if ":" in model.layer:
        _try_part(
            f"layer {model.layer!r}", lambda: make_encoder_layer(model.layer, WIDTH, 2, 11), states, mask=mask
        )


def _try_part(said: str, make: Callable[[], nn.Module], states: Tensor, **more: Any) -> None:
    """Raise `PluginError` unless a part, called with states and `more`, gives states of their shape."""
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            found = make()(states, *more.values())
    except InputError:
        raise
    except Exception as error:  # a user's class can fail in any way
        given = {"states": states, **more}
        shown = [f"{name} {tuple(a.shape) if isinstance(a, Tensor) else a}" for name, a in given.items()]
        raise PluginError(
            f"{said} fails when it is called with {' and '.join(shown)}: {describe_error(error)}; mend it"
        ) from error
    _check_tensor(said, "states", found, tuple(states.shape))


def try_out(config: RunConfig, task: AnyTask, model: TaskModel) -> None:
    """Raise `PluginError` unless what is a user's own works together on a small batch; the model stays as it
    is."""
    own = owned(config)
    if not own:
        return
    said = " with ".join(own)
    try:
        with torch.random.fork_rng(devices=[]):
            _try_batch(said, config, task, copy.deepcopy(model))
    except InputError:
        raise
    except Exception as error:  # a user's class can fail in any way
        raise PluginError(f"{said} fails on a batch of {TRIED}: {describe_error(error)}; mend it") from error


def _try_batch(said: str, config: RunConfig, task: AnyTask, model: TaskModel) -> None:
    device = next((each.device for each in model.parameters()), None)
    if device is None:
        raise PluginError(f"{said} has no parameters: there is nothing to train; make them nn.Parameter")
    batch = _batch(said, config, task).to(device)
    if isinstance(batch, Batch):
        assert isinstance(model, AnswerModel)
        logits = model(batch.inputs, batch.mask)
        _check_tensor(said, "logits", logits, (TRIED, task.sizes["outputs"], task.sizes["classes"]))
    else:
        assert isinstance(model, Seq2Seq)
        logits = _try_steps(said, model, task, batch)
    if not logits.requires_grad:
        raise PluginError(f"{said} gives logits that depend on no parameter: there is nothing to train")
    logits.float().logsumexp(-1).mean().backward()


def _try_steps(said: str, model: Seq2Seq, task: AnyTask, batch: PairBatch) -> Tensor:
    """Feed a target all at once, and its first token as one step; returns the logits of the former."""
    memory, symbols = model.encode(batch.source, batch.source_mask), task.sizes["target_symbols"]
    logits = model.decode(batch.target_in, memory)
    _check_tensor(said, "logits", logits, (*batch.target_in.shape, symbols))
    states, _ = model.step(batch.target_in[:, :1], model.start(memory))
    _check_tensor(said, "logits of one step", model.logits(states), (TRIED, 1, symbols))
    return logits


def _batch(said: str, config: RunConfig, task: AnyTask) -> Batch | PairBatch:
    """Draw a small batch of a task, and check it where the task is one's own; of text, make one up."""
    if not task.draws:
        text = collate([[index] for index in range(TRIED)])
        return PairBatch(text, text)
    settings: Any = config.training
    settings = dataclasses.replace(settings, batchsize=TRIED)
    drawn = task.batches(settings, BatchContext(generator=torch.Generator().manual_seed(0))).draw(0)
    if isinstance(drawn, Batch) and config.on not in TASKS:
        _check_answers(said, task, drawn)
    return drawn


def _check_answers(said: str, task: Any, drawn: Batch) -> None:
    """Raise `PluginError` unless a task's answers and their relevance are what its `sizes` say."""
    outputs, classes = task.sizes["outputs"], task.sizes["classes"]
    _check_tensor(said, "answers", drawn.targets, (TRIED, outputs))
    if drawn.targets.dtype != torch.int64 or not ((drawn.targets >= 0) & (drawn.targets < classes)).all():
        raise PluginError(
            f"{said} gives answers that are no classes: expected int64 from 0 to {classes - 1}, as its property "
            f"classes says"
        )
    _check_tensor(said, "relevance", task.relevance(drawn.inputs), (TRIED, outputs, drawn.inputs.shape[1]))
    task.render(drawn.inputs[0])


def _check_tensor(said: str, what: str, found: object, expected: tuple[int, ...]) -> None:
    if not isinstance(found, Tensor):
        raise PluginError(f"{said} gives {what} of type {type(found).__name__}: expected a tensor {expected}")
    if tuple(found.shape) != expected:
        raise PluginError(f"{said} gives {what} of shape {tuple(found.shape)}: expected {expected}")
