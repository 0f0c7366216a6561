"""Parts of a model that keep their parameters while the others are trained.

A part is a name as the model has it, without what every stack calls its layers: `encoder`, `encoder.0`,
`decoder.1.cross`. What source and target have each is one part too: `embedding` is `source_embedding` and
`target_embedding`.
"""

from collections.abc import Sequence

from torch import nn

from regard.attention import short_name
from regard.errors import InputError

SIDES = ("source_", "target_")


def freeze(model: nn.Module, parts: Sequence[str]) -> None:
    """Leave the parameters of some parts of a model as they are: they have no gradient from now on.

    Raises `InputError` for a part that the model does not have, or where nothing is left to train.
    """
    names = dict(model.named_parameters())
    for part in parts:
        found = [parameter for name, parameter in names.items() if _is_in(name, part)]
        if not found:
            raise InputError(
                f"freeze {part!r} is no part of the model: choose {', '.join(parts_of(model))}, or a part of one"
            )
        for parameter in found:
            parameter.requires_grad_(False)
    if parts and not any(parameter.requires_grad for parameter in names.values()):
        raise InputError(f"freeze {' '.join(parts)} is the whole model: leave a part to train")


def parts_of(model: nn.Module) -> list[str]:
    """Return the parts of a model, each once and then its layers, in the model's order."""
    found: dict[str, list[str]] = {}
    for name, _ in model.named_parameters():
        part, *inner = _both(short_name(name)).split(".")
        layers = found.setdefault(part, [])
        if inner and inner[0].isdigit() and f"{part}.{inner[0]}" not in layers:
            layers.append(f"{part}.{inner[0]}")
    return [each for part, layers in found.items() for each in (part, *layers)]


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are trained, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def _is_in(name: str, part: str) -> bool:
    name = short_name(name)
    return any(f"{each}.".startswith(f"{part}.") for each in (name, _both(name)))


def _both(name: str) -> str:
    """Return a name without the side that its part belongs to."""
    return next((name.removeprefix(side) for side in SIDES if name.startswith(side)), name)
