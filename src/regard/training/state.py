"""Training state: everything that a training needs to continue exactly.

A step depends on the parameters, the optimizer's moments, the generator of the samples, the position in the
corpus and the step number. A checkpoint holds them, so that a resumed training has the same losses as an
uninterrupted one, bit for bit on a CPU.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from regard import fast
from regard.errors import InputError
from regard.fast.adam import fused_lerp
from regard.training.adam import Adam
from regard.training.checkpoint import Checkpoint
from regard.training.distributed import SINGLE_PROCESS, DistributedContext
from regard.training.objective import Objective
from regard.training.run_folder import RunFolder
from regard.training.tensor_file import tensor_specs


@dataclass
class Progress:
    """Position in the data and validation history.

    >>> progress = Progress()
    >>> [progress.note(bleu) for bleu in (10.0, 12.0, 11.0)], progress.out_of_patience(1)
    ([True, True, False], True)
    """

    place: tuple[int, int, int] = (0, 0, 0)
    """Position of the next batch in the corpus: epoch, pool, batch."""
    best: float = float("-inf")
    """Best BLEU of all validations."""
    since_best: int = 0
    """Validations since the best one."""

    def note(self, bleu: float) -> bool:
        """Record a validation, and return whether its model is the one to keep.

        Of models with the same BLEU, the later one is kept: it has trained longer.
        """
        keep = bleu >= self.best
        self.since_best = 0 if bleu > self.best else self.since_best + 1
        self.best = max(bleu, self.best)
        return keep

    def out_of_patience(self, patience: int) -> bool:
        """Return whether the last `patience` validations brought no better BLEU; never for 0."""
        return 0 < patience <= self.since_best


@dataclass
class TrainingState:
    """All values that change during training, after `step` finished steps."""

    objective: Objective[Any, Any]
    optimizer: Adam
    generator: torch.Generator
    step: int
    average: dict[str, Tensor] = field(default_factory=dict)
    """Moving average of the trained parameters by name; empty without one."""
    progress: Progress = field(default_factory=Progress)

    @property
    def model(self) -> nn.Module:
        """The model."""
        model: nn.Module = self.objective.model
        return model

    @torch.no_grad()
    def update_average(self, decay: float) -> None:
        """Move the average towards the parameters. The decay is smaller at first, to forget the initial
        values."""
        if self.average:
            decay = min(decay, (1 + self.step) / (10 + self.step))
            parameters = dict(self.model.named_parameters())
            if fast.enabled():
                current = [parameters[name] for name in self.average]
                fused_lerp(list(self.average.values()), current, 1 - decay)
            else:
                for name, average in self.average.items():
                    average.lerp_(parameters[name], 1 - decay)

    @contextmanager
    def averaged(self) -> Iterator[nn.Module]:
        """Yield the model with the averaged parameters, in evaluation mode."""
        parameters = dict(self.model.named_parameters())
        current = {name: parameters[name].data for name in self.average}
        for name, value in self.average.items():
            parameters[name].data = value
        training = self.model.training
        try:
            yield self.model.eval()
        finally:
            for name, value in current.items():
                parameters[name].data = value
            self.model.train(training)

    def weights(self) -> dict[str, Tensor]:
        """Return the weights to use after training: the averages, if there are any."""
        return self.model.state_dict() | self.average

    def release_model(self) -> nn.Module:
        """Return the model for use after training: without gradients and without frozen parts."""
        self.optimizer.zero_grad()
        return self.model.requires_grad_(True)

    def tensors(self) -> dict[str, Tensor]:
        """Return the whole state as named tensors."""
        tensors = {"generator": self.generator.get_state()}
        tensors |= {f"model/{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"average/{name}": value for name, value in self.average.items()}
        for name, moments in self.optimizer.moments.items():
            tensors |= {f"adam/{name}:{moment}": value for moment, value in moments.items()}
        tensors["progress/place"] = torch.tensor(self.progress.place)
        tensors["progress/best"] = torch.tensor(self.progress.best, dtype=torch.float64)
        tensors["progress/since_best"] = torch.tensor(self.progress.since_best)
        return tensors

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Set the state from the result of `tensors`; raises `RuntimeError` or `ValueError` for impossible
        values."""
        self.generator.set_state(tensors["generator"])
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                value.copy_(tensors[f"model/{name}"])
        for name, value in self.average.items():
            value.copy_(tensors[f"average/{name}"])
        for name, moments in self.optimizer.moments.items():
            for moment, value in moments.items():
                value.copy_(tensors[f"adam/{name}:{moment}"])
        epoch, pool, batch = tensors["progress/place"].tolist()
        self.progress = Progress(
            (epoch, pool, batch), tensors["progress/best"].item(), int(tensors["progress/since_best"].item())
        )

    def initial(self) -> dict[str, Tensor]:
        """Return the parameters before the first step, unsharded."""
        return self.weights()

    def save_first(self, folder: RunFolder) -> None:
        """Write the first checkpoint of a new run, from the first process alone."""
        self.save(folder)

    def save(self, folder: RunFolder, context: DistributedContext = SINGLE_PROCESS, *, use: bool = True) -> None:
        """Write a checkpoint from the first process; `use`: replace the weights to use."""
        if context.first:
            weights = self.weights() if use else None
            Checkpoint(step=self.step, weights=weights, training=self.tensors()).save(folder)

    def restore(self, folder: RunFolder) -> None:
        """Load the last checkpoint; raises `InputError` if it is missing, damaged, or does not fit."""
        # The weights are checked too: the next checkpoint replaces them, so an edited file is refused before.
        checkpoint = Checkpoint.load(folder, training=tensor_specs(self.tensors()))
        assert checkpoint.training is not None
        self.step = checkpoint.step
        try:
            self.load_tensors(checkpoint.training)
        except (RuntimeError, ValueError) as error:
            raise InputError(
                f"run {str(folder.path)!r} is damaged: the state of its training has impossible values; restore "
                f"a copy of it, or train it again"
            ) from error
