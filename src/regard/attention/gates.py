"""Gates: factors from 0 to 1 for the context of each head, computed from the state of the query.

| name        | factor                                 | source                       |
| ----------- | -------------------------------------- | ---------------------------- |
| output_gate | sigmoid(W x), for each dimension       | Qiu et al. 2025, elementwise |
| head_gate   | sigmoid(W x), one number for each head | Qiu et al. 2025, headwise    |

Recorded weights and interventions are those before the gate.
"""

from torch import Tensor, nn

from regard.attention.parts import Gate, LayerSizes


class OutputGate(Gate):
    """A factor for each dimension of each head.

    >>> import torch
    >>> gate = OutputGate(LayerSizes(width=6, memory_width=6, heads=2, head_width=3))
    >>> gate(torch.ones(1, 2, 5, 3), torch.zeros(1, 5, 6)).unique()
    tensor([0.5000], grad_fn=<Unique2Backward0>)
    """

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.gate = nn.Linear(sizes.width, sizes.heads * sizes.head_width, bias=False)

    def forward(self, context: Tensor, states: Tensor) -> Tensor:
        """Return the context (B, H, Tq, d), scaled in each dimension."""
        factors: Tensor = self.gate(states).sigmoid().unflatten(-1, (context.shape[1], -1)).transpose(1, 2)
        return context * factors


class HeadGate(Gate):
    """A factor for each head.

    >>> import torch
    >>> gate = HeadGate(LayerSizes(width=6, memory_width=6, heads=2, head_width=3))
    >>> gate(torch.ones(1, 2, 5, 3), torch.zeros(1, 5, 6)).shape
    torch.Size([1, 2, 5, 3])
    """

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.gate = nn.Linear(sizes.width, sizes.heads, bias=False)

    def forward(self, context: Tensor, states: Tensor) -> Tensor:
        """Return the context (B, H, Tq, d), each head scaled by one number."""
        factors: Tensor = self.gate(states).sigmoid().transpose(1, 2).unsqueeze(-1)
        return context * factors
