"""Many seeds at once: the same training from several seeds, as one of stacked parameters.

    logits (S, B, To, classes) = model(parameters[s], inputs[s]) for every seed s, by `torch.func.vmap`

The models of the primer's tasks are so small that a GPU spends a step on starting operations, and S seeds start
about as many as one. (On a CPU the arithmetic is most of a step already, and nothing is gained:
docs/benchmarks.md.) Each seed has its own parameters, samples and moments, and is saved as a run of
its own, the same as if it had been trained alone but for rounding.
"""

import copy
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap

from regard.attention import explicit_weights
from regard.tasks import BatchSource
from regard.training.config import RunConfig
from regard.training.folder import RunFolder
from regard.training.learner import Metrics, Outcome
from regard.training.objective import check_finite, exact
from regard.training.settings import TrainingConfig
from regard.training.state import Progress, TrainingState

STACKABLE = ("dot", "scaled_dot", "general")
"""Scores that `vmap` knows how to stack: those made of plain matrix products."""


def stackable(config: RunConfig) -> bool:
    """Whether trainings of this config from several seeds can be one."""
    alone = config.training.snapshots or config.training.freeze
    return config.kind == "query" and config.model.score in STACKABLE and not alone


class StackedLearner:
    """Query models from `states`, which stand at the same step, each with batches and a folder of its own.

    On a GPU, where there is one. `settings`: of all but for the seed.
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
        self.optimizer = settings.how.optimizer(self.model)
        self.optimizer.parameters = self.stacked
        for name, first in states[0].optimizer.moments.items():
            mine = self.optimizer.moments[name]
            mine["step"].copy_(first["step"])
            mine |= {each: _moments(states, name, each).to(self.device) for each in first if each != "step"}

    def learn(self, lr: float) -> list[Outcome]:
        """Take one step of every seed; raises `InputError` where a loss is no number."""
        drawn = [each.draw(self.step) for each in self.batches]
        inputs, targets, mask = (_together(parts, self.device) for parts in zip(*drawn, strict=True))
        assert inputs is not None and targets is not None
        with explicit_weights(self.model):
            logits = vmap(self._run, in_dims=(0, 0, None if mask is None else 0))(self.stacked, inputs, mask)
        losses = F.cross_entropy(logits.flatten(0, 2), targets.flatten(), reduction="none")
        losses = losses.view(len(self.states), -1).mean(1)
        values = losses.tolist()
        for value in values:
            check_finite(value, self.step + 1, lr)
        self.optimizer.zero_grad()
        losses.sum().backward()
        self.optimizer.step(lr)
        self.step += 1
        return [Outcome(*each) for each in zip(values, exact(logits, targets), strict=True)]

    def _run(self, parameters: Mapping[str, Tensor], inputs: Tensor, mask: Tensor | None) -> Tensor:
        found: Tensor = functional_call(self.model, dict(parameters), (inputs, mask))
        return found

    @torch.no_grad()
    def save(self, *, use: bool) -> None:
        """Give every state its parameters and moments back, and write them."""
        for index, (state, folder) in enumerate(zip(self.states, self.folders, strict=True)):
            state.step, state.progress.place = self.step, self.batches[index].place
            for name, parameter in state.model.named_parameters():
                parameter.copy_(self.stacked[name][index])
                for moment, value in self.optimizer.moments[name].items():
                    mine = value if moment == "step" else value[index]
                    state.optimizer.moments[name][moment].copy_(mine)
            state.save(folder, use=use)

    def validated(self, validate: Callable[[nn.Module], Metrics]) -> Metrics:
        """Nothing: the primer's tasks have no validation text."""
        del validate
        return {}

    def snapshot(self) -> None:
        """Nothing: trainings that keep snapshots are not stacked."""

    def agree(self, stopped: bool) -> bool:
        """There is one process."""
        return stopped

    def wait(self) -> None:
        """There is nobody to wait for."""


def _together(parts: Sequence[Tensor | None], device: torch.device) -> Tensor | None:
    """Stack what each seed has drawn; None where there is nothing."""
    found = [each for each in parts if each is not None]
    return torch.stack(found).to(device) if found else None


def _stack(states: Sequence[TrainingState], device: torch.device) -> dict[str, nn.Parameter]:
    named = [dict(state.model.named_parameters()) for state in states]
    return {
        name: nn.Parameter(torch.stack([each[name].detach() for each in named]).to(device)) for name in named[0]
    }


def _moments(states: Sequence[TrainingState], name: str, moment: str) -> Tensor:
    return torch.stack([state.optimizer.moments[name][moment] for state in states])
