"""Between the checker's arrays and what a learner's code takes and gives: NumPy's arrays or PyTorch's tensors."""

import copy
import sys
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from regard.course.exercises.exercise import Array, Chances, TanhCell

Flavour = Literal["torch", "numpy"]


def torch_of() -> Any:
    """Return PyTorch where the learner's code has loaded it, or else None."""
    return sys.modules.get("torch")


def flavours_of(thing: Any) -> list[Flavour]:
    """Return what a function or class is written with, the likelier one first."""
    torch = torch_of()
    if torch is None:
        return ["numpy"]
    if isinstance(thing, type) and issubclass(thing, torch.nn.Module):
        return ["torch"]
    names = _names(thing)
    known = (
        vars(sys.modules.get(getattr(thing, "__module__", "") or "", object)) if isinstance(thing, type) else {}
    )
    space = getattr(thing, "__globals__", None) or dict(known)
    used = [space[name] for name in names if name in space]
    homes = [getattr(each, "__name__", "") + "." + str(getattr(each, "__module__", "")) for each in used]
    if any("torch" in home for home in homes):
        return ["torch", "numpy"]
    if any("numpy" in home or "math" in home for home in homes):
        return ["numpy", "torch"]
    return ["torch", "numpy"]


def _names(thing: Any) -> set[str]:
    """Return the global names that a function or the methods of a class use."""
    parts = [thing, *vars(thing).values()] if isinstance(thing, type) else [thing]
    found: set[str] = set()
    for part in parts:
        code = getattr(part, "__code__", None)
        while code is not None:
            found |= set(code.co_names)
            code = None
    return found


def given(value: Any, flavour: Flavour, leaf: bool = False) -> Any:
    """Return a value as a learner's code gets it: a copy; with `leaf`, a tensor that gradients come to."""
    if isinstance(value, Mapping):
        return {name: given(each, flavour, leaf) for name, each in value.items()}
    if flavour == "torch":
        return _tensor(value, leaf)
    return value.copy() if isinstance(value, np.ndarray) else value


def _tensor(value: Any, leaf: bool) -> Any:
    torch = torch_of()
    if isinstance(value, Chances):
        wrapped = copy.copy(value)
        wrapped.wrap = lambda found: torch.tensor(found, dtype=torch.float32)
        return wrapped
    if isinstance(value, TanhCell):
        cell = TanhCell(torch.tensor(value.matrix, dtype=torch.float32))
        cell.tanh, cell.join = torch.tanh, torch.cat
        return cell
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind == "f":
        return torch.tensor(value, dtype=torch.float32, requires_grad=leaf)
    return torch.tensor(value)


def taken(found: Any, outputs: int) -> tuple[Array, ...]:
    """Return what a learner's code gave as arrays in 64 bits; raises `TypeError` where that is none of
    numbers.
    """
    several = isinstance(found, tuple) or (isinstance(found, list) and found and _is_array(found[0]))
    if several and outputs == 1 and not any(_is_array(each) for each in found):
        several = False  # a sequence of tokens
    parts = list(found) if several else [found]
    return tuple(_array(each) for each in parts[: max(outputs, 1)])


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or (
        (hasattr(value, "detach") and hasattr(value, "numpy")) and value.ndim > 0
    )


def _array(value: Any) -> Array:
    if value is None:
        raise TypeError("None came back: is there a `return`?")
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    elif isinstance(value, list):
        value = [_array(each) for each in value]
    found = np.asarray(value)
    if found.dtype.kind not in "fiub":
        raise TypeError(f"a {type(value).__name__} came back, where numbers are wanted")
    return found.astype(np.float64)
