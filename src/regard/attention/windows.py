"""Masks that depend on positions: causal, sliding window, and a window with the first tokens kept.

| name      | query i may attend to key j if        | source                                       |
| --------- | ------------------------------------- | -------------------------------------------- |
| causal    | j <= i                                | Vaswani et al. 2017, section 3.2.3           |
| window    | |i - j| < W (window:W)                | Beltagy et al. 2020, section 3.1             |
| streaming | |i - j| < W, or j < F (streaming:W:F) | Xiao et al. 2024, section 3.2 (StreamingLLM) |

A causal layer adds its causal mask, so that j <= i always holds there.
"""

from typing import Annotated

from torch import Tensor

from regard.arguments import Limits
from regard.attention.parts import LayerSizes, MaskPart


class Causal(MaskPart):
    """A step attends to itself and to earlier steps.

    >>> import torch
    >>> mask = Causal(LayerSizes(width=4, memory_width=4, heads=1, head_width=4))
    >>> mask.allowed(torch.tensor([[1]]), torch.tensor([[0, 1, 2]]))
    tensor([[ True,  True, False]])
    """

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        del sizes

    def allowed(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return whether each key is not after the query."""
        return keys <= queries


class Window(MaskPart):
    """A step attends to steps at a distance below W; W counts the step itself.

    >>> import torch
    >>> mask = Window(LayerSizes(width=4, memory_width=4, heads=1, head_width=4), 2)
    >>> mask.allowed(torch.tensor([[2]]), torch.tensor([[0, 1, 2]]))
    tensor([[False,  True,  True]])
    """

    def __init__(self, sizes: LayerSizes, width: Annotated[int, Limits(1, 2**30)] = 64) -> None:
        super().__init__()
        del sizes
        self.width = width

    def allowed(self, queries: Tensor, keys: Tensor) -> Tensor:
        return (queries - keys).abs() < self.width


class Streaming(Window):
    """A window of W steps, and the first F steps, which every query may attend to (attention sinks).

    StreamingLLM counts positions inside its cache; here each key keeps its position.

    >>> import torch
    >>> mask = Streaming(LayerSizes(width=4, memory_width=4, heads=1, head_width=4), 1, 1)
    >>> mask.allowed(torch.tensor([[2]]), torch.tensor([[0, 1, 2]]))
    tensor([[ True, False,  True]])
    """

    def __init__(self, sizes: LayerSizes, width: int = 64, first: Annotated[int, Limits(1, 2**30)] = 4) -> None:
        super().__init__(sizes, width)
        self.first = first

    def allowed(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return whether each key is in the window of the query or one of the first keys."""
        return super().allowed(queries, keys) | (keys < self.first)
