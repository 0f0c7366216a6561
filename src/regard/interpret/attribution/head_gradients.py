"""Gradients of the explained values with respect to the contexts of heads: first-order effects of all heads at
once.

    gate                   | c_h . g_h |             derivative with respect to a gate that multiplies the head
    attribution patching   | (mean_h - c_h) . g_h |  first-order change when the mean replaces the context

    logit attribution      the part of head h in the target's logit minus the mean logit, along direct paths only

c_h is the context of head h at all steps, and g_h the gradient of the value of one output step. Absolute values
are averaged over output steps, then over inputs.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from regard.interpret.attribution.trial import MOST_ROWS, Trial
from regard.interpret.linear_pass import DirectPaths


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

    def add_leaf(name: str, contexts: Tensor) -> Tensor:
        leaf = torch.zeros_like(contexts).requires_grad_()
        leaves.setdefault(name, []).append(leaf)
        return contexts + leaf

    # cuDNN's recurrent layers have no gradient in evaluation mode; PyTorch's native recurrent layers have one.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        with trial.components.replace_contexts(add_leaf):
            values = trial.values(trial.probe.run(len(steps))).gather(1, steps.unsqueeze(1)).sum()
        flat = [leaf for calls in leaves.values() for leaf in calls]
        computed = iter(torch.autograd.grad(values, flat, allow_unused=True, materialize_grads=True))
    return {
        name: trial.components.split(name, torch.cat([next(computed) for _ in calls], 1))
        for name, calls in leaves.items()
    }


def gate(trial: Trial[Any]) -> dict[str, Tensor]:
    """Return the sensitivity (H,) of each layer to gates of its heads (Michel et al. 2019)."""
    return _first_order(trial, {name: -contexts for name, contexts in trial.contexts.items()})


def attribution_patching(trial: Trial[Any]) -> dict[str, Tensor]:
    """Return the first-order changes (H,) of each layer when the mean over other inputs replaces each context."""
    mean = trial.background.mean_contexts
    changes = {
        name: mean(name, len(contexts)).to(contexts) - contexts for name, contexts in trial.contexts.items()
    }
    return _first_order(trial, changes)


def direct_parts(trial: Trial[Any]) -> dict[str, Tensor]:
    """Return the mean absolute direct parts (H,) of heads in the target's logit minus the mean logit (Elhage et
    al. 2021); norms are frozen.

    Heads without a direct path get zero, and a remark names them. Raises `InputError` for a model without a
    residual stream.
    """
    paths = DirectPaths(trial.subject.model, trial.components)
    scores: dict[str, Tensor] = {}
    indirect: dict[str, str] = {}
    with torch.enable_grad(), paths.watch():
        logits = trial.probe.run(1)[0]
        for step in trial.steps:
            row = logits[step]
            value = row[int(trial.classes[step])] - (row.mean() if len(row) > 1 else 0)
            parts, indirect = paths.parts(value)
            for (kind, name), part in parts.items():
                if kind == "head":
                    layer = name.split("#")[0]
                    scores[layer] = scores.get(layer, torch.zeros(len(part))) + part.cpu().abs() / len(
                        trial.steps
                    )
    trial.remarks.append("The scales of all norms are fixed at their values for the input (frozen).")
    if indirect:
        trial.remarks.append(f"Zero, because they add only through other layers: {', '.join(indirect)}.")
    return scores


def _first_order(trial: Trial[Any], changes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the mean absolute first-order effects (H,) of changes (T, H, Dv) of the contexts."""
    trial.left_out.update(trial.components.left_out)
    gradients = context_gradients(trial)
    return {name: (gradients[name] * change).sum((1, 3)).abs().mean(0) for name, change in changes.items()}
