"""What is inside of a call of an attention layer: all that it worked out, from the query to the context."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class AttentionTrace(NamedTuple):
    """All that one call of an attention layer worked out, head by head."""

    query: Tensor
    """(B, H, Tq, D), as the score gets it: projected, turned by its position."""
    key: Tensor
    """(B, H, Tk, any), as the score has prepared it."""
    value: Tensor
    """(B, H, Tk, Dv)."""
    scores: Tensor
    """(B, H, Tq, Tk), before the mask."""
    mask: Tensor | None
    """What may be attended, True = yes, broadcastable to the scores; None where everything may."""
    weights: Tensor
    """(B, H, Tq, Tk), as changed by interventions."""
    context: Tensor
    """(B, H, Tq, Dv): weights times values."""
    step: int | None
    """At which all queries stand; None where they are all steps from the first on."""

    def detach(self) -> "Inside":
        """Return it without what led to it."""
        query, key, value, scores, weights, context = (
            each.detach() for each in (self.query, self.key, self.value, self.scores, self.weights, self.context)
        )
        return AttentionTrace(query, key, value, scores, self.mask, weights, context, self.step)


def joined(insides: Sequence[AttentionTrace], weights: Tensor, mask: Tensor | None) -> AttentionTrace:
    """Return what a layer worked out step by step as if at once; the last step saw all keys and values."""
    last = insides[-1]
    return last._replace(
        query=torch.cat([each.query for each in insides], dim=2),
        scores=torch.cat(
            [
                F.pad(each.scores, (0, weights.shape[-1] - each.scores.shape[-1]), value=-torch.inf)
                for each in insides
            ],
            dim=2,
        ),
        mask=mask,
        weights=weights,
        context=torch.cat([each.context for each in insides], dim=2),
        step=None,
    )
