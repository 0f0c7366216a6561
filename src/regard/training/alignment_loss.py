"""Alignment loss: train one attention head to attend to the aligned source words (Garg et al. 2019, section 4.2).

    loss = cross-entropy - weight * sum over target tokens t, source tokens s of  aims[t, s] log weights[t, s]

As in the paper, the guided head is the first of the last layer but one that reads the source.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from regard.attention.hooks import attach_hooks, find_layer, with_change
from regard.errors import InputError
from regard.models import Seq2Seq

HEAD = 0
"""Index of the guided head in its layer."""
SMALLEST_WEIGHT = 1e-9
"""Lower bound of a weight, so that its logarithm is finite."""


def guided_layer(model: Seq2Seq) -> str:
    """Return the name of the guided head's layer; raises `InputError` if no layer reads the source."""
    if not model.cross_layers:
        raise InputError("guide needs attention to the source, which this model does not have: leave it out")
    return model.cross_layers[-2:][0]


@contextmanager
def record_alignment_loss(model: Seq2Seq, aims: Tensor | None) -> Iterator[list[Tensor]]:
    """Yield a list that receives the alignment loss while the model runs once in the block.

    `aims`: (B, Tt, Ts) target distribution of the guided head; None for no guided head, and the list stays empty.
    Each entry is a sum over target tokens, in nats: over all of them, or over one step if the decoder runs
    stepwise.
    """
    losses: list[Tensor] = []
    if aims is None:
        yield losses
        return

    def measure(weights: Tensor, mask: Tensor | None, step: int | None) -> Tensor:
        """Record the loss of weights (B, H, Tt, Ts) before dropout, and return them unchanged."""
        del mask
        rows = aims if step is None else aims[:, step : step + 1]
        losses.append(-(rows * weights[:, HEAD].float().clamp_min(SMALLEST_WEIGHT).log()).sum())
        return weights

    layer = find_layer(model, guided_layer(model))
    with attach_hooks({layer: with_change(layer.hook, measure)}):
        yield losses
