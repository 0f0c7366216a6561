"""Exported functions, layers and methods refuse senseless arguments in one line."""

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import regard
from regard import attention, data, decoding, models
from regard.arguments import _parameters
from regard.errors import InputError

MAY_BE_NEGATIVE = {"position", "positions", "step", "target", "token"}
"""Numbers that count from the end, or that are any number."""
MAY_BE_ZERO = {
    *("seed", "head", "output", "key", "query", "generate", "dropout", "input_width", "samples", "most", "offset"),
    *("first", "false_alarms", "number", "step", "top_k", "to", "temperature", "port", "threshold", "pairs"),
}


def branches(hint: Any) -> list[Any]:
    """Return the parts of a union, without metadata."""
    if typing.get_origin(hint) is typing.Annotated:
        return branches(typing.get_args(hint)[0])
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [part for branch in typing.get_args(hint) for part in branches(branch)]
    if isinstance(hint, typing.TypeVar):
        return [Any if hint.__bound__ is None else hint.__bound__]
    return [hint]


def sample(hint: Any) -> Any:
    """Return a value of a type; an empty object for a class."""
    hint = branches(hint)[0]
    origin, parts = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin is typing.Literal:
        return parts[0]
    if origin in (Any, None, types.NoneType) or not isinstance(origin, type) and origin is not Callable:
        return None
    if origin is Callable:
        return lambda *_: None
    plain = {int: 1, float: 0.5, str: "x", bool: False, Path: Path("x"), np.ndarray: np.zeros(2)}
    if origin in plain:
        return plain[origin]
    if origin is torch.Tensor:
        return torch.zeros(1, 2, 8)
    if origin is type:
        return parts[0]
    if origin is tuple:
        return tuple(sample(part) for part in parts if part is not Ellipsis)
    if issubclass(origin, Mapping):
        return {}
    if issubclass(origin, frozenset | set):
        return origin()
    if issubclass(origin, Iterable) and origin.__module__ in ("builtins", "collections.abc"):
        return []
    return origin.__new__(origin)


def misuses(name: str, hint: Any, *, numbers: bool) -> Iterator[Any]:
    """Yield values that a parameter of this name and type must refuse."""
    kinds = branches(hint)
    origins = [typing.get_origin(kind) or kind for kind in kinds]
    if Any in origins or object in origins:
        return
    iterable = any(isinstance(kind, type) and issubclass(kind, Iterable) and kind is not str for kind in origins)
    choices = [choice for kind in kinds if typing.get_origin(kind) is typing.Literal for choice in kind.__args__]
    yield object()
    yield regard.Estimate(mean=0.0, low=0.0, high=0.0) if regard.Estimate not in origins else regard.Finding
    if types.NoneType not in origins and None not in origins:
        yield None
    if not {int, float} & set(origins) and 7 not in choices:
        yield 7
    if str not in origins and Path not in origins:
        yield "casual"
    if {int, float} & set(origins):
        if bool not in origins:
            yield True
        yield [3] if not iterable else [[object()]]
        if float not in origins:
            yield 2.5
        if numbers:
            yield float("nan")
            yield from [10**30] if float not in origins else []
            if name not in MAY_BE_NEGATIVE:
                yield -7
                if name not in MAY_BE_ZERO and float not in origins:
                    yield 0
    for choice in choices:
        if isinstance(choice, str):
            yield choice[:-1] + choice[-1:] * 2
    if iterable:
        yield [object()]
    if torch.Tensor in origins:
        yield [[1.0]]
        yield np.zeros((1, 2, 8))
    if Path in origins or str in origins:
        yield b"x"
