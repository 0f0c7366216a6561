"""Attention in bands (Beltagy et al. 2020): Longformer and LED return of each query the weights of its window,
and of the few keys that everybody sees, instead of all keys. Here they are unfolded into rows over all of them.
"""

import inspect
from typing import Any

import torch
from torch import Tensor, nn

GLOBAL = "is_index_global_attn"
"""What such a layer is given: (B, T), which steps see all, and are seen by all."""


class LongformerWindows:
    """Knows of each such layer which steps are global, and what those see. A copy of it knows nothing."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.everywhere: dict[str, Tensor] = {}
        self.rows: dict[str, Tensor] = {}

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return LongformerWindows, ()

    def hooks(self, model: nn.Module) -> list[Any]:
        """Follow the layers of a model; returns what ends that."""
        found = []
        for name, module in model.named_modules():
            if GLOBAL in inspect.signature(module.forward).parameters and hasattr(
                module, "one_sided_attn_window_size"
            ):
                self.names[id(module)] = name
                found.append(module.register_forward_pre_hook(self.begin, with_kwargs=True))
                found.append(module.register_forward_hook(self.end))
        return found

    def begin(self, module: nn.Module, _: Any, given: dict[str, Any]) -> None:
        """Note which steps are global."""
        if (name := self.names.get(id(module))) is not None:
            self.everywhere[name] = given[GLOBAL]

    def end(self, module: nn.Module, _: Any, output: Any) -> None:
        """Note what those attend to, (B, H, G, T)."""
        if (name := self.names.get(id(module))) is not None:
            self.rows.pop(name, None)
            if len(output) > 2:
                self.rows[name] = output[2]

    def unfolded(self, layer: str, weights: Tensor) -> Tensor:
        """Return weights over all keys, (B, H, Tq, Tk), of a layer that returned bands; others as they are."""
        if layer not in self.everywhere:
            return weights
        return _unfold(weights, self.everywhere[layer], self.rows.get(layer))


def _unfold(bands: Tensor, everywhere: Tensor, rows: Tensor | None) -> Tensor:
    """Return (B, H, Tq, Tk) of bands (B, H, T, G + W), `everywhere` (B, T), and what those see, (B, H, G, T)."""
    batch, heads, queries, _ = bands.shape
    steps = everywhere.shape[1]
    count = int(everywhere.sum(1).max())
    window = bands.shape[-1] - count
    start = torch.arange(queries, device=bands.device)[:, None] - window // 2
    keys = start + torch.arange(window, device=bands.device)
    inside = (keys >= 0) & (keys < steps)
    whole = bands.new_zeros(batch, heads, queries, steps)
    index = keys.clamp(0, steps - 1).expand(batch, heads, queries, window)
    whole.scatter_add_(-1, index, bands[..., count:] * inside)
    for each in range(batch):
        places = everywhere[each].nonzero().squeeze(-1)
        whole[each][:, :, places] += bands[each, :, :, : len(places)]
        for number, place in enumerate(places.tolist()):
            if rows is not None and place < queries:
                whole[each][:, place] = rows[each, :, number]
    return whole[..., :queries]
