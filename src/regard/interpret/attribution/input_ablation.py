"""Ablation of inputs: how much the explained value changes when an input is replaced.

    score(i, j) = | value_i(x) - value_i(x with the embedding of input j replaced) |

The value is the log-probability of the target class (see `trial`).
"""

from typing import Any

import torch
from torch import Tensor

from regard.interpret.attribution.trial import Trial


def replace_each(trial: Trial[Any], replacement: Tensor) -> Tensor:
    """Return the absolute changes (S, Tk) when each embedding is replaced by its row of `replacement` (Tk, D)."""
    keys = len(trial.embedding)
    chosen = torch.eye(keys, dtype=torch.bool, device=trial.embedding.device).unsqueeze(-1)
    embeddings = torch.where(chosen, replacement.to(trial.embedding), trial.embedding)
    return (trial.run_embeddings(embeddings) - trial.clean).abs().T


def zero_inputs(trial: Trial[Any]) -> Tensor:
    """Return the absolute changes (S, Tk) when each embedding is set to zero (positions stay)."""
    return replace_each(trial, torch.zeros_like(trial.embedding))


def mean_inputs(trial: Trial[Any]) -> Tensor:
    """Return the absolute changes (S, Tk) when each embedding is replaced by the mean embedding of other inputs
    at its position."""
    return replace_each(trial, trial.background.mean_embedding(len(trial.embedding)))
