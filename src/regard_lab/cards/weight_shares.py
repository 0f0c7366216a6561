"""Where the weight of each head goes: to relevant inputs, to the first token, and how widely it spreads.

Weights of some mechanisms are negative, or do not sum to 1. All shares therefore use absolute weights, divided
by the sum of the absolute weights of the row.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.recording import record_own
from regard.models.decoder_only import DecoderOnly
from regard.tasks.batch import TokenBatch
from regard.tasks.tokens import TokenTask

FIRST_ROW = 0.5
"""Share on the first token is measured in the rows from this fraction of the sequence on."""


@dataclass(frozen=True, kw_only=True)
class HeadShares:
    """Means over rows for each layer and head: [layer][head]."""

    relevant: list[list[float]] | None
    """Share of the absolute weight on the inputs on which the output depends, in rows with an output; None if
    they are not known."""
    first: list[list[float]]
    """Share of the absolute weight on the first token, in the second half of each sequence."""
    entropy: list[list[float]]
    """Entropy of the shares in nats, in rows with an output."""
    total: list[list[float]]
    """Sum of the absolute weights of a row, in rows with an output: 1 for softmax."""


def average_heads(heads: Sequence[Sequence[float]]) -> float:
    """Return the mean of a share over all heads, given by layer and head.

    >>> average_heads([[1.0, 2.0], [3.0, 4.0]])
    2.5
    """
    return statistics.fmean(value for layer in heads for value in layer)


def measure_shares(model: DecoderOnly, task: TokenTask, batch: TokenBatch) -> tuple[Tensor, HeadShares]:
    """Return the logits (B, T, V) of a batch without padding, and the shares of each head."""
    relevant = task.relevance(batch.inputs) if task.knows_relevance else None
    with record_own(model) as records:
        logits = model(batch.inputs, None)
    rows = batch.is_output if relevant is None else batch.is_output & relevant.any(-1)
    late = torch.zeros_like(rows)
    late[:, int(FIRST_ROW * rows.shape[1]) :] = True
    on_relevant, first, entropy, total = [], [], [], []
    for name in model.cross_layers:
        weights = records[name].weights.double().abs()
        sums = weights.sum(-1)
        shares = weights / sums.clamp(min=torch.finfo(torch.float32).tiny).unsqueeze(-1)
        kept = sums > 0  # rows without any weight have no shares
        if relevant is not None:
            on_relevant.append(_mean((shares * relevant.unsqueeze(1)).sum(-1), rows, kept))
        first.append(_mean(shares[..., 0], late, kept))
        entropy.append(_mean(torch.special.entr(shares).sum(-1), rows, kept))
        total.append(_mean(sums, rows, torch.ones_like(kept)))
    return logits, HeadShares(
        relevant=on_relevant if relevant is not None else None, first=first, entropy=entropy, total=total
    )


def _mean(values: Tensor, rows: Tensor, kept: Tensor) -> list[float]:
    """Return the mean of values (B, H, T) over the rows (B, T) with weight, for each head."""
    counted = rows.unsqueeze(1) & kept
    sums, counts = (values * counted).sum((0, 2)), counted.sum((0, 2)).clamp(min=1)
    return [round(number, 6) for number in (sums / counts).tolist()]
