"""The training loop: one batch, one step, metrics, validations, checkpoints."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from regard.attention import DecoderLayer, EncoderLayer
from regard.errors import InputError
from regard.tasks import Batch
from regard.text import Pairs
from regard.training.config import RunConfig
from regard.training.objective import Objective
from regard.training.precision import dtype_of
from regard.training.runs import RunFolder
from regard.training.settings import TrainingConfig, TranslationTraining
from regard.training.state import TrainingState
from regard.training.stopping import stop_as_usual, stopping
from regard.training.streams import seed_of
from regard.training.world import ALONE, World

METRICS_EVERY = 10
"""Steps between two lines of metrics, each of the batch of its step."""
CHECKPOINT_EVERY = 500
"""Steps between two checkpoints, so that a killed process loses little."""

Metrics = dict[str, float]


class Source(Protocol):
    """Where batches come from."""

    place: Any

    def draw(self, step: int) -> Batch | Pairs:
        """Return the batch of a training step, counted from 0; a corpus keeps its own `place`."""


def train_steps(
    state: TrainingState,
    config: RunConfig,
    batches: Source,
    folder: RunFolder,
    on_metrics: Callable[[Metrics], None],
    *,
    validate: Callable[[nn.Module], Metrics] | None = None,
    world: World = ALONE,
) -> None:
    """Train from `state.step` to the end, writing metrics and checkpoints to `folder`.

    `validate` returns metrics of a model, "bleu" among them: the model with the best one is kept for use.
    Without it, the last one is. Ctrl-C (or SIGTERM) finishes the step, saves, and then stops the process as
    usual; a second one stops it at once. Raises `InputError` where the loss is no longer a number, and
    `MachineError` where the disk refuses; the last checkpoint stays.
    """
    settings, recipe = config.training, config.training.how
    assert settings.lr is not None, "a config is resolved before training"
    learner = _learner(state.objective, settings, world)
    state.model.train()
    drops = getattr(config.model, "dropout", 0.0) > 0
    kept = frozenset(settings.snapshot_steps)
    with stopping() as stopped, torch.random.fork_rng(devices=[]):
        if state.step == 0 and kept and world.first:
            folder.write_snapshot(0, state.in_use())
        while state.step < settings.steps and not _given_up(state, settings):
            if drops:  # what a step drops depends on the seed and its number alone, so resuming is exact
                torch.manual_seed(seed_of(settings.seed, f"dropout/{state.step}/{world.rank}"))
            lr = settings.lr * recipe.schedule(state.step, settings.steps)
            loss, right = _step(state, learner, batches, settings, lr, world)
            state.progress.place = tuple(batches.place)
            if state.step in kept and world.first:
                folder.write_snapshot(state.step, state.in_use())
            last = state.step == settings.steps
            better = validate is None
            metrics: Metrics = {"step": state.step, "loss": loss}
            if validate is not None and (state.step % settings.validate_every == 0 or last):
                found = validate_average(state, validate, world)
                better = state.progress.note(found["bleu"])
                metrics |= found
                last = last or _given_up(state, settings)
            if (state.step % METRICS_EVERY == 0 or last or "bleu" in metrics) and world.first:
                metrics = {**metrics, "exact_match": right.float().mean().item(), "lr": lr}
                folder.append_metrics(metrics)
                on_metrics(metrics)
            interrupted = bool(world.agree(bool(stopped)))
            if state.step % CHECKPOINT_EVERY == 0 or last or "bleu" in metrics or interrupted:
                state.save(folder, world, use=better)
            if interrupted and not last:
                world.wait()
                stop_as_usual(stopped[0] if stopped else 0)


def validate_average(state: TrainingState, validate: Callable[[nn.Module], Metrics], world: World) -> Metrics:
    """Return the metrics of the averaged model, which the first process works out for all."""
    found: Metrics = {}
    # A search has other shapes at every step: compiled layers would be compiled again and again.
    with state.averaged() as model, torch.compiler.set_stance("force_eager"):
        if world.first:
            found = validate(model)
    return found | {"bleu": world.agree(found.get("bleu", 0.0))}


def _given_up(state: TrainingState, settings: TrainingConfig) -> bool:
    patience = settings.patience if isinstance(settings, TranslationTraining) else 0
    return 0 < patience <= state.progress.since_best


def _learner(objective: Objective, settings: TrainingConfig, world: World) -> nn.Module:
    """Return the objective, compiled and spread over all processes as asked.

    Compiled are the layers, whose code is compiled once for all of them and for batches of any shape.
    """
    learner: nn.Module = objective
    if isinstance(settings, TranslationTraining) and settings.compile:
        for module in objective.modules():
            if isinstance(module, EncoderLayer | DecoderLayer):
                module.compile(dynamic=True)
    if world.size > 1 and not (isinstance(settings, TranslationTraining) and settings.sharded):
        learner = nn.parallel.DistributedDataParallel(learner)
    return learner


def _step(
    state: TrainingState, learner: nn.Module, batches: Source, settings: TrainingConfig, lr: float, world: World
) -> tuple[float, Tensor]:
    """Learn from one batch, or several; returns their loss, and for each sample of this process whether it was
    right before the step."""
    count = settings.accumulate if isinstance(settings, TranslationTraining) else 1
    parts = [batches.draw(state.step) for _ in range(count)]
    tokens = sum(part.tokens for part in parts if isinstance(part, Pairs))
    state.optimizer.zero_grad()
    losses, rights = [], []
    for part in parts:
        with _products(settings, world.device):
            loss, right = learner(world.share(part) if isinstance(part, Pairs) else part, state.step, tokens)
        losses.append(loss.detach())
        rights.append(right)
        # Gradients are averaged over the processes, but each one's loss is its share of the sum.
        (loss * world.size if world.size > 1 else loss).backward()
    value = world.total(sum(losses[1:], losses[0])).item()
    if not math.isfinite(value):
        raise InputError(
            f"loss is {value} at step {state.step + 1}, at a learning rate of {lr:g}: lower --lr; "
            f"the run keeps its last checkpoint"
        )
    if settings.how.clip is not None:
        torch.nn.utils.clip_grad_norm_(state.model.parameters(), settings.how.clip)
    state.optimizer.step(lr)
    state.step += 1
    if isinstance(settings, TranslationTraining):
        state.update_average(settings.average)
    return value, torch.cat(rights) if len(rights) > 1 else rights[0]


def _products(settings: TrainingConfig, device: torch.device) -> AbstractContextManager[Any]:
    """Multiply matrices in the precision asked for."""
    if not isinstance(settings, TranslationTraining):
        return nullcontext()
    dtype = dtype_of(settings.precision, device)
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype)
