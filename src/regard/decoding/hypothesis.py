"""What a search finds, and what no search ever writes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.text import BOS, PAD, UNKNOWN

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


def log_probabilities(logits: Tensor) -> Tensor:
    """Return log-probabilities (..., V) of logits, in float32 at least; -inf for what is never written."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    found = logits.log_softmax(-1)
    found[..., list(NEVER)] = -torch.inf
    return found


def best_tokens(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities and indices of the `count` likeliest tokens, (..., N) each, best first.

    As of `log_probabilities`, but over a large vocabulary without working out all of them.
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    total = logits.logsumexp(-1, keepdim=True)
    logits[..., list(NEVER)] = -torch.inf
    found, tokens = logits.topk(min(count, logits.shape[-1]), dim=-1)
    return found - total, tokens
