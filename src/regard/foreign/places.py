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
from regard.errors import unknown
from regard.foreign.keeper import Call, Keeper, are_weights
from regard.foreign.kernel_inputs import self_attention


@contextmanager
def at_places(model: nn.Module, at: str, keeper: Keeper) -> Iterator[None]:
    """Record in the block what passes the modules whose names match `at`; raises `InputError` where none does."""
    names = [name for name, _ in model.named_modules()]
    found = {name for name in names if fnmatchcase(name, at) or fnmatchcase(short_name(name), at)}
    if not found:
        raise unknown("place", at, names)
    place = Passing(keeper, at)
    hooks = [
        module.register_forward_hook(place.pass_by, with_kwargs=True)
        for name, module in model.named_modules()
        if name in found
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class Passing:
    """Looks at what passes. A copy of it sees nothing."""

    def __init__(self, keeper: Keeper | None = None, at: str = "") -> None:
        self.keeper, self.at = keeper, at

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return Passing, ()

    def pass_by(self, module: nn.Module, args: Any, given: dict[str, Any], output: Any) -> Any:
        """Record the first tensor of weights; or return what comes out with its weights changed."""
        keeper = self.keeper
        if keeper is None or not keeper.passes.here:
            return None
        layer = keeper.passes.names.get(id(module), "")
        name = keeper.next(layer)
        if name is None:
            return None
        outputs = output if isinstance(output, tuple | list) else [output]
        if keeper.touches:
            changed = [_changed(keeper, each) if are_weights(each) else each for each in outputs]
            return type(output)(changed) if isinstance(output, tuple | list) else changed[0]
        weights = next(filter(are_weights, [*args, *given.values(), *outputs]), None)
        if weights is None:
            warnings.warn(
                f"at {self.at!r}: nothing of rows that sum to one passes {layer!r}: name the softmax, or the"
                " module right after it",
                stacklevel=4,
            )
        else:
            keeper.keep(name, dataclasses.replace(_call(_by_head(weights.detach())), flat=weights.dim() == 2))
        return None


def _by_head(weights: Tensor) -> Tensor:
    """Return weights as (B, H, Tq, Tk); one head, where there is no axis of heads."""
    lead = weights.shape[:-2]
    return weights.reshape(-1, *(weights.shape[-3:] if len(lead) > 1 else (1, *weights.shape[-2:])))


def _seen(weights: Tensor) -> Tensor:
    return (weights != 0).any(1, keepdim=True)


def _changed(keeper: Keeper, weights: Tensor) -> Tensor:
    split = _by_head(weights)
    return keeper.changed(split, _seen(split)).reshape(weights.shape)


def _call(weights: Tensor) -> Call:
    seen = _seen(weights)
    mask = None if torch.all(seen) else seen
    return Call(
        queries=weights.shape[2],
        rows=lambda chosen: (weights[:, :, chosen], mask if mask is None else mask[:, :, chosen]),
        kind=self_attention(mask, weights.shape[2]) if weights.shape[2] == weights.shape[3] else None,
    )
