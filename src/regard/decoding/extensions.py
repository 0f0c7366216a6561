"""Extensions of the prefixes of a search by one token: log-probabilities, constraints, and the best extensions.

Letters: B is the number of sources, K the number of prefixes per source, V the size of the target vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.data.vocabulary import BOS, EOS, PAD, UNKNOWN
from regard.errors import InputError
from regard.fast.topk import topk

NEVER = (PAD, BOS, UNKNOWN)
"""Tokens that never occur in an answer."""


class Extensions(NamedTuple):
    """The best extensions of the prefixes of a batch by one token."""

    ends: list[tuple[int, int, float]]
    """Row, prefix and log-probability of each finished extension."""
    parents: Tensor
    """Index of the prefix of each unfinished extension, (B, K'), the best extension first."""
    tokens: Tensor
    """The added tokens, (B, K')."""
    totals: Tensor
    """Log-probability of each unfinished extension, (B, K')."""


class Constraints:
    """Constraints on the answers to the sources of a batch. This base class has no constraints."""

    def log_probabilities(self, logits: Tensor, prefixes: Tensor, sources: Sequence[int]) -> Tensor:
        """Return the log-probability (B, K, V) of each token after each prefix, with -inf for forbidden tokens.

        `logits` (B, K, V) may be overwritten. `prefixes` (B, K, T): tokens so far, from `BOS` on. `sources`:
        index in the batch of the source of each row.
        """
        del prefixes, sources
        return log_probabilities(logits)

    def extend(
        self, log_probs: Tensor, prefixes: Tensor, totals: Tensor, sources: Sequence[int], width: int
    ) -> Extensions:
        """Return the best extensions of prefixes with `totals` (B, K) by tokens with `log_probs` (B, K, V)."""
        del prefixes, sources
        count, symbols = log_probs.shape[1:]
        # At most one extension of each prefix ends, so the best `2 * width` extensions contain `width` unfinished
        # extensions.
        totals, indices = topk(log_probs, totals, min(2 * width, count * symbols))
        check_finite(totals)  # NaN counts as the largest value
        return select_extensions(totals, indices // symbols, indices % symbols, width, count)


UNCONSTRAINED = Constraints()


def select_extensions(totals: Tensor, parents: Tensor, tokens: Tensor, width: int, prefixes: int) -> Extensions:
    """Return the finished extensions among the first `width`, and the first `width` unfinished extensions.

    `totals`, `parents`, `tokens` (B, M): log-probability, extended prefix and added token of each extension, in
    the order in which they are selected. `prefixes`: number of prefixes, each with at most one finished
    extension.
    """
    ending = tokens == EOS
    rows, ranks = (ending & (totals > -torch.inf))[:, :width].nonzero(as_tuple=True)
    ends = zip(rows.tolist(), parents[rows, ranks].tolist(), totals[rows, ranks].tolist(), strict=True)
    # A stable sort puts the finished extensions last, where they are cut off. A beam that is wider than the
    # number of different extensions, of which constraints name some twice, reaches them: they must not go on.
    totals = totals.masked_fill(ending, -torch.inf)
    order = ending.int().argsort(dim=1, stable=True)[:, : min(width, tokens.shape[1] - prefixes)]
    return Extensions(list(ends), parents.gather(1, order), tokens.gather(1, order), totals.gather(1, order))


def log_probabilities(logits: Tensor, never: Sequence[int] = NEVER) -> Tensor:
    """Return log-probabilities (..., V) of logits, at least in float32, with -inf for tokens in `never`.

    The log-probabilities overwrite the logits, which halves the memory in a CPU's caches.
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return mask_special_tokens(torch.log_softmax(logits, -1, out=logits), never)


def mask_special_tokens(values: Tensor, never: Sequence[int] = NEVER) -> Tensor:
    """Set logits or log-probabilities (..., V) of tokens in `never` to -inf, in place.

    >>> mask_special_tokens(torch.zeros(5))
    tensor([-inf, -inf, 0., -inf, 0.])
    """
    for token in never:
        values[..., token] = -torch.inf
    return values


def check_finite(values: Tensor) -> None:
    """Raise `InputError` if log-probabilities or logits are NaN or infinite, except for -inf.

    Such values mean that training diverged, or that the parameters are damaged.
    """
    if not bool((values < torch.inf).all()):
        raise InputError(
            "the model's probabilities are not finite: train again with a lower --lr, or restore the weights"
        )


def impossible() -> InputError:
    return InputError("no target satisfies all constraints of the search: leave out or relax a constraint")
