"""The state of a training: all that a run needs to go on exactly as before.

What a step does depends on the parameters, the optimizer's moments, the generator of the samples, the place in
the corpus and the number of the step, and a checkpoint holds these. So a training that was interrupted and
resumed makes the same losses, to the last bit on a CPU, as one that was not.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from regard import fast
from regard.errors import InputError
from regard.fast.adam import fused_lerp
from regard.training.adam import Adam
from regard.training.folder import RunFolder
from regard.training.objective import Objective
from regard.training.tensors import kept
from regard.training.world import ALONE, World


@dataclass
class Progress:
    """How far a training on text has come."""

    place: tuple[int, int, int] = (0, 0, 0)
    """Of the next batch in the corpus: epoch, pool, batch."""
    best: float = float("-inf")
    """Best BLEU of all validations."""
    since_best: int = 0
    """Validations since then."""

    def note(self, bleu: float) -> bool:
        """Take note of a validation; returns whether its model is to be kept: none before was better. Of models
        that are equally good, the later one has learned more."""
        keep = bleu >= self.best
        self.since_best = 0 if bleu > self.best else self.since_best + 1
        self.best = max(bleu, self.best)
        return keep

    def given_up(self, patience: int) -> bool:
        """Whether so many validations have not found a better one; never for 0."""
        return 0 < patience <= self.since_best


@dataclass
class TrainingState:
    """All that changes while training, as of `step` finished steps."""

    objective: Objective[Any, Any]
    optimizer: Adam
    generator: torch.Generator
    step: int
    average: dict[str, Tensor] = field(default_factory=dict)
    """Moving average of the parameters that are trained, by name; empty where none is kept."""
    progress: Progress = field(default_factory=Progress)

    @property
    def model(self) -> nn.Module:
        """The model itself."""
        model: nn.Module = self.objective.model
        return model

    @torch.no_grad()
    def update_average(self, decay: float) -> None:
        """Move the average towards the parameters. At first it moves faster, so as to forget where it began."""
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
        """The model with the average for its parameters, in evaluation mode."""
        parameters = dict(self.model.named_parameters())
        kept = {name: parameters[name].data for name in self.average}
        for name, value in self.average.items():
            parameters[name].data = value
        training = self.model.training
        try:
            yield self.model.eval()
        finally:
            for name, value in kept.items():
                parameters[name].data = value
            self.model.train(training)

    def in_use(self) -> dict[str, Tensor]:
        """Return the parameters that are used outside of training: averages, where they are kept."""
        return self.model.state_dict() | self.average

    def trainer_tensors(self) -> dict[str, Tensor]:
        """Return all as named tensors."""
        tensors = {"generator": self.generator.get_state()}
        tensors |= {f"model/{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"average/{name}": value for name, value in self.average.items()}
        for name, moments in self.optimizer.moments.items():
            tensors |= {f"adam/{name}:{moment}": value for moment, value in moments.items()}
        tensors["progress/place"] = torch.tensor(self.progress.place)
        tensors["progress/best"] = torch.tensor(self.progress.best, dtype=torch.float64)
        tensors["progress/since_best"] = torch.tensor(self.progress.since_best)
        return tensors

    def load_trainer_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Take up what `trainer_tensors` returned; raises `RuntimeError` or
        `ValueError` where a value cannot be."""
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
        """Return the parameters before the first step, in one piece."""
        return self.in_use()

    def begin(self, folder: RunFolder) -> None:
        """Write the first files of a new run, from the first process alone: a checkpoint."""
        self.save(folder)

    def save(self, folder: RunFolder, world: World = ALONE, *, use: bool = True) -> None:
        """Write a checkpoint, from the first process; `use`: these are the parameters to use from now on."""
        if world.first:
            if use:
                folder.write_model(self.step, self.in_use())
            folder.write_trainer(self.step, self.trainer_tensors())

    def restore(self, folder: RunFolder) -> None:
        """Take up what `save` wrote last; raises `InputError` where it is missing, damaged, or does not fit."""
        tensors, self.step = folder.read_trainer(kept(self.trainer_tensors()))
        try:
            self.load_trainer_tensors(tensors)
        except (RuntimeError, ValueError) as error:
            raise InputError(
                f"run {str(folder.path)!r} is damaged: its training's state cannot be taken up; restore a copy "
                f"of it, or train it again"
            ) from error
