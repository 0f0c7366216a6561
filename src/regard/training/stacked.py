"""Stacked seeds: one training run with stacked parameters instead of one training run per seed.

    logits (S, B, To, classes) = model(parameters[s], inputs[s]) for every seed s, by `torch.func.vmap`

The models of the primer's tasks are so small that a training step on a GPU consists mostly of kernel launches.
S stacked seeds need about the same number of launches as one seed. On a CPU, arithmetic dominates and stacking
is not faster (docs/dev/benchmarks.md). Each seed has separate parameters, samples and moments, and is saved as
a separate run. Up to rounding, the run is equal to a run that was trained alone.
"""

import copy
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap

from regard.attention import explicit_weights
from regard.models import ModelConfig
from regard.tasks import BatchSource
from regard.training.adam import make_optimizer
from regard.training.checkpoint import Progress, TrainingState
from regard.training.config import RunConfig
from regard.training.criterion import Criterion
from regard.training.objective import exact
from regard.training.run_folder import RunFolder
from regard.training.settings import TrainingConfig
from regard.training.trainer import Metrics, Outcome, Validate, check_finite

STACKABLE = ("dot", "scaled_dot", "general")
"""Scores that `vmap` supports, because they consist of plain matrix products."""


def stackable(config: RunConfig) -> bool:
    """Return whether training runs of this config with several seeds can be stacked."""
    alone = config.training.snapshots or config.training.freeze
    standard = config.model.score in STACKABLE and config.model.attention == ModelConfig.attention
    return config.kind == "query" and standard and not alone


class StackedLearner:
    """Query models of several seeds at the same step, on a GPU if there is one.

    `states`, `batches`, `folders`: one per seed. `settings`: training options shared by all seeds.
    """

    def __init__(
        self,
        states: Sequence[TrainingState],
        settings: TrainingConfig,
        batches: Sequence[BatchSource],
        folders: Sequence[RunFolder],
    ) -> None:
        self.states, self.batches, self.folders = states, batches, folders
        self.step, self.progress = states[0].step, Progress()
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = copy.deepcopy(states[0].model).to(self.device).train()
        self.stacked = _stack(states, self.device)
        self.optimizer = make_optimizer(self.model, settings.optimization)
        self.optimizer.parameters = self.stacked
        for name, first in states[0].optimizer.moments.items():
            mine = self.optimizer.moments[name]
            mine["step"].copy_(first["step"])
            mine |= {
                moment: _moments(states, name, moment).to(self.device) for moment in first if moment != "step"
            }

    def learn(self, lr: float) -> list[Outcome]:
        """Run one training step for every seed. Raises `InputError` for a loss that is not finite."""
        drawn = [source.draw(self.step) for source in self.batches]
        inputs, targets, mask = (_together(parts, self.device) for parts in zip(*drawn, strict=True))
        assert inputs is not None and targets is not None
        with explicit_weights(self.model):
            logits = vmap(self._run, in_dims=(0, 0, None if mask is None else 0))(self.stacked, inputs, mask)
        losses = F.cross_entropy(logits.flatten(0, 2), targets.flatten(), reduction="none")
        losses = losses.view(len(self.states), -1).mean(1)
        self.optimizer.zero_grad()
        losses.sum().backward()
        self.optimizer.step(lr)
        values = losses.tolist()  # waits for a GPU
        for value in values:
            check_finite(value, self.step + 1, lr)
        self.step += 1
        return [Outcome(*outcome) for outcome in zip(values, exact(logits, targets), strict=True)]

    def _run(self, parameters: Mapping[str, Tensor], inputs: Tensor, mask: Tensor | None) -> Tensor:
        logits: Tensor = functional_call(self.model, dict(parameters), (inputs, mask))
        return logits

    @torch.no_grad()
    def save(self, *, use: bool) -> None:
        """Copy parameters and moments back to the state of each seed, and write a checkpoint for each seed."""
        for index, (state, folder) in enumerate(zip(self.states, self.folders, strict=True)):
            state.step, state.progress.place = self.step, self.batches[index].place
            for name, parameter in state.model.named_parameters():
                parameter.copy_(self.stacked[name][index])
                for moment, value in self.optimizer.moments[name].items():
                    mine = value if moment == "step" else value[index]
                    state.optimizer.moments[name][moment].copy_(mine)
            state.save(folder, use=use)

    def validated(self, validate: Validate) -> Metrics:
        """Return no metrics, because the primer's tasks have no validation text."""
        del validate
        return {}

    def snapshot(self) -> None:
        """Do nothing, because training runs with snapshots are not stacked."""

    def keep(self, most: int, criterion: Criterion | None) -> None:
        """Do nothing, because the training options of the primer's tasks do not keep models."""

    def agree(self, stopped: bool) -> bool:
        """Return `stopped`, because there is a single process."""
        return stopped

    def wait(self) -> None:
        """Do nothing, because there is a single process."""


def _together(parts: Sequence[Tensor | None], device: torch.device) -> Tensor | None:
    """Stack the tensors of all seeds, or return None if the tensors are None."""
    tensors = [part for part in parts if part is not None]
    return torch.stack(tensors).to(device) if tensors else None


def _stack(states: Sequence[TrainingState], device: torch.device) -> dict[str, nn.Parameter]:
    named = [dict(state.model.named_parameters()) for state in states]
    return {
        name: nn.Parameter(torch.stack([parameters[name].detach() for parameters in named]).to(device))
        for name in named[0]
    }


def _moments(states: Sequence[TrainingState], name: str, moment: str) -> Tensor:
    return torch.stack([state.optimizer.moments[name][moment] for state in states])
