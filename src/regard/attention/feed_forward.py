"""Feed-forward network of a Transformer layer, and its activation functions.

W2 act(W1 x + b1) + b2            Vaswani et al. 2017, section 3.3
W2 (silu(W3 x) * (W1 x))          with swiglu: Shazeer 2020, equation 6
"""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.arguments import public
from regard.fast.compiled_relu import compiled_relu

Activation = Literal["relu", "gelu", "swish"]
"""relu: Vaswani et al. 2017; gelu: Hendrycks and Gimpel 2016; swish: x sigmoid(x), Ramachandran et al. 2017."""
GatedActivation = Literal["relu", "gelu", "gelu_tanh", "swiglu"]
"""Activations of decoder-only models. gelu_tanh: the approximation of GPT-2; swiglu: Shazeer 2020, equation
6."""
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "swish": F.silu,
    "swiglu": F.silu,
}


@public
class FeedForward(nn.Module):
    """Position-wise network of section 3.3: `W2 relu(W1 x + b1) + b2`, with the same weights at every position.

    `activation` replaces ReLU; swiglu adds the layer `gate` (W3). Raises `InputError` for an unknown activation.

    >>> import torch
    >>> FeedForward(12, 24)(torch.zeros(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(
        self,
        width: int,
        inner_width: int,
        activation: Activation | GatedActivation = "relu",
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.inner = nn.Linear(width, inner_width, bias=bias)
        self.gate = nn.Linear(width, inner_width, bias=bias) if activation == "swiglu" else None
        self.outer = nn.Linear(inner_width, width, bias=bias)
        self.activation = activation

    def forward(self, states: Tensor) -> Tensor:
        """Map states (..., D) to (..., D)."""
        inner = self.inner(states)
        inner = self.activate(inner) if self.gate is None else self.activate(self.gate(states)) * inner
        outputs: Tensor = self.outer(inner)
        return outputs

    @property
    def activate(self) -> Callable[[Tensor], Tensor]:
        """The activation function."""
        if self.activation == "relu" and torch.compiler.is_compiling():
            return compiled_relu
        return ACTIVATIONS[self.activation]
