"""Softmaxes of layers that work attention out by hand: what comes out of one can be changed.

What such layers do is recorded from what they return, see `outputs`, and from named places.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError
from regard.foreign.folding import Folding, heads_of, probing
from regard.foreign.keeper import Keeper, Toucher

SOFTMAXES = (F.softmax, torch.softmax, Tensor.softmax)
BANDED = "one_sided_attn_window_size"
"""What layers have that attend in bands (see `bands`), their heads after their steps."""


def touched_softmax(looking: Sequence[Keeper], weights: Tensor, args: Any, kwargs: Any) -> Tensor:
    """Change what comes out of a softmax in a layer that works by hand."""
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if dim not in (-1, weights.dim() - 1) or weights.dim() < 3:
        return weights
    for keeper in looking:
        for layer in keeper.passes.running[:-3:-1] if isinstance(keeper, Toucher) else ():
            assert isinstance(keeper, Toucher)
            if keeper.concerns(layer) and layer not in keeper.places:
                if probing():
                    keeper.foldings.see(layer, weights)
                elif keeper.next(layer) is not None:
                    weights = _by_hand(keeper, layer, weights)
                    keeper.after[id(keeper.passes.module(layer))] = weights.detach()
                break
    return weights


def _by_hand(keeper: Toucher, layer: str, weights: Tensor) -> Tensor:
    """Change weights as a layer has them: (B, H, Tq, Tk), (N, Tq, Tk) of heads and samples, or (B, Tq, H, W)."""
    module = keeper.passes.module(layer)
    if weights.dim() == 3:
        folding = keeper.foldings.of(layer, weights)
        heads = heads_of(module)
        # Of Hugging Face's layers, heads of a sample stand side by side.
        if folding is None and heads and type(module).__module__.startswith("transformers."):
            folding = Folding(heads) if len(weights) % heads == 0 else None
        if folding is None and keeper.change.heads is not None:
            raise InputError(
                f"{layer}: heads cannot be told from samples in weights {tuple(weights.shape)}: name a module"
                " that they pass as (B, H, Tq, Tk) with at=, or leave out heads"
            )
        folding = folding or Folding(1)
        split = folding.unfold(weights)
        return folding.fold(keeper.changed(split, _seen(split)))
    if hasattr(module, BANDED):
        if keeper.touched_key is not None:
            raise InputError(
                f"{layer} attends in bands, of which no single weight can be set: change whole heads"
            )
        split = weights.transpose(1, 2)
        return keeper.changed(split, _seen(split)).transpose(1, 2)
    if weights.dim() > 4:
        split = weights.reshape(-1, *weights.shape[-3:])
        return keeper.changed(split, _seen(split)).reshape(weights.shape)
    return keeper.changed(weights, _seen(weights))


def _seen(weights: Tensor) -> Tensor:
    return (weights != 0).any(1, keepdim=True)
