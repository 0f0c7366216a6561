"""Many seeds at once: the same training from several seeds, as one of stacked parameters.

    logits (S, B, To, classes) = model(parameters[s], inputs[s]) for every seed s, by `torch.func.vmap`

The models of the primer's tasks are so small that a GPU spends a step on starting operations, and S seeds start
about as many as one. (On a CPU the arithmetic is most of a step already, and nothing is gained:
docs/benchmarks.md.) Each seed has its own parameters, samples, clipping and moments, and is saved as a run of
its own, the same as if it had been trained alone but for rounding.
"""

import copy
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap

from regard.attention import explicit
from regard.errors import InputError
from regard.tasks import Batch
from regard.training.batches import Batches
from regard.training.config import RunConfig
from regard.training.loop import CHECKPOINT_EVERY, METRICS_EVERY
from regard.training.objective import exact
from regard.training.runs import RunFolder
from regard.training.state import TrainingState
from regard.training.stopping import stop_as_usual, stopping

STACKABLE = ("dot", "scaled_dot", "general")
"""Scores that `vmap` knows how to stack: those made of plain matrix products."""


def stackable(config: RunConfig) -> bool:
    """Whether trainings of this config from several seeds can be one."""
    return config.kind == "query" and config.model.score in STACKABLE and not config.training.snapshots


def train_together(
    states: Sequence[TrainingState],
    config: RunConfig,
    batches: Sequence[Batches],
    folders: Sequence[RunFolder],
    on_metrics: Callable[[dict[str, float]], None] = lambda metrics: None,
) -> None:
    """Train query models from `states`, which stand at the same step, to the end, each into its own folder.

    On a GPU, where there is one. `config`: of all but for the seed. `on_metrics` hears of the first seed. Ctrl-C
    saves all of them. Raises `InputError` where a loss is no longer a number; the last checkpoints stay.
    """
    settings, recipe = config.training, config.training.how
    assert settings.lr is not None, "a config is resolved before training"
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, seeds = copy.deepcopy(states[0].model).to(device), len(states)
    stacked = _stack(states, device)
    optimizer = recipe.optimizer(model)
    optimizer.parameters = stacked
    optimizer.moments = {
        name: {
            moment: (first[moment].clone() if moment == "step" else _stacked(states, name, moment)).to(device)
            for moment in first
        }
        for name, first in states[0].optimizer.moments.items()
    }

    def run(parameters: Mapping[str, Tensor], inputs: Tensor, mask: Tensor | None) -> Tensor:
        found: Tensor = functional_call(model, dict(parameters), (inputs, mask))
        return found

    step = states[0].step
    model.train()
    with stopping() as stopped, explicit(model):
        while step < settings.steps:
            drawn = [each.draw(step) for each in batches]
            parts = zip(*drawn, strict=True)
            batch = Batch(*(None if each[0] is None else torch.stack(each).to(device) for each in parts))  # type: ignore
            masked = None if batch.mask is None else 0
            logits = vmap(run, in_dims=(0, 0, masked))(stacked, batch.inputs, batch.mask)
            losses = F.cross_entropy(logits.flatten(0, 2), batch.targets.flatten(), reduction="none")
            losses = losses.view(seeds, -1).mean(1)
            values = losses.tolist()
            if not torch.isfinite(losses).all():
                raise InputError(
                    f"loss is {max(values)} at step {step + 1}, at a learning rate of {settings.lr:g}: lower --lr"
                )
            optimizer.zero_grad()
            losses.sum().backward()
            if recipe.clip is not None:
                _clip(stacked, recipe.clip)
            lr = settings.lr * recipe.schedule(step, settings.steps)
            optimizer.step(lr)
            step += 1
            last = step == settings.steps
            if step % METRICS_EVERY == 0 or last:
                right = exact(logits, batch.targets).float().mean(1).tolist()
                for folder, loss, share in zip(folders, values, right, strict=True):
                    folder.append_metrics({"step": step, "loss": loss, "exact_match": share, "lr": lr})
                on_metrics({"step": step, "loss": values[0], "exact_match": right[0]})
            if step % CHECKPOINT_EVERY == 0 or last or stopped:
                _unstack(states, stacked, optimizer.moments, step)
                for state, folder in zip(states, folders, strict=True):
                    state.save(folder)
            if stopped and not last:
                stop_as_usual(stopped[0])


def _stack(states: Sequence[TrainingState], device: torch.device) -> dict[str, nn.Parameter]:
    named = [dict(state.model.named_parameters()) for state in states]
    return {
        name: nn.Parameter(torch.stack([each[name].detach() for each in named]).to(device)) for name in named[0]
    }


def _stacked(states: Sequence[TrainingState], name: str, moment: str) -> Tensor:
    return torch.stack([state.optimizer.moments[name][moment] for state in states])


@torch.no_grad()
def _unstack(
    states: Sequence[TrainingState],
    stacked: dict[str, nn.Parameter],
    moments: dict[str, dict[str, Tensor]],
    step: int,
) -> None:
    """Give every state its parameters and moments back, as of `step`."""
    for index, state in enumerate(states):
        state.step = step
        for name, parameter in state.model.named_parameters():
            parameter.copy_(stacked[name][index])
            for moment, value in moments[name].items():
                state.optimizer.moments[name][moment].copy_(value if moment == "step" else value[index])


@torch.no_grad()
def _clip(stacked: dict[str, nn.Parameter], most: float) -> None:
    """Scale the gradient of each seed so that its norm over all parameters is at most `most`."""
    grads = [parameter.grad for parameter in stacked.values() if parameter.grad is not None]
    norms = torch.stack([grad.flatten(1).norm(dim=1) for grad in grads]).norm(dim=0)
    factors = (most / (norms + 1e-6)).clamp(max=1.0)  # as nn.utils.clip_grad_norm_ has it
    for grad in grads:
        grad.mul_(factors.view(-1, *[1] * (grad.dim() - 1)))
