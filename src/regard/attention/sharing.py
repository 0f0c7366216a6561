"""Keys and values: shared by heads, projected from a narrow vector, or shifted.

| name         | keys and values                                      | source                            |
| ------------ | ---------------------------------------------------- | --------------------------------- |
| multi_query  | one head of keys and values for all heads of queries | Shazeer 2019                      |
| grouped      | G heads of keys and values (grouped:G)               | Ainslie et al. 2023, section 2.2  |
| latent       | projected from a vector of width R (latent:R)        | DeepSeek-AI 2024, DeepSeek-V2     |
| shifted_keys | each key is mixed with the key of the step before    | Olsson et al. 2022, argument 2    |
"""

import torch
from torch import Tensor, nn

from regard.attention.parts import LayerSizes, Sharing
from regard.errors import InputError, check_range


class Grouped(Sharing):
    """G heads of keys and values, each shared by `heads / G` heads of queries.

    >>> Grouped(LayerSizes(width=8, memory_width=8, heads=4, head_width=2)).groups
    2
    """

    def __init__(self, sizes: LayerSizes, groups: int | None = None) -> None:
        super().__init__(sizes)
        self.groups = max(sizes.heads // 2, 1) if groups is None else groups
        check_range("groups", self.groups, 1, sizes.heads)
        if sizes.heads % self.groups:
            raise InputError(f"grouped: {self.groups} groups do not divide {sizes.heads} heads: choose a divisor")


class MultiQuery(Grouped):
    """One head of keys and values for all heads of queries.

    >>> MultiQuery(LayerSizes(width=8, memory_width=8, heads=4, head_width=2)).groups
    1
    """

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__(sizes, 1)


class Latent(Sharing):
    """Keys and values are projected from a vector of width R, the latent (default: a quarter of the width).

    The cache stores the latent: R numbers for each step, where H heads of width d store 2 H d. Each decoding step
    projects the latents of all earlier steps; the paper instead multiplies queries and output by the projections.
    Rotary positions rotate all dimensions of the projected keys; the paper rotates separate dimensions, which it
    caches too (sections 2.1.2 and 2.1.3).

    >>> Latent(LayerSizes(width=8, memory_width=8, heads=4, head_width=2), 3)(torch.zeros(1, 5, 8)).shape
    torch.Size([1, 5, 3])
    """

    caches_inputs = True

    def __init__(self, sizes: LayerSizes, width: int | None = None) -> None:
        super().__init__(sizes)
        self.key_width = max(sizes.memory_width // 4, 1) if width is None else width
        self.down = nn.Linear(sizes.memory_width, self.key_width, bias=False)
        self.norm = nn.RMSNorm(self.key_width, 1e-5)

    def forward(self, states: Tensor) -> Tensor:
        """Return the latent (B, T, R) of states (B, T, Dm)."""
        latent: Tensor = self.norm(self.down(states))
        return latent


class ShiftedKeys(Sharing):
    """`k_j = a k_j + (1 - a) k_(j-1)`, with a learned for each head (initially 0.5). The first key is unchanged.

    With shifted keys, one layer can find the token that followed an earlier occurrence.

    >>> part = ShiftedKeys(LayerSizes(width=2, memory_width=2, heads=1, head_width=1, kind="causal"))
    >>> part.change_keys(torch.tensor([[[[4.0], [2.0]]]])).flatten()
    tensor([4., 3.], grad_fn=<ViewBackward0>)
    """

    kinds = ("causal", "self")
    changes_keys = True

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__(sizes)
        # sigmoid(0) = 0.5: both keys count equally at first, so either can be learned.
        self.mixture = nn.Parameter(torch.zeros(sizes.heads))

    def change_keys(self, keys: Tensor) -> Tensor:
        """Return the mixtures (B, G, Tk, d). Rotary positions are applied before."""
        # Differential attention has two keys for each head.
        own = self.mixture.sigmoid().repeat(keys.shape[1] // len(self.mixture)).view(-1, 1, 1).to(keys.dtype)
        # The first step has no step before it and is mixed with itself.
        before = torch.cat([keys[:, :, :1], keys[:, :, :-1]], dim=2)
        return own * keys + (1 - own) * before
