"""Ablation of heads: how much the explained value changes when the context of a head is replaced.

    score(h) = mean over output steps of | value(x) - value(x with the context of head h replaced) |

The context is the input of the output projection (Michel et al. 2019). Scores are averaged over
inputs.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.interpret.attribution.trial import Trial

RESAMPLES = 5
"""Other inputs whose contexts replace those of a head, over which changes are averaged."""


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
    background = trial.background
    return replace_heads(trial, lambda name, contexts: background.mean_contexts(name, len(contexts)).unsqueeze(0))


def resampled_heads(trial: Trial[Any]) -> dict[str, Tensor]:
    generator = trial.draws("resampled")
    draw = trial.background.draw_contexts
    return replace_heads(trial, lambda name, contexts: draw(name, len(contexts), RESAMPLES, generator))
