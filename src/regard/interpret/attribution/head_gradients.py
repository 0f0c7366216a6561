"""Gradients of the explained values with respect to the contexts of heads: first-order effects of all heads at
once.

    gate                   | c_h . g_h |             derivative with respect to a gate that multiplies the head
    attribution patching   | (mean_h - c_h) . g_h |  first-order change when the mean replaces the context

c_h is the context of head h at all steps, and g_h the gradient of the value of one output step. Absolute values
are averaged over output steps, then over inputs.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from regard.interpret.attribution.trial import MOST_ROWS, Trial


def context_gradients(trial: Trial[Any]) -> dict[str, Tensor]:
    """Return, by layer, the gradients (S, T, H, Dv) of the S explained values with respect to all contexts."""
    steps = torch.arange(len(trial.steps), device=trial.logits.device)
    parts: dict[str, list[Tensor]] = {}
    for rows in steps.split(MOST_ROWS):
        for name, gradient in _gradients(trial, rows).items():
            parts.setdefault(name, []).append(gradient)
    return {name: torch.cat(gradients) for name, gradients in parts.items()}


def _gradients(trial: Trial[Any], steps: Tensor) -> dict[str, Tensor]:
    """Return the gradients for some output steps, each computed in its own copy of the input."""
    leaves: dict[str, list[Tensor]] = {}

    def add_leaf(name: str) -> Callable[[Tensor], Tensor]:
        def change(contexts: Tensor) -> Tensor:
            leaf = torch.zeros_like(contexts).requires_grad_()
            leaves.setdefault(name, []).append(leaf)
            return contexts + leaf

        return change

    components = trial.components
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False), ExitStack() as stack:
        for name, layer in components.heads.items():
            stack.enter_context(layer.replace(add_leaf(name)))
        values = trial.values(trial.probe.run(len(steps))).gather(1, steps.unsqueeze(1)).sum()
    flat = [leaf for calls in leaves.values() for leaf in calls]
    computed = iter(torch.autograd.grad(values, flat, allow_unused=True, materialize_grads=True))
    return {
        name: torch.cat([next(computed) for _ in calls], 1).unflatten(-1, (components.heads[name].heads, -1))
        for name, calls in leaves.items()
    }


def gate(trial: Trial[Any]) -> dict[str, Tensor]:
    """Return the sensitivity (H,) of each layer to gates of its heads (Michel et al. 2019, equation 2)."""
    return _first_order(trial, {name: -contexts for name, contexts in trial.contexts.items()})


def attribution_patching(trial: Trial[Any]) -> dict[str, Tensor]:
    """Return the first-order changes (H,) of each layer when the mean over other inputs replaces each context."""
    mean = trial.background.mean_contexts
    changes = {
        name: mean(name, len(contexts)).to(contexts) - contexts for name, contexts in trial.contexts.items()
    }
    return _first_order(trial, changes)


def _first_order(trial: Trial[Any], changes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the mean absolute first-order effects (H,) of changes (T, H, Dv) of the contexts."""
    trial.left_out.update(trial.components.left_out)
    gradients = context_gradients(trial)
    return {name: (gradients[name] * change).sum((1, 3)).abs().mean(0) for name, change in changes.items()}
