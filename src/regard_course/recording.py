"""Record the arrays of one run of a learner's code, in the process that runs it.

The process that grades compares them with the quantities of the right solution (`first_step`). Recorded are the
results of all operations of PyTorch or NumPy, and the values of the variables in the learner's functions, which may
be lists of numbers. A variable is recorded when it gets another value and when its function returns, so that an
array that a loop fills is recorded when it is full.
"""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

import numpy as np

from regard_course.arrays import loaded_torch
from regard_course.candidates import is_learners
from regard_course.inputs import Array

MAX_SIZE, MAX_NUMBERS = 4_000, 300_000
"""Limits of the numbers of an array that is recorded, and of all arrays together."""


class ArrayRecorder:
    """The arrays of a run, each once."""

    def __init__(self) -> None:
        self.arrays: dict[tuple[tuple[int, ...], bytes], Array] = {}
        self._left = MAX_NUMBERS
        self._variables: dict[FrameType, dict[str, Any]] = {}
        """The last value of each variable of the running functions."""

    def add(self, value: Any) -> None:
        """Record an array, a tensor, or a list of numbers, arrays or tensors."""
        array = _as_floats(value)
        if array is None or not 0 < array.size <= min(MAX_SIZE, self._left):
            return
        key = array.shape, array.tobytes()
        if key not in self.arrays:
            self._left -= array.size
            self.arrays[key] = array

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Record the variables of the learner's functions; for `sys.settrace`."""
        if event == "call" and not is_learners(frame.f_code.co_filename):
            return None
        variables = self._variables.setdefault(frame, {})
        for name, value in list(frame.f_locals.items()):
            if variables.get(name) is not value:
                self.add(variables.get(name))
                variables[name] = value
                self.add(value)
        if event == "return":
            for value in (*self._variables.pop(frame).values(), argument):
                self.add(value)
        return self.trace


def _as_floats(value: Any) -> Array | None:
    """Return a copy with 64 bits, or None if the value has no floats."""
    torch = loaded_torch()
    with contextlib.suppress(Exception):  # a list of other things, or of arrays with different shapes
        if torch is not None and torch.is_tensor(value):
            return np.array(value.detach().double().numpy()) if value.is_floating_point() else None
        if isinstance(value, np.ndarray):
            return np.array(value, np.float64) if value.dtype.kind == "f" else None
        if isinstance(value, list | tuple) and 0 < len(value) <= MAX_SIZE:
            first = value[0]
            while isinstance(first, list | tuple) and first:
                first = first[0]
            if torch is not None and torch.is_tensor(first):
                return np.stack([part.detach().double().numpy() for part in value])
            return np.array(value, np.float64) if isinstance(first, float | np.floating | np.ndarray) else None
    return None


class _TracedArray(np.ndarray[Any, Any]):
    """Array whose operations are recorded."""

    recorder: ArrayRecorder

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        options["out"] = tuple(map(_plain, options["out"])) if options.get("out") else None
        if method == "at" or options["out"] is None:
            del options["out"]
        options = {name: _plain(value) for name, value in options.items()}
        return self._traced(getattr(ufunc, method)(*map(_plain, inputs), **options))

    def __array_function__(self, function: Any, types: Any, values: Any, options: Any) -> Any:
        return self._traced(super().__array_function__(function, types, values, options))

    def _traced(self, result: Any) -> Any:
        for part in result if isinstance(result, tuple) else (result,):
            self.recorder.add(part)
        return result.view(type(self)) if type(result) is np.ndarray else result


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return value.view(np.ndarray) if isinstance(value, np.ndarray) else value


def trace_arrays(value: Any, recorder: ArrayRecorder) -> Any:
    """Return an argument for NumPy code whose operations are recorded."""
    if isinstance(value, Mapping):
        return {name: trace_arrays(part, recorder) for name, part in value.items()}
    if not isinstance(value, np.ndarray):
        return value
    return value.view(type("TracedArray", (_TracedArray,), {"recorder": recorder}))


@contextlib.contextmanager
def record_run(recorder: ArrayRecorder) -> Iterator[None]:
    """Record the operations of PyTorch, and the variables of the learner's functions."""
    torch = loaded_torch()
    with contextlib.ExitStack() as stack:
        if torch is not None:
            from torch.utils._python_dispatch import TorchDispatchMode

            def dispatch(self: Any, operation: Any, types: Any, values: Any = (), options: Any = None) -> Any:
                result = operation(*values, **(options or {}))
                for part in result if isinstance(result, tuple | list) else (result,):
                    recorder.add(part)
                return result

            mode: Any = type("Mode", (TorchDispatchMode,), {"__torch_dispatch__": dispatch})
            stack.enter_context(mode())
        sys.settrace(recorder.trace)
        stack.callback(sys.settrace, None)
        yield
