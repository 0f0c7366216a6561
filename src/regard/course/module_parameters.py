"""List the parameters of a learner's module, or the arrays of a class without PyTorch."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from regard.course.arrays import loaded_torch

MAX_DEPTH = 4
"""Levels of attributes, lists and dictionaries that are searched for arrays."""


def find_parameters(module: Any) -> dict[str, tuple[Any, str]]:
    """Return all parameters of a module, or float arrays of any other object, each with the kind of its owner.

    A parameter that several modules share is listed once.
    """
    torch = loaded_torch()
    if torch is None or not isinstance(module, torch.nn.Module):
        return dict(_find_arrays(module, "", 0))
    parameters = {}
    for path, part in module.named_modules():
        for name, parameter in part.named_parameters(recurse=False):
            parameters[f"{path}.{name}".lstrip(".")] = parameter, _owner_kind(part, torch)
    first_names = {id(value): name for name, (value, _) in reversed(parameters.items())}
    return {name: parameters[name] for name in parameters if name in first_names.values()}


def _owner_kind(module: Any, torch: Any) -> str:
    if isinstance(module, torch.nn.Linear):
        return "linear"
    if isinstance(module, torch.nn.Embedding):
        return "embedding"
    return "norm" if "norm" in type(module).__name__.lower() else "other"


def _find_arrays(value: Any, path: str, depth: int) -> Iterator[tuple[str, tuple[Any, str]]]:
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f":
            yield path, (value, "norm" if "norm" in path.lower() else "other")
    elif depth < MAX_DEPTH:
        attributes = value if isinstance(value, Mapping) else getattr(value, "__dict__", None)
        if isinstance(value, list | tuple):
            attributes = dict(enumerate(value))
        for name, attribute in (attributes or {}).items():
            yield from _find_arrays(attribute, f"{path}.{name}".lstrip("."), depth + 1)


def find_hidden_modules(module: Any) -> list[str]:
    """Return attributes that are plain lists or dictionaries of modules, which PyTorch does not register."""
    torch = loaded_torch()
    if torch is None or not isinstance(module, torch.nn.Module):
        return []
    hidden = []
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            items = list(value.values()) if isinstance(value, dict) else value
            if name.startswith("_") or not isinstance(items, list | tuple):
                continue
            if any(isinstance(item, torch.nn.Module | torch.nn.Parameter) for item in items):
                hidden.append(f"{path}.{name}".lstrip("."))
    return hidden
