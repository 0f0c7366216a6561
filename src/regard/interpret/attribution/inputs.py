"""Methods at the level of inputs: ablation, and gradients with respect to embeddings.

    ablation               | value_i(x) - value_i(x with input j replaced) |
    gradient               || g_ij ||
    gradient x input       | g_ij . x_j |
    integrated gradients   | (x_j - b_j) . mean of g_ij along the line from the baseline b to x |

The value is the log-probability of the target class (see `trial`). Ablation replaces the embedding of an input by
zero or by a mean, or its token by other tokens. g_ij is the gradient of the value of output step i with respect
to the embedding x_j (D) of input j. Positions are added to embeddings, and do not change on the line.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import InputError
from regard.interpret.attribution.trial import MOST_ROWS, RESAMPLES, Trial, change_embedding, resize

MOST_TOKENS = 64  # Largest number of other tokens that replace a token; of a larger alphabet as many are drawn
POINTS = 32  # Points on the line of integrated gradients (nodes of Gauss and Legendre)
MOST_NUMBERS = 1 << 20
"""Largest number of gradients in one pass, for which the copies of a large model take little memory."""
INCOMPLETE = 0.05
"""Largest accepted difference between the sum of the scores and the change of the value, as a fraction of it."""


def replace_each(trial: Trial[Any], replacement: Tensor) -> Tensor:
    """Return the absolute changes (S, Tk) when each embedding is replaced by its row of `replacement` (Tk, D)."""
    # One copy of the input for each position, all in one batch: in copy j, position j is replaced.
    keys = len(trial.embedding)
    chosen = torch.eye(keys, dtype=torch.bool, device=trial.embedding.device).unsqueeze(-1)
    embeddings = torch.where(chosen, replacement.to(trial.embedding), trial.embedding)
    return (trial.run_embeddings(embeddings) - trial.clean).abs().T


def zero_inputs(trial: Trial[Any]) -> Tensor:
    return replace_each(trial, torch.zeros_like(trial.embedding))


def mean_inputs(trial: Trial[Any]) -> Tensor:
    """Return the absolute changes (S, Tk) when each embedding is replaced by the mean embedding of other inputs
    at its position."""
    return replace_each(trial, trial.background.mean_embedding(len(trial.embedding)))


def resampled_inputs(trial: Trial[Any]) -> Tensor:
    """Return the mean absolute changes (S, Tk) when each token is replaced by the token of another input at its
    position, over 5 other inputs."""
    return _replace_tokens(trial, resampled_tokens(trial))


def all_others(trial: Trial[Any]) -> Tensor:
    """Return the mean absolute changes (S, Tk) when each token is replaced by all other tokens, one at a time.

    Of a vocabulary with more than 65 tokens, 64 are drawn. Raises `InputError` if the vocabulary is not known.
    """
    return _replace_tokens(trial, other_tokens(trial))


def resampled_tokens(trial: Trial[Any]) -> Tensor:
    """Return the tokens (Tk, R) of R other inputs at each position."""
    tokens, generator = _tokens(trial), trial.draws("resampled")
    others = [probe.tokens for probe in trial.background.probes if probe.tokens is not None]
    order = torch.randperm(len(others), generator=generator).repeat(RESAMPLES)[:RESAMPLES].tolist()
    return torch.stack([resize(others[index], len(tokens), generator) for index in order], 1).to(tokens)


def other_tokens(trial: Trial[Any]) -> Tensor:
    """Return the tokens (Tk, R) that replace each token: the vocabulary if it is small; see `all_others`."""
    tokens = _tokens(trial)
    alphabet = torch.as_tensor(list(trial.probe.alphabet))
    if not len(alphabet):
        raise InputError(f"the tokens of {trial.subject.name} are not known: choose ablation_mean")
    if len(alphabet) > MOST_TOKENS + 1:
        alphabet = alphabet[torch.randperm(len(alphabet), generator=trial.draws("others"))[:MOST_TOKENS]]
        trial.remarks.append(f"{MOST_TOKENS} of {len(trial.probe.alphabet):,} other tokens were drawn.")
    return alphabet.expand(len(tokens), -1).to(tokens)


def _tokens(trial: Trial[Any]) -> Tensor:
    if trial.probe.tokens is None or trial.probe.run_tokens is None:
        raise InputError(f"the inputs of {trial.subject.name} are not tokens: choose ablation_mean")
    return trial.probe.tokens


def replace_tokens(tokens: Tensor, replacements: Tensor) -> Tensor:
    """Return copies (Tk R, Tk) of tokens (Tk,), each with one token replaced by one of `replacements` (Tk, R).

    >>> replace_tokens(torch.tensor([0, 1]), torch.tensor([[5], [6]])).tolist()
    [[5, 1], [0, 6]]
    """
    keys, count = replacements.shape
    changed = tokens.repeat(keys, count, 1)
    place = torch.arange(keys, device=tokens.device)
    changed[place, :, place] = replacements
    return changed.flatten(0, 1)


def mean_changes(trial: Trial[Any], replacements: Tensor, values: Tensor) -> Tensor:
    """Return the mean absolute changes (S, Tk) from the explained values (Tk R, S) of the changed inputs of
    `replace_tokens`; a replacement by the same token does not count."""
    changes = (values - trial.clean).abs().unflatten(0, replacements.shape)
    differs = (replacements != _tokens(trial).unsqueeze(1)).unsqueeze(-1)
    means: Tensor = (changes * differs).sum(1) / differs.sum(1).clamp(min=1)
    return means.T


def _replace_tokens(trial: Trial[Any], replacements: Tensor) -> Tensor:
    """Return the mean absolute changes (S, Tk) for replacements (Tk, R) of each token."""
    return mean_changes(trial, replacements, trial.run_tokens(replace_tokens(_tokens(trial), replacements)))


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
