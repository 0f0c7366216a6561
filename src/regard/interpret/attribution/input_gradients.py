"""Gradients of the explained values with respect to the embeddings of the inputs.

    gradient               || g_ij ||
    gradient x input       | g_ij . x_j |
    integrated gradients   | (x_j - b_j) . mean of g_ij along the line from the baseline b to x |

g_ij is the gradient of the value of output step i with respect to the embedding x_j (D) of input j. Positions are
added to embeddings, and do not change on the line.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.interpret.attribution.background import change_embedding
from regard.interpret.attribution.trial import MOST_ROWS, Trial

POINTS = 32
"""Points on the line of integrated gradients (nodes of Gauss and Legendre)."""
MOST_NUMBERS = 1 << 20
"""Largest number of gradients in one pass, for which the copies of a large model take little memory."""
INCOMPLETE = 0.05
"""Largest accepted difference between the sum of the scores and the change of the value, as a fraction of it."""


def input_gradients(trial: Trial[Any], embeddings: Tensor) -> Tensor:
    """Return the gradients (N, S, Tk, D) of the S explained values with respect to embeddings (N, Tk, D).

    The input is copied for each output step: one backward pass of a sum then gives the gradient of each step in
    its own copy.
    """
    steps = len(trial.steps)
    copies = embeddings.repeat_interleave(steps, 0)
    own_step = torch.arange(steps, device=embeddings.device).repeat(len(embeddings))
    parts: list[Tensor] = []
    # cuDNN's recurrent layers have no gradient in evaluation mode; PyTorch's native recurrent layers have one.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        for rows, step in zip(copies.split(MOST_ROWS), own_step.split(MOST_ROWS), strict=True):
            leaf = rows.detach().clone().requires_grad_()
            with change_embedding(trial.probe.embedding, leaf.to):
                values = trial.values(trial.probe.run(len(leaf)))
            parts += torch.autograd.grad(values.gather(1, step.unsqueeze(1)).sum(), [leaf])
    gradients: Tensor = torch.cat(parts).unflatten(0, (-1, steps))
    return gradients


def gradient_norm(trial: Trial[Any]) -> Tensor:
    """Return the norms (S, Tk) of the gradients (Simonyan et al. 2014)."""
    norms: Tensor = input_gradients(trial, trial.embedding.unsqueeze(0))[0].norm(dim=-1)
    return norms


def gradient_times_input(trial: Trial[Any]) -> Tensor:
    """Return | gradient . embedding | (S, Tk) (Shrikumar et al. 2016)."""
    gradients = input_gradients(trial, trial.embedding.unsqueeze(0))[0]
    return (gradients * trial.embedding).sum(-1).abs()


def integrated_from_zero(trial: Trial[Any]) -> Tensor:
    return integrated_gradients(trial, torch.zeros_like(trial.embedding)).abs()


def integrated_from_mean(trial: Trial[Any]) -> Tensor:
    return integrated_gradients(trial, trial.background.mean_embedding(len(trial.embedding))).abs()


def integrated_gradients(trial: Trial[Any], baseline: Tensor) -> Tensor:
    """Return integrated gradients (S, Tk), signed (Sundararajan et al. 2017).

    The scores of a step add up to its value minus its value at the baseline; a remark names a larger difference.
    """
    nodes, weights = np.polynomial.legendre.leggauss(POINTS)
    difference = trial.embedding - baseline.to(trial.embedding)
    total = torch.zeros(len(trial.steps), *difference.shape, device=difference.device)
    shares, parts = (torch.as_tensor(values / 2).to(difference) for values in (nodes + 1, weights))
    points = baseline.to(difference) + shares[:, None, None] * difference
    together = max(1, MOST_NUMBERS // total.numel())
    for point, part in zip(points.split(together), parts.split(together), strict=True):
        total += torch.tensordot(part, input_gradients(trial, point), 1)
    scores = (total * difference).sum(-1)
    change = trial.clean - trial.run_embeddings(baseline.unsqueeze(0))[0]
    missing = float(((scores.sum(-1) - change).abs() / change.abs().clamp(min=0.1)).max())
    if missing > INCOMPLETE:
        trial.remarks.append(
            f"The sum of integrated gradients differs from the change of the value by up to {missing:.0%}:"
            f" {POINTS} points are too few, or the model is not smooth at the baseline."
        )
    return scores
