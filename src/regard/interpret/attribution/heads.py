"""Methods at the level of heads: ablation, and gradients with respect to contexts.

    ablation               | value(x) - value(x with the context of head h replaced) |      (Michel et al. 2019)
    gate                   | c_h . g_h |             derivative with respect to a gate that multiplies the head
    attribution patching   | (mean_h - c_h) . g_h |  first-order change when the mean replaces the context
    logit attribution      the part of head h in the target's logit minus the mean logit, along direct paths only

c_h is the context of head h at all steps, the input of the output projection, and g_h the gradient of the value
of one output step. Absolute values are averaged over output steps, then over inputs.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from regard.interpret.attribution.trial import MOST_ROWS, RESAMPLES, Trial
from regard.interpret.linear_pass import DirectPaths


def replace_heads(trial: Trial[Any], replacement: Callable[[str, Tensor], Tensor]) -> dict[str, Tensor]:
    """Return, by layer, the mean absolute changes (H,) when the contexts of each head are replaced.

    `replacement` maps a layer and its contexts (T, H, Dv) to R replacements (R, T, H, Dv), over which changes are
    averaged.
    """
    scores = {}
    for name, contexts in trial.contexts.items():
        heads = contexts.shape[1]
        chosen = torch.eye(heads, dtype=torch.bool, device=contexts.device)[:, None, None, :, None]
        changed = torch.where(chosen, replacement(name, contexts).to(contexts), contexts)  # (H, R, T, H, Dv)
        values = trial.run_contexts(name, changed.flatten(0, 1))
        scores[name] = (values - trial.clean).abs().mean(-1).unflatten(0, (heads, -1)).mean(-1)
    trial.left_out.update(trial.components.left_out)
    return scores


def zero_heads(trial: Trial[Any]) -> dict[str, Tensor]:
    return replace_heads(trial, lambda name, contexts: torch.zeros_like(contexts).unsqueeze(0))


def mean_heads(trial: Trial[Any]) -> dict[str, Tensor]:
    mean = trial.background.mean_contexts
    return replace_heads(trial, lambda name, contexts: mean(name, len(contexts)).unsqueeze(0))


def resampled_heads(trial: Trial[Any]) -> dict[str, Tensor]:
    generator, draw = trial.draws("resampled"), trial.background.draw_contexts
    return replace_heads(trial, lambda name, contexts: draw(name, len(contexts), RESAMPLES, generator))


def context_gradients(trial: Trial[Any]) -> dict[str, Tensor]:
    """Return, by layer, the gradients (S, T, H, Dv) of the S explained values with respect to all contexts."""
    parts: dict[str, list[Tensor]] = {}
    # Each output step has its own copy of the input: one backward pass of a sum gives the gradients of all steps.
    for steps in torch.arange(len(trial.steps), device=trial.logits.device).split(MOST_ROWS):
        leaves: dict[str, list[Tensor]] = {}

        def add_leaf(name: str, contexts: Tensor, leaves: dict[str, list[Tensor]] = leaves) -> Tensor:
            leaf = torch.zeros_like(contexts).requires_grad_()
            leaves.setdefault(name, []).append(leaf)
            return contexts + leaf

        # cuDNN's recurrent layers have no gradient in evaluation mode; PyTorch's native recurrent layers have.
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            with trial.components.replace_contexts(add_leaf):
                values = trial.values(trial.probe.run(len(steps))).gather(1, steps.unsqueeze(1)).sum()
            flat = [leaf for calls in leaves.values() for leaf in calls]
            computed = iter(torch.autograd.grad(values, flat, allow_unused=True, materialize_grads=True))
        for name, calls in leaves.items():
            gradients = torch.cat([next(computed) for _ in calls], 1)
            parts.setdefault(name, []).append(trial.components.split(name, gradients))
    return {name: torch.cat(gradients) for name, gradients in parts.items()}


def _first_order(trial: Trial[Any], changes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the mean absolute first-order effects (H,) of changes (T, H, Dv) of the contexts."""
    trial.left_out.update(trial.components.left_out)
    gradients = context_gradients(trial)
    return {name: (gradients[name] * change).sum((1, 3)).abs().mean(0) for name, change in changes.items()}


def gate(trial: Trial[Any]) -> dict[str, Tensor]:
    """Return the sensitivity (H,) of each layer to gates of its heads (Michel et al. 2019)."""
    return _first_order(trial, {name: -contexts for name, contexts in trial.contexts.items()})


def mean_patching(trial: Trial[Any]) -> dict[str, Tensor]:
    """Return the first-order changes (H,) of each layer when the mean over other inputs replaces each context."""
    mean = trial.background.mean_contexts
    contexts = trial.contexts.items()
    return _first_order(trial, {name: mean(name, len(own)).to(own) - own for name, own in contexts})


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
                    share = part.cpu().abs() / len(trial.steps)
                    scores[layer] = scores.get(layer, torch.zeros(len(part))) + share
    trial.remarks.append("The scales of all norms are fixed at their values for the input (frozen).")
    if indirect:
        trial.remarks.append(f"Zero, because they add only through other layers: {', '.join(indirect)}.")
    return scores
