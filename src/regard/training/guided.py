"""Guided attention: a head that learns to attend to where words come from (Garg et al. 2019, section 4.2).

    loss = cross-entropy - weight * sum over target tokens t, source tokens s of  aims[t, s] log weights[t, s]

One head of one layer is guided: the first of the last layer but one that reads the source, as there.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from regard.attention.hooks import attach_hooks, find_layer, with_change
from regard.errors import InputError
from regard.models import Seq2Seq

HEAD = 0
"""The guided one of its layer."""
LEAST = 1e-9
"""A weight below counts as this, so that its logarithm is a number."""


def guided_layer(model: Seq2Seq) -> str:
    """Return the name of the layer of the guided head; raises `InputError` where none reads the source."""
    if not model.cross_layers:
        raise InputError("guide is for attention to the source, which the model has not: leave it out")
    return model.cross_layers[-2:][0]


@contextmanager
def guiding(model: Seq2Seq, aims: Tensor | None) -> Iterator[list[Tensor]]:
    """Yield a list to which a model, run once in the block, adds what its guided head is off its aims.

    `aims`: (B, Tt, Ts), None where no head is guided: then the list stays empty. Each sum is of target tokens, in
    nats: of all of them, or of one step, where a decoder takes one after the other.
    """
    found: list[Tensor] = []
    if aims is None:
        yield found
        return

    def look(weights: Tensor, mask: Tensor | None, step: int | None) -> Tensor:
        """Measure weights (B, H, Tt, Ts), before dropout, and leave them as they are."""
        del mask
        rows = aims if step is None else aims[:, step : step + 1]
        found.append(-(rows * weights[:, HEAD].float().clamp_min(LEAST).log()).sum())
        return weights

    layer = find_layer(model, guided_layer(model))
    with attach_hooks({layer: with_change(layer.hook, look)}):
        yield found
