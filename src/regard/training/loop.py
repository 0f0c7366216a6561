"""The training loop: one batch, one step, metrics, checkpoints."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from regard.errors import InputError
from regard.tasks import AnyTask, Batch
from regard.text import Pairs
from regard.training.batches import Batches
from regard.training.config import RunConfig, TrainingConfig
from regard.training.objective import objective
from regard.training.runs import RunFolder
from regard.training.state import TrainingState
from regard.training.stopping import stop_as_usual, stopping
from regard.training.streams import seed_of

METRICS_EVERY = 10
"""Steps between two lines of metrics, each of the batch of its step."""
CHECKPOINT_EVERY = 500
"""Steps between two checkpoints, so that a killed process loses a few seconds."""


def train_steps(
    state: TrainingState,
    config: RunConfig,
    task: AnyTask,
    folder: RunFolder,
    on_metrics: Callable[[dict[str, float]], None],
) -> None:
    """Train from `state.step` to the end, writing metrics and checkpoints to `folder`.

    Ctrl-C (or SIGTERM) finishes the step, saves, and then stops the process as usual; a second one stops it
    at once. Raises `InputError` where the loss is no longer a number, and `MachineError` where the disk
    refuses; the last checkpoint stays.
    """
    settings, recipe = config.training, config.training.how
    assert settings.lr is not None, "a config is resolved before training"
    batches = Batches(task, settings, state.generator)
    state.model.train()
    drops = getattr(config.model, "dropout", 0.0) > 0
    with stopping() as stopped, torch.random.fork_rng(devices=[]):
        while state.step < settings.steps:
            if drops:  # what a step drops depends on the seed and its number alone, so resuming is exact
                torch.manual_seed(seed_of(settings.seed, f"dropout/{state.step}"))
            lr = settings.lr * recipe.schedule(state.step, settings.steps)
            loss, right = _step(state, batches.draw(state.step), settings, lr)
            last = state.step == settings.steps
            if state.step % METRICS_EVERY == 0 or last:
                share = right.float().mean().item()
                metrics = {"step": state.step, "loss": loss, "exact_match": share, "lr": lr}
                folder.append_metrics(metrics)
                on_metrics(metrics)
            if state.step % CHECKPOINT_EVERY == 0 or last or stopped:
                state.save(folder)
            if stopped and not last:
                stop_as_usual(stopped[0])


def _step(
    state: TrainingState, batch: Batch | Pairs, settings: TrainingConfig, lr: float
) -> tuple[float, Tensor]:
    """Learn from one batch; returns its loss, and for each sample whether it was right before the step."""
    loss, right = objective(state.model, batch, settings, state.generator, state.step)
    value = loss.item()
    if not math.isfinite(value):
        raise InputError(
            f"loss is {value} at step {state.step + 1}, at a learning rate of {lr:g}: lower --lr; "
            f"the run keeps its last checkpoint"
        )
    state.optimizer.zero_grad()
    loss.backward()
    if settings.how.clip is not None:
        torch.nn.utils.clip_grad_norm_(state.model.parameters(), settings.how.clip)
    state.optimizer.step(lr)
    state.step += 1
    return value, right
