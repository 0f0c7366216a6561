"""Pruning: take heads out of a layer for good (Michel et al. 2019, section 4)."""

from collections.abc import Sequence

import torch
from torch import nn

from regard.attention.multihead import MultiHeadAttention
from regard.errors import InputError


@torch.no_grad()
def keep_heads(layer: nn.Module, heads: Sequence[int]) -> None:
    """Leave only some heads in a layer: what it returns is as if the others were off, at less cost.

    `heads`: those that stay, in ascending order. Raises `InputError` for a layer whose heads cannot be taken out:
    one without projections, or with keys and values that several heads share.
    """
    if not isinstance(layer, MultiHeadAttention) or layer.groups != layer.heads:
        raise InputError("heads can only be taken out of multi-head attention in which each has its own keys")
    if not heads or sorted(set(heads)) != list(heads) or not 0 <= heads[0] <= heads[-1] < layer.heads:
        raise InputError(
            f"heads {list(heads)} cannot stay: choose one or more of 0 to {layer.heads - 1}, in order"
        )
    device = layer.query.weight.device
    rows = torch.cat([torch.arange(layer.head_width, device=device) + head * layer.head_width for head in heads])
    for projection in (layer.query, layer.key, layer.value):
        projection.weight = nn.Parameter(projection.weight[rows])
        if projection.bias is not None:
            projection.bias = nn.Parameter(projection.bias[rows])
        projection.out_features = len(rows)
    layer.output.weight = nn.Parameter(layer.output.weight[:, rows])
    layer.output.in_features = len(rows)
    layer.heads = layer.groups = len(heads)
