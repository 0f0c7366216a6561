"""One call of attention: its weights row by row, and the tensors from which it computes them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from regard.attention.layer_record import Kind

RowFunction = Callable[[Sequence[int] | slice], tuple[Tensor, Tensor | None]]


def select_rows(mask: Tensor, rows: Sequence[int] | slice) -> Tensor:
    """Return query rows of a tensor that broadcasts to weights (B, H, Tq, Tk).

    >>> import torch
    >>> select_rows(torch.ones(1, 1, 5, 5), [0, 3]).shape, select_rows(torch.ones(1, 1, 1, 5), [0, 3]).shape
    (torch.Size([1, 1, 2, 5]), torch.Size([1, 1, 1, 5]))
    """
    return mask if mask.dim() < 2 or mask.shape[-2] == 1 else mask[..., rows, :]


def row_function(weights: Tensor, mask: Tensor | None) -> RowFunction:
    """Return the function of an `AttentionCall` whose weights (B, H, Tq, Tk) are known."""
    return lambda rows: (weights[:, :, rows], None if mask is None else select_rows(mask, rows))


class AttentionInputs(NamedTuple):
    """The tensors from which a call computes its scores and contexts, connected to the autograd graph."""

    query: Tensor
    """(B, H, Tq, D)."""
    key: Tensor
    """(B, G, Tk, D)."""
    value: Tensor
    """(B, G, Tk, Dv)."""
    scale: float
    """Factor of the products of query and key."""
    biases: tuple[Tensor, ...] = ()
    """Added to the scores, broadcastable to (B, H, Tq, Tk)."""
    cap: float | None = None
    """Scores are `cap tanh(score / cap)` before biases are added; None if they are not capped."""


@dataclass(frozen=True, kw_only=True)
class AttentionCall:
    """One call of attention, whose weights can be computed row by row."""

    queries: int
    rows: RowFunction
    """Returns the weights (B, H, Tq, Tk) of some queries, and a mask that broadcasts to the weights, True = may
    attend."""
    kind: Kind | None = None
    first_key: int = 0
    flat: bool = False
    """Whether the model returned weights of shape (N, Tk).

    If the layer runs more than once in a forward pass, N is the number of samples of one step.
    """
    inputs: Callable[[], AttentionInputs] | None = None
    """Returns the inputs of the call while it is recorded; None if they are unknown."""

    @classmethod
    def from_weights(cls, weights: Tensor, mask: Tensor | None, kind: Kind | None = None) -> "AttentionCall":
        """Return a call whose weights (B, H, Tq, Tk) are known."""

        return cls(queries=weights.shape[2], rows=row_function(weights, mask), kind=kind)
