"""What the loop trains: one model, in one process or in several. (`stacked` has another: one model from many
seeds.)"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from regard.attention import DecoderLayer, EncoderLayer
from regard.errors import MachineError, shorten
from regard.streams import derive_seed
from regard.tasks import BatchSource
from regard.training.folder import RunFolder
from regard.training.objective import Objective, check_finite
from regard.training.precision import dtype_of
from regard.training.settings import TrainingConfig
from regard.training.state import Progress, TrainingState
from regard.training.world import ALONE, World

Metrics = dict[str, float]


class Outcome(NamedTuple):
    """What a step came to, before it changed anything."""

    loss: float
    """Mean over the outputs, in nats."""
    right: Tensor
    """(B,) bool, which samples of this process were answered without any error."""


class Learner(Protocol):
    """Something that learns step by step, into a run's folder or several."""

    @property
    def step(self) -> int:
        """Steps behind it."""

    @property
    def progress(self) -> Progress:
        """How far it has come on text."""

    @property
    def folders(self) -> Sequence[RunFolder]:
        """Where it writes: a folder for each outcome of a step; none where another process writes."""

    def learn(self, lr: float) -> list[Outcome]:
        """Take one step; raises `InputError`, with nothing changed, where a loss is no number."""

    def validated(self, validate: Callable[[nn.Module], Metrics]) -> Metrics:
        """Return the metrics that `validate` finds of the model as it would be used."""

    def snapshot(self) -> None:
        """Keep a small copy of the parameters."""

    def save(self, *, use: bool) -> None:
        """Write a checkpoint; `use`: these are the parameters to use from now on."""

    def agree(self, stopped: bool) -> bool:
        """Say for all processes what the first one says."""

    def wait(self) -> None:
        """Wait for all processes, so that none ends while another still writes."""


class OneLearner:
    """One model that learns from one batch after the other, on all processes of a training."""

    def __init__(
        self,
        state: TrainingState,
        settings: TrainingConfig,
        batches: BatchSource,
        folder: RunFolder,
        *,
        world: World = ALONE,
        drops: bool = False,
    ) -> None:
        self.state, self.settings, self.batches, self.world = state, settings, batches, world
        self.folder = folder
        self.folders = [folder] if world.first else []
        self.drops = drops
        """Whether a step drops anything."""
        self.module = _spread(state.objective, settings, world)
        state.model.train()

    @property
    def step(self) -> int:
        """Steps behind it."""
        return self.state.step

    @property
    def progress(self) -> Progress:
        """How far it has come on text."""
        return self.state.progress

    def learn(self, lr: float) -> list[Outcome]:
        """Learn from one batch, or several; raises `InputError` where the loss is no number, `MachineError` where
        nothing can be compiled."""
        state, settings, world = self.state, self.settings, self.world
        if self.drops:  # what a step drops depends on the seed and its number alone, so resuming is exact
            torch.manual_seed(derive_seed(settings.seed, f"dropout/{state.step}/{world.rank}"))
        parts = [self.batches.draw(state.step) for _ in range(settings.accumulate)]
        tokens = sum(part.tokens for part in parts)
        state.optimizer.zero_grad()
        losses, rights = [], []
        for part in parts:
            with self._compiling():
                with self._products():
                    loss, right = self.module(world.share(part), state.step, tokens)
                if loss.requires_grad:  # where it does not, the parameters have their gradients already
                    # Gradients are averaged over the processes, but each one's loss is its share of the sum.
                    (loss * world.size if world.size > 1 else loss).backward()
            losses.append(loss.detach())
            rights.append(right)
        value = world.total(sum(losses[1:], losses[0])).item()
        check_finite(value, state.step + 1, lr)
        if settings.how.clip is not None:
            torch.nn.utils.clip_grad_norm_(state.model.parameters(), settings.how.clip)
        state.optimizer.step(lr)
        state.step += 1
        state.update_average(settings.average)
        state.progress.place = self.batches.place
        return [Outcome(value, torch.cat(rights) if len(rights) > 1 else rights[0])]

    @contextmanager
    def _compiling(self) -> Iterator[None]:
        """Say in a line that nothing can be compiled, as where there is no compiler."""
        if not self.settings.compile:
            yield
            return
        from torch._dynamo.exc import TorchDynamoException  # takes seconds

        try:
            yield
        except TorchDynamoException as error:
            reason = " ".join(str(error).split())
            raise MachineError(f"cannot compile: {shorten(reason, 200)}; train without --compile") from error

    def _products(self) -> AbstractContextManager[object]:
        """Multiply matrices in the precision asked for."""
        dtype = dtype_of(self.settings.precision, self.world.device)
        return nullcontext() if dtype == torch.float32 else torch.autocast(self.world.device.type, dtype)

    def validated(self, validate: Callable[[nn.Module], Metrics]) -> Metrics:
        """Return the metrics of the averaged model, which the first process works out for all."""
        found: Metrics = {}
        # A search has other shapes at every step: compiled layers would be compiled again and again.
        eager = (
            torch.compiler.set_stance("force_eager") if self.settings.compile else nullcontext()
        )  # takes seconds
        with self.state.averaged() as model, eager:
            if self.world.first:
                found = validate(model)
        return found | {"bleu": self.world.agree(found.get("bleu", 0.0))}

    def snapshot(self) -> None:
        """Keep a small copy of the parameters, from the first process."""
        for folder in self.folders:
            folder.write_snapshot(self.step, self.state.in_use())

    def save(self, *, use: bool) -> None:
        """Write a checkpoint; `use`: these are the parameters to use from now on."""
        self.state.save(self.folder, self.world, use=use)

    def agree(self, stopped: bool) -> bool:
        """Say for all processes what the first one says."""
        return bool(self.world.agree(stopped))

    def wait(self) -> None:
        """Wait for all processes, so that none ends while another still writes."""
        self.world.wait()


def _spread(objective: Objective[Any, Any], settings: TrainingConfig, world: World) -> nn.Module:
    """Return the objective, compiled and spread over all processes as asked.

    Compiled are the layers, whose code is compiled once for all of them and for batches of any shape.
    """
    if settings.compile:
        for module in objective.modules():
            if isinstance(module, EncoderLayer | DecoderLayer):
                module.compile(dynamic=True)
    if world.size > 1 and not settings.sharded:
        objective.fast_gradient = None  # DDP sums the gradients that autograd computes
        return nn.parallel.DistributedDataParallel(objective)
    return objective
