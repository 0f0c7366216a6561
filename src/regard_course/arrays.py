"""Convert arrays between NumPy and PyTorch, for the checker and learners' code, and compare them."""

import copy
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from regard_course.inputs import Array, Case, RandomLanguageModel, TanhCell
from regard_course.translated import say

Library = Literal["torch", "numpy"]
Outputs = Sequence[Array]
# Learners' code computes with 32 bits. Correct solutions differ from `Solution` by up to about 1e-5 of the
# largest number. Known mistakes differ by more than 50 times `TOLERANCE` (a test checks this).
ROUNDING = 2e-4
"""Largest difference that counts as a rounding error, relative to the largest number or to 1."""
GRADIENT_ROUNDING = 5e-3
"""Largest difference between gradients that counts as a rounding error: they accumulate many."""


def loaded_torch() -> Any:
    """Return the module `torch` if the learner's code has imported it, else None."""
    return sys.modules.get("torch")


def guess_libraries(solution: Any) -> list[Library]:
    """Return the libraries that a function or class may be written for, the more likely library first."""
    torch = loaded_torch()
    if torch is not None and isinstance(solution, type) and issubclass(solution, torch.nn.Module):
        return ["torch"]
    namespace = getattr(solution, "__globals__", None)
    if not namespace:
        module = sys.modules.get(getattr(solution, "__module__", "") or "", object)
        namespace = dict(vars(module)) if isinstance(solution, type) else {}
    functions = [solution, *vars(solution).values()] if isinstance(solution, type) else [solution]
    codes = [code for function in functions if (code := getattr(function, "__code__", None)) is not None]
    if torch is None:  # code that names no library may call methods of tensors
        return ["numpy"] if any(value is np for value in namespace.values()) else ["numpy", "torch"]
    used = [namespace[name] for name in {name for code in codes for name in code.co_names} if name in namespace]
    detached = any("tolist" in code.co_names for code in codes)  # a tensor would lose its gradient
    for values in (
        used,
        [np] if detached else list(namespace.values()),
    ):  # code without a name of a library may call methods of arrays
        origins = [f"{getattr(value, '__name__', '')}.{getattr(value, '__module__', '')}" for value in values]
        if any("torch" in origin for origin in origins):
            return ["torch", "numpy"]
        if any("numpy" in origin for origin in origins):
            return ["numpy", "torch"]
    return ["torch", "numpy"]


def convert_argument(value: Any, library: Library, requires_grad: bool = False) -> Any:
    """Return a copy of an argument for a library, in its order in memory; floats for PyTorch are float32."""
    if isinstance(value, Mapping):
        return {name: convert_argument(part, library, requires_grad) for name, part in value.items()}
    if library == "numpy":
        return value.copy(order="K") if isinstance(value, np.ndarray) else value
    import torch  # slow to import

    if isinstance(value, RandomLanguageModel):
        model = copy.copy(value)
        model.wrap = lambda array: torch.tensor(array, dtype=torch.float32)
        return model
    if isinstance(value, TanhCell):
        cell = TanhCell(torch.tensor(value.matrix, dtype=torch.float32))  # type: ignore[arg-type]
        cell.tanh, cell.concatenate = torch.tanh, torch.cat
        return cell
    if not isinstance(value, np.ndarray):
        return value
    tensor = torch.from_numpy(value.copy(order="K"))  # keeps the order of the dimensions in memory
    return tensor.float().requires_grad_(requires_grad) if value.dtype.kind == "f" else tensor


def convert_result(result: Any, outputs: int) -> tuple[Array, ...]:
    """Return the result of a learner's code as at most `outputs` float64 arrays.

    Raises `TypeError` if the result does not consist of numbers.

    >>> convert_result(([[1, 2]], [3]), outputs=2)
    (array([[1., 2.]]), array([3.]))
    """
    several = isinstance(result, tuple) or (isinstance(result, list) and result and _is_array(result[0]))
    if several and outputs == 1 and not any(_is_array(part) for part in result):
        several = False  # a sequence of tokens is one output
    parts = list(result) if several else [result]
    return tuple(_convert_output(part) for part in parts[: max(outputs, 1)])


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or ((hasattr(value, "detach") and hasattr(value, "numpy")) and value.ndim > 0)


def _convert_output(value: Any) -> Array:
    if value is None:
        raise TypeError(say("the result is None: is a `return` missing?"))
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    elif isinstance(value, list):
        value = [_convert_output(part) for part in value]
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise TypeError(say("the result has parts of different lengths, so it is not one array")) from error
    if array.dtype.kind not in "fiub":
        raise TypeError(say("the result is a {0}, not numbers", type(value).__name__))
    return array.astype(np.float64)


def encode_outputs(outputs: Outputs) -> list[dict[str, Any]]:
    return [{"shape": list(array.shape), "data": array.reshape(-1).tolist()} for array in outputs]


def decode_outputs(answer: Mapping[str, Any]) -> list[Array] | None:
    """Return the arrays of an answer, or None if the answer has no outputs."""
    if "outputs" not in answer:
        return None
    return [np.array(output["data"], float).reshape(output["shape"]) for output in answer["outputs"]]


def equal_arrays(left: Array, right: Array, valid_steps: Array | None = None) -> bool:
    """Return whether two arrays are equal up to rounding errors, including shape, NaN and infinities.

    Everything in the course that is computed twice is compared with this function: an answer with the expected answer,
    and an answer with its repetition. Only steps where `valid_steps` (B, T) is True are compared.

    >>> equal_arrays(np.array([1.0, 2.0]), np.array([1.0, 2.0001])), equal_arrays(np.ones(2), np.ones((2, 1)))
    (True, False)
    """
    if left.shape != right.shape:
        return False
    if valid_steps is not None and left.shape[: valid_steps.ndim] == valid_steps.shape:
        left, right = left[valid_steps], right[valid_steps]
    if left.size == 0:
        return True
    finite = np.isfinite(left) & np.isfinite(right)
    if not np.array_equal(left[~finite], right[~finite], equal_nan=True):
        return False
    scale = max(1.0, float(np.abs(right[finite]).max(initial=0)))
    return float(np.abs(left[finite] - right[finite]).max(initial=0)) <= ROUNDING * scale


def equal_outputs(case: Case, outputs: Outputs, expected: Outputs) -> bool:
    pairs = list(zip(outputs, expected, strict=False))
    return bool(pairs) and all(equal_arrays(left, right, case.valid_steps) for left, right in pairs)


def equal_gradients(gradient: float | None, expected: tuple[float, float]) -> bool:
    """Return whether a gradient lies between the two one-sided measurements, up to rounding errors.

    At the kink of a ReLU the two measurements differ, and rounding decides which one the learner's gradient is.

    >>> equal_gradients(1.5, (1.0, 2.0)), equal_gradients(3.0, (1.0, 2.0)), equal_gradients(None, (1.0, 2.0))
    (True, False, False)
    """
    low, high = sorted(expected)
    rounding = GRADIENT_ROUNDING * max(1.0, abs(low), abs(high))
    return gradient is not None and low - rounding <= gradient <= high + rounding
