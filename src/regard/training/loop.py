"""The training loop: one batch, one step, and everything that a run needs to go on exactly as before.

What a step does depends on the parameters, the optimizer's moments, the generator of the samples and the
number of the step, and a checkpoint holds these four. So a training that was interrupted and resumed makes
the same losses, to the last bit on a CPU, as one that was not.
"""

import math
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError
from regard.models import QueryModel
from regard.tasks import Task
from regard.training.adam import Adam
from regard.training.config import RunConfig
from regard.training.recipes import RECIPES
from regard.training.runs import RunFolder
from regard.training.streams import generator_of

METRICS_EVERY = 10
"""Steps between two lines of metrics, each of the batch of its step."""
CHECKPOINT_EVERY = 500
"""Steps between two checkpoints, so that a killed process loses a few seconds."""
MOMENTS = "adam/"
"""Prefix of the optimizer's tensors in the trainer file."""


@dataclass
class TrainingState:
    """All that changes while training, as of `step` finished steps."""

    model: QueryModel
    optimizer: Adam
    generator: torch.Generator
    step: int

    def trainer_tensors(self) -> dict[str, Tensor]:
        """Return optimizer and random state as named tensors."""
        tensors = {"generator": self.generator.get_state()}
        for name, moments in self.optimizer.moments.items():
            tensors |= {f"{MOMENTS}{name}:{moment}": value for moment, value in moments.items()}
        return tensors

    def load_trainer_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Take up what `trainer_tensors` returned; raises `KeyError` or `RuntimeError` where it is off."""
        self.generator.set_state(tensors["generator"])
        for name, moments in self.optimizer.moments.items():
            for moment, value in moments.items():
                value.copy_(tensors[f"{MOMENTS}{name}:{moment}"])

    def save(self, folder: RunFolder) -> None:
        """Write a checkpoint."""
        folder.write_checkpoint(self.step, self.model.state_dict(), self.trainer_tensors())


def build_model(config: RunConfig, task: Task) -> QueryModel:
    """Return the query model of a run, with whatever parameters; nothing random is drawn that matters."""
    return QueryModel(
        config.model,
        letters=len(task.vocabulary),
        input_len=task.input_len,
        outputs=task.outputs,
        classes=task.classes,
        rest=config.training.vary_len,
    )


def start(config: RunConfig, task: Task) -> TrainingState:
    """Return a training before its first step; the caller's global random state is left as it was."""
    recipe = RECIPES[config.training.recipe]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.training.seed)
        model = build_model(config, task)
        model.initialise(recipe.start)
    generator = generator_of(config.training.seed, "train")
    return TrainingState(model, recipe.optimizer(model), generator, step=0)


def restore(folder: RunFolder, config: RunConfig, task: Task) -> TrainingState:
    """Return the training that `folder` holds; raises `InputError` where its files are missing or damaged."""
    state = start(config, task)
    parameters, state.step = folder.read_model()
    load_parameters(state.model, parameters, folder)
    try:
        state.load_trainer_tensors(folder.read_trainer(state.step))
    except (KeyError, RuntimeError) as error:
        raise InputError(
            f"run {str(folder.path)!r} is damaged: its trainer state does not fit its config ({error})"
        ) from error
    return state


def load_parameters(model: QueryModel, parameters: dict[str, Tensor], folder: RunFolder) -> None:
    """Put stored parameters into a model; raises `InputError` where they do not fit the run's config."""
    try:
        model.load_state_dict(parameters)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"run {str(folder.path)!r} is damaged: model and config do not fit ({reason})"
        ) from error


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
            lr = settings.lr * recipe.schedule(state.step, settings.steps)
            inputs, targets, mask = task.sample(
                settings.batchsize, state.generator, vary_len=settings.vary_len
            )
            logits = state.model(inputs, mask)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
            if not math.isfinite(loss.item()):
                raise InputError(
                    f"loss is {loss.item()} at step {state.step + 1} with lr {settings.lr:g}: lower --lr; "
                    f"the run keeps its last checkpoint"
                )
            state.optimizer.zero_grad()
            loss.backward()
            if recipe.clip is not None:
                torch.nn.utils.clip_grad_norm_(state.model.parameters(), recipe.clip)
            state.optimizer.step(lr)
            state.step += 1

            last = state.step == settings.steps
            if state.step % METRICS_EVERY == 0 or last:
                metrics = {
                    "step": state.step,
                    "loss": loss.item(),
                    "exact_match": exact(logits, targets).float().mean().item(),
                    "lr": lr,
                }
                folder.append_metrics(metrics)
                on_metrics(metrics)
            if state.step % CHECKPOINT_EVERY == 0 or last or stopped:
                state.save(folder)
            if stopped and not last:
                _stop_as_usual(stopped[0])


def exact(logits: Tensor, targets: Tensor) -> Tensor:
    """Say for each sample whether all its outputs are right: (B,) bool, of logits (B, To, classes)."""
    return (logits.argmax(-1) == targets).all(-1)


@contextmanager
def stopping() -> Iterator[list[int]]:
    """Collect the first SIGINT or SIGTERM in a list instead of dying of it; the second one acts as usual.

    Only the main thread may handle signals; elsewhere the list stays empty.
    """
    stopped: list[int] = []
    before: dict[int, object] = {}

    def note(number: int, frame: FrameType | None) -> None:
        stopped.append(number)
        put_back()

    def put_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, note)
    except ValueError:  # not the main thread
        before.clear()
    try:
        yield stopped
    finally:
        put_back()


def _stop_as_usual(number: int) -> None:
    """End as a process does that was sent this signal."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)
