"""Named places: modules through which weights pass that nothing else sees, such as the dropout after a softmax.

Whatever goes in or comes out as rows that sum to one, over the keys, is recorded; what goes in first, because
dropout changes what comes out.
"""

import dataclasses
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.records import short_name
from regard.errors import InputError, unknown_choice
from regard.external.folding import Foldings, probing
from regard.external.keeper import Call, Keeper, are_weights
from regard.external.kernel_inputs import self_attention


@contextmanager
def at_places(at: str, keeper: Keeper) -> Iterator[None]:
    """Record in the block what passes the modules whose names match `at`; raises `InputError` where none does."""
    names = list(keeper.passes.modules)
    found = {name for name in names if fnmatchcase(name, at) or fnmatchcase(short_name(name), at)}
    if not found:
        raise unknown_choice("place", at, names)
    foldings = Foldings(keeper.passes)
    place = Passing(keeper, at, foldings)
    hooks = [
        module.register_forward_hook(place.pass_by, with_kwargs=True)
        for name, module in keeper.passes.modules.items()
        if name in found
    ]
    try:
        with foldings.watching(found):
            yield
    finally:
        for hook in hooks:
            hook.remove()


class Passing:
    """Looks at what passes. A copy of it sees nothing."""

    def __init__(self, keeper: Keeper | None = None, at: str = "", foldings: Foldings | None = None) -> None:
        self.keeper, self.at, self.foldings = keeper, at, foldings or Foldings()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return Passing, ()

    def pass_by(self, module: nn.Module, args: Any, given: dict[str, Any], output: Any) -> Any:
        """Record the first tensor of weights; or return what comes out with its weights changed."""
        keeper = self.keeper
        if keeper is None or not keeper.passes.here:
            return None
        layer = keeper.passes.names.get(id(module), "")
        outputs = output if isinstance(output, tuple | list) else [output]
        if probing():
            for each in filter(are_weights, [*args, *given.values(), *outputs]):
                self.foldings.see(layer, each)
            return None
        name = keeper.next(layer)
        if name is None:
            return None
        if keeper.touches:
            changed = [self._changed(layer, each) if are_weights(each) else each for each in outputs]
            return type(output)(changed) if isinstance(output, tuple | list) else changed[0]
        weights = next(filter(are_weights, [*args, *given.values(), *outputs]), None)
        if weights is None:
            warnings.warn(
                f"at {self.at!r}: nothing of rows that sum to one passes {layer!r}: name the softmax, or the"
                " module right after it",
                stacklevel=4,
            )
        else:
            call = _call(self._by_head(layer, weights.detach()))
            keeper.keep(name, dataclasses.replace(call, flat=weights.dim() == 2))
        return None

    def _by_head(self, layer: str, weights: Tensor) -> Tensor:
        """Return weights as (B, H, Tq, Tk); warn where heads and samples cannot be told apart."""
        assert self.keeper is not None
        folding = self.foldings.of(layer, weights) if weights.dim() == 3 else None
        if folding is not None:
            return folding.unfold(weights)
        if weights.dim() == 3 and layer not in self.keeper.doubted:
            self.keeper.doubted.add(layer)
            warnings.warn(f"{self._untold(layer, weights)}: recorded as {len(weights)} of one head", stacklevel=5)
        lead = weights.shape[:-2]
        return weights.reshape(-1, *(weights.shape[-3:] if len(lead) > 1 else (1, *weights.shape[-2:])))

    def _changed(self, layer: str, weights: Tensor) -> Tensor:
        assert self.keeper is not None
        folding = self.foldings.of(layer, weights) if weights.dim() == 3 else None
        if weights.dim() == 3 and folding is None:
            raise InputError(f"{self._untold(layer, weights)}: name a place where they are (B, H, Tq, Tk)")
        split = self._by_head(layer, weights)
        changed = self.keeper.changed(split, _seen(split))
        return changed.reshape(weights.shape) if folding is None else folding.fold(changed)

    def _untold(self, layer: str, weights: Tensor) -> str:
        return f"at {layer!r}: heads cannot be told from samples in weights {tuple(weights.shape)}"


def _seen(weights: Tensor) -> Tensor:
    return (weights != 0).any(1, keepdim=True)


def _call(weights: Tensor) -> Call:
    seen = _seen(weights)
    mask = None if torch.all(seen) else seen
    return Call(
        queries=weights.shape[2],
        rows=lambda chosen: (weights[:, :, chosen], mask if mask is None else mask[:, :, chosen]),
        kind=self_attention(mask, weights.shape[2]) if weights.shape[2] == weights.shape[3] else None,
    )
