"""The training loop: one batch, one step, metrics, checkpoints."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError
from regard.tasks import Batch, Task
from regard.training.config import RunConfig
from regard.training.recipes import RECIPES
from regard.training.runs import RunFolder
from regard.training.state import TrainingState
from regard.training.stopping import stop_as_usual, stopping

METRICS_EVERY = 10
"""Steps between two lines of metrics, each of the batch of its step."""
CHECKPOINT_EVERY = 500
"""Steps between two checkpoints, so that a killed process loses a few seconds."""


def train_steps(
    state: TrainingState,
    config: RunConfig,
    task: Task,
    folder: RunFolder,
    on_metrics: Callable[[dict[str, float]], None],
) -> None:
    """Train from `state.step` to the end, writing metrics and checkpoints to `folder`.

    Ctrl-C (or SIGTERM) finishes the step, saves, and then stops the process as usual; a second one stops it
    at once. Raises `InputError` where the loss is no longer a number, and `MachineError` where the disk
    refuses; the last checkpoint stays.
    """
    settings, recipe = config.training, RECIPES[config.training.recipe]
    assert settings.lr is not None, "a config is resolved before training"
    state.model.train()
    with stopping() as stopped:
        while state.step < settings.steps:
            batch = task.sample(settings.batchsize, state.generator, vary_len=settings.vary_len)
            lr = settings.lr * recipe.schedule(state.step, settings.steps)
            loss, logits = _step(state, batch, lr, recipe.clip)
            last = state.step == settings.steps
            if state.step % METRICS_EVERY == 0 or last:
                share = exact(logits, batch.targets).float().mean().item()
                metrics = {"step": state.step, "loss": loss, "exact_match": share, "lr": lr}
                folder.append_metrics(metrics)
                on_metrics(metrics)
            if state.step % CHECKPOINT_EVERY == 0 or last or stopped:
                state.save(folder)
            if stopped and not last:
                stop_as_usual(stopped[0])


def _step(state: TrainingState, batch: Batch, lr: float, clip: float | None) -> tuple[float, Tensor]:
    """Learn from one batch; returns its loss and its logits (B, To, classes), from before the step."""
    logits = state.model(batch.inputs, batch.mask)
    loss = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
    value = loss.item()
    if not math.isfinite(value):
        raise InputError(
            f"loss is {value} at step {state.step + 1}, at a learning rate of {lr:g}: lower --lr; "
            f"the run keeps its last checkpoint"
        )
    state.optimizer.zero_grad()
    loss.backward()
    if clip is not None:
        torch.nn.utils.clip_grad_norm_(state.model.parameters(), clip)
    state.optimizer.step(lr)
    state.step += 1
    return value, logits


def exact(logits: Tensor, targets: Tensor) -> Tensor:
    """Say for each sample whether all its outputs are right: (B,) bool, of logits (B, To, classes)."""
    return (logits.argmax(-1) == targets).all(-1)
