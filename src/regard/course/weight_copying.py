"""Copying an exercise's weights into a learner's module, and directions of change alike."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regard.course.arrays import torch_of
from regard.course.exercises.exercise import Array, Case, Exercise
from regard.course.weight_matching import Reading, Slot, Writer, assigned, parameters_of, slots_of, tokens_of

PROJECTIONS = tuple("qkvo")


@dataclass
class Copied:
    """What a copying did."""

    places: dict[str, tuple[Slot, Writer]] = field(default_factory=dict)
    """Which parameter each weight of the exercise belongs to."""
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of the parameters."""
    spread: Callable[[Mapping[str, Array]], dict[str, Array]] = dict
    """Takes the exercise's weights apart as the parameters are."""
    missing: list[str] = field(default_factory=list)
    """Weights of the exercise that found no place."""
    left: list[str] = field(default_factory=list)
    """Parameters of the learner's that got nothing, and keep what they start from."""
    hidden: list[str] = field(default_factory=list)
    """Attributes that hold modules where PyTorch does not see them."""

    def buffers(self, weights: Mapping[str, Array]) -> dict[str, Array]:
        """Return weights, or anything of their shapes, as the parameters have them."""
        found: dict[str, Array] = {}
        for name, weight in self.spread(weights).items():
            if name in self.places:
                slot, writer = self.places[name]
                writer(weight, found.setdefault(slot.name, np.zeros(self.shapes[slot.name])))
        return found


def weights_of(exercise: Exercise, case: Case) -> dict[str, Array]:
    """Return the weights that a module holds itself."""
    found: dict[str, Array] = {}
    for name in exercise.held:
        value = case.arguments[name]
        if isinstance(value, Mapping):
            found |= value
        elif isinstance(value, np.ndarray):
            found[name] = value
    return found


def copy_weights(weights: Mapping[str, Array], thing: Any, width: int, heads: int, reading: Reading) -> Copied:
    """Write the weights into the parameters of `thing`, and return what was written where."""
    parameters = parameters_of(thing)
    slots = slots_of(parameters, width)
    copied = Copied(hidden=hidden_modules(thing))
    copied.spread = lambda each: _apart(_strided(each, heads, reading.strided), slots, width, heads)
    spread = copied.spread(weights)
    copied.places = assigned(spread, slots, heads, reading)
    copied.shapes = {name: tuple(value.shape) for name, (value, _) in parameters.items()}
    copied.missing = [name for name in spread if name not in copied.places]
    buffers = copied.buffers(weights)
    for name, (_, owner) in parameters.items():
        if name in buffers:
            continue
        if owner != "norm" and any("bias" in piece or piece == "b" for piece in tokens_of(name)[-1:]):
            buffers[name] = np.zeros(copied.shapes[name])
        else:
            copied.left.append(f"{name} {copied.shapes[name]}")
    for name, buffer in buffers.items():
        _write(parameters[name][0], buffer)
    return copied


def _write(parameter: Any, buffer: Array) -> None:
    torch = torch_of()
    if isinstance(parameter, np.ndarray):
        parameter[...] = buffer
        return
    with torch.no_grad():
        parameter.copy_(torch.tensor(buffer))


def _apart(weights: Mapping[str, Array], slots: list[Slot], width: int, heads: int) -> dict[str, Array]:
    """Return projections head by head, where the slots have them so: as many small matrices as there are
    heads.
    """
    narrow = width // heads
    small = [slot for slot in slots if sorted(slot.shape) == sorted((width, narrow)) and heads > 1]
    if len(small) < 3 * heads:
        return dict(weights)
    found: dict[str, Array] = {}
    for name, weight in weights.items():
        if name.split(".")[-1] in ("w_q", "w_k", "w_v", "cross_q", "cross_k", "cross_v"):
            for head in range(heads):
                found[f"{name}@{head}"] = weight[:, head * narrow : (head + 1) * narrow]
        else:
            found[name] = weight
    return found


def _strided(weights: Mapping[str, Array], heads: int, strided: int) -> dict[str, Array]:
    """Return projections whose columns stand as a module wants them that gives a head every h-th column."""
    if not strided:
        return dict(weights)
    found = {}
    for name, weight in weights.items():
        letter = name[-1]
        if letter in PROJECTIONS[:3] and weight.ndim == 2 and "_" in name:
            rows = len(weight)
            weight = weight.reshape(rows, heads, -1).transpose(0, 2, 1).reshape(weight.shape)
        elif letter == "o" and strided == 1 and weight.ndim == 2 and "_" in name:
            weight = weight.reshape(heads, -1, weight.shape[1]).transpose(1, 0, 2).reshape(weight.shape)
        found[name] = weight
    return found


def hidden_modules(thing: Any) -> list[str]:
    """Return the attributes of a module that are plain lists or dictionaries of modules."""
    torch = torch_of()
    if torch is None or not isinstance(thing, torch.nn.Module):
        return []
    found = []
    for path, module in thing.named_modules():
        for name, value in vars(module).items():
            inside = list(value.values()) if isinstance(value, dict) else value
            if name.startswith("_") or not isinstance(inside, list | tuple):
                continue
            if any(isinstance(each, torch.nn.Module | torch.nn.Parameter) for each in inside):
                found.append(f"{path}.{name}".lstrip("."))
    return found
