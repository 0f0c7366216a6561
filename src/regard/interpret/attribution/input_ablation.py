"""Ablation of inputs: how much the explained value changes when an input is replaced.

    score(i, j) = | value_i(x) - value_i(x with input j replaced) |

The value is the log-probability of the target class (see `trial`). The embedding of an input is replaced by zero
or by a mean, or its token by other tokens.
"""

from typing import Any

import torch
from torch import Tensor

from regard.errors import InputError
from regard.interpret.attribution.background import resize
from regard.interpret.attribution.trial import Trial

RESAMPLES = 5
"""Other inputs whose token replaces a token, over which changes are averaged."""
MOST_TOKENS = 64
"""Largest number of other tokens that replace a token; of a larger alphabet as many are drawn."""


def replace_each(trial: Trial[Any], replacement: Tensor) -> Tensor:
    """Return the absolute changes (S, Tk) when each embedding is replaced by its row of `replacement` (Tk, D)."""
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
