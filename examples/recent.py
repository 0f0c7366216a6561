"""A custom part of an attention mechanism: positions that favor recent steps.

    cd examples
    regard train induction --attention recent:Recent
    regard train reverse --model transformer --attention recent:Recent:0.5,sink

Scores become `s_ij - a log(1 + |i - j|)`. The number a is learned for each head; it is initially the number after
the name of the part. The class derives from the base class of its slot, and can be combined with parts of other
slots. `python recent.py` uses the part in a layer.
"""

import torch
from torch import Tensor, nn

import regard
from regard.attention.multihead import MultiHeadAttention
from regard.attention.parts import LayerSizes, PositionBias


class Recent(PositionBias):
    """A bias that falls with the logarithm of the distance."""

    def __init__(self, sizes: LayerSizes, strength: float = 1.0) -> None:
        super().__init__()
        self.strength = nn.Parameter(torch.full((sizes.heads, 1, 1), float(strength)))

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return biases (H, Tq, Tk) for positions (Tq, 1) and (1, Tk)."""
        return -self.strength * torch.log1p((queries - keys).abs().float())


def main() -> None:
    """Print the weights of the last step of a layer whose states are equal."""
    layer = MultiHeadAttention(8, heads=2, mechanism="recent:Recent:2", kind="causal")
    with regard.record(layer) as records:
        layer(torch.ones(1, 4, 8))
    print(records[""].weights[0, 0, -1])


if __name__ == "__main__":
    main()
