"""Freezing: parts of a model whose parameters are not trained.

A part is a dotted name in the model, without the name of the list that contains the layers: `encoder`,
`encoder.0`, `decoder.1.cross`. Modules of source and target with the same name form one part: `embedding`
stands for `source_embedding` and `target_embedding`.
"""

from collections.abc import Sequence

from torch import nn

from regard.attention.names import short_name
from regard.errors import InputError

SIDES = ("source_", "target_")


def freeze(model: nn.Module, parts: Sequence[str]) -> None:
    """Exclude the parameters of some parts from training, so that they have no gradient.

    Raises `InputError` for an unknown part, or if no trainable parameters remain.
    """
    named = dict(model.named_parameters())
    for part in parts:
        parameters = [parameter for name, parameter in named.items() if _is_in(name, part)]
        if not parameters:
            raise InputError(
                f"freeze {part!r}: the model has no part with this name; choose {', '.join(parts_of(model))}, "
                f"or a part of these parts"
            )
        for parameter in parameters:
            parameter.requires_grad_(False)
    if parts and not any(parameter.requires_grad for parameter in named.values()):
        raise InputError(f"freeze {' '.join(parts)} freezes the whole model: leave at least one part to train")


def parts_of(model: nn.Module) -> list[str]:
    """Return the parts of a model in the order of its modules, each part followed by its layers."""
    layers_of_part: dict[str, list[str]] = {}
    for name, _ in model.named_parameters():
        part, *inner = _without_side(short_name(name)).split(".")
        layers = layers_of_part.setdefault(part, [])
        if inner and inner[0].isdigit() and f"{part}.{inner[0]}" not in layers:
            layers.append(f"{part}.{inner[0]}")
    return [name for part, layers in layers_of_part.items() for name in (part, *layers)]


def _is_in(name: str, part: str) -> bool:
    name = short_name(name)
    return any(f"{alias}.".startswith(f"{part}.") for alias in (name, _without_side(name)))


def _without_side(name: str) -> str:
    """Return a name without `source_` or `target_`."""
    return next((name.removeprefix(side) for side in SIDES if name.startswith(side)), name)
