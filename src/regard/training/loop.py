"""The training loop: one step after the other, metrics, validations, checkpoints."""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from regard.training.learner import Learner, Metrics, Outcome
from regard.training.settings import TrainingConfig
from regard.training.stopping import exit_by_signal, stopping

METRICS_EVERY = 10
"""Steps between two lines of metrics, each of the batch of its step."""
CHECKPOINT_EVERY = 500
"""Steps between two checkpoints, so that a killed process loses little."""


def train_steps(
    learner: Learner,
    settings: TrainingConfig,
    on_metrics: Callable[[Metrics], None] = lambda metrics: None,
    *,
    validate: Callable[[nn.Module], Metrics] | None = None,
) -> None:
    """Train from where the learner stands to the end, writing metrics and checkpoints to its folders.

    `validate` returns metrics of a model, "bleu" among them: the model with the best one, and of several the
    last, is kept for use. Without it, the last one is. `on_metrics` hears of the first folder's. Ctrl-C (or
    SIGTERM) finishes the step, saves, and then stops the process as usual; a second one stops it at once. Raises
    `InputError` where the loss is no longer a number, and `MachineError` where the disk refuses; the last
    checkpoint stays.
    """
    kept, progress = frozenset(settings.snapshot_steps), learner.progress
    with stopping() as stopped, torch.random.fork_rng(devices=[]):
        if learner.step == 0 and kept:
            learner.snapshot()
        while learner.step < settings.steps and not progress.out_of_patience(settings.patience):
            lr = settings.schedule_at(learner.step)
            outcomes = learner.learn(lr)
            if learner.step in kept:
                learner.snapshot()
            last, better, found = learner.step == settings.steps, validate is None, Metrics()
            if validate is not None and (learner.step % settings.validate_every == 0 or last):
                found = learner.validated(validate)
                better = progress.note(found["bleu"])
                last = last or progress.out_of_patience(settings.patience)
            if learner.step % METRICS_EVERY == 0 or last or found:
                _tell(learner, outcomes, found, lr, on_metrics)
            interrupted = learner.agree(bool(stopped))
            if learner.step % CHECKPOINT_EVERY == 0 or last or found or interrupted:
                learner.save(use=better)
            if interrupted and not last:
                learner.wait()
                exit_by_signal(stopped[0] if stopped else 0)


def _tell(
    learner: Learner,
    outcomes: Sequence[Outcome],
    found: Metrics,
    lr: float,
    on_metrics: Callable[[Metrics], None],
) -> None:
    """Write a line of metrics to each folder; `found`: those of a validation."""
    for index, (folder, outcome) in enumerate(zip(learner.folders, outcomes, strict=False)):
        share = outcome.right.float().mean().item()
        metrics = {"step": learner.step, "loss": outcome.loss, **found, "exact_match": share, "lr": lr}
        folder.append_metrics(metrics)
        if not index:
            on_metrics(metrics)
