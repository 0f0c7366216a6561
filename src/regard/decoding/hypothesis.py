"""Results of a search, and log-probabilities without the tokens that are never written."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.data import BOS, PAD, UNKNOWN
from regard.errors import InputError

NEVER = (PAD, BOS, UNKNOWN)
"""Tokens that are never written."""


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """One target for a source."""

    tokens: list[int]
    """Vocabulary indices, without the end of sequence."""
    log_probability: float
    """Natural logarithm of the probability of the tokens, and of the end if it was reached."""
    score: float
    """Rank among hypotheses: log-probability over length penalty."""
    finished: bool
    """Whether the end of sequence came before `max_len`."""


def source_limits(max_len: int | Sequence[int], count: int) -> list[int]:
    """Return the largest number of tokens for each of `count` sources, from one limit or one for each.

    >>> source_limits(9, 2)
    [9, 9]
    """
    return [max_len] * count if isinstance(max_len, int) else list(max_len)


def log_probabilities(logits: Tensor) -> Tensor:
    """Return log-probabilities (..., V) of logits, in float32 at least; -inf for special tokens.

    They overwrite the logits, which halves the memory that a CPU's caches have to hold.
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return mask_special_tokens(torch.log_softmax(logits, -1, out=logits))


def mask_special_tokens(values: Tensor) -> Tensor:
    """Set logits or log-probabilities (..., V) of tokens that are never written to -inf, in place."""
    for token in NEVER:
        values[..., token] = -torch.inf
    return values


def check_finite(values: Tensor) -> None:
    """Raise `InputError` if log-probabilities or logits are NaN or infinite; -inf is allowed.

    The training diverged then, or the weights are damaged.
    """
    if not bool((values < torch.inf).all()):
        raise InputError(
            "the model's probabilities are not finite: train it again with a lower --lr, or restore its weights"
        )
