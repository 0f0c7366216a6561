"""What a search finds, and what no search ever writes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.data import BOS, PAD, UNKNOWN
from regard.errors import InputError

NEVER = (PAD, BOS, UNKNOWN)
"""Tokens that are not written."""


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """One target for a source."""

    tokens: list[int]
    """Vocabulary indices, without the end of sequence."""
    log_probability: float
    """Of the tokens, and of the end where it came: natural logarithm."""
    score: float
    """What ranks hypotheses: the log-probability over the length penalty."""
    finished: bool
    """Whether the end of sequence came before `max_len`."""


def source_limits(max_len: int | Sequence[int], count: int) -> list[int]:
    """Return the most tokens of each of `count` hypotheses, of one limit or of one for each."""
    return [max_len] * count if isinstance(max_len, int) else list(max_len)


def log_probabilities(logits: Tensor) -> Tensor:
    """Return log-probabilities (..., V) of logits, in float32 at least; -inf for what is never written.

    They take the place of the logits, which halves what a CPU's caches have to hold.
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return mask_special_tokens(torch.log_softmax(logits, -1, out=logits))


def mask_special_tokens(found: Tensor) -> Tensor:
    """Return logits or log-probabilities (..., V), with -inf in place of what is never written."""
    for token in NEVER:
        found[..., token] = -torch.inf
    return found


def check_finite(found: Tensor) -> None:
    """Raise `InputError` where log-probabilities or logits are NaN or infinite (-inf is allowed): the training
    diverged, or the weights are damaged."""
    if not bool((found < torch.inf).all()):
        raise InputError(
            "the model's probabilities are not finite: train it again with a lower --lr, or restore its weights"
        )
