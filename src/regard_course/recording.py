"""Record one run of a learner's code, in its process, for `first_step`: the results of all operations of PyTorch or
NumPy, and the variables of the learner's functions, also lists of numbers, when they get another value and when their
function returns, so that an array that a loop fills is recorded when it is full."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import numpy as np

from regard_course.arrays import loaded_torch
from regard_course.candidates import is_learners
from regard_course.inputs import Array

MAX_SIZE, MAX_NUMBERS = 4_000, 300_000
"""Limits of the numbers of an array that is recorded, and of all arrays together."""
MAX_NESTED = 4  # nested lists that are searched for numbers, and parts of a hypothesis


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


class SearchRun:
    """The calls of the model in a learner's search, and the numbers of the run."""

    def __init__(self) -> None:
        self.calls: list[list[float]] = []
        """The tokens of each call. NaN is before a single token that is passed without a list."""
        self.numbers: dict[float, None] = {}
        self.pairs: list[list[float]] = []
        """Numbers that a tuple or an object contains together with tokens: the number, then the tokens."""

    def encode(self) -> list[Array]:
        parts = (self.calls, [list(self.numbers)[:MAX_NUMBERS]], self.pairs[-MAX_SIZE:])
        return [np.array([kind, *values]) for kind, part in enumerate(parts) for values in part]

    @classmethod
    def decode(cls, arrays: Sequence[Array]) -> "SearchRun":
        run = cls()
        for kind, *values in (array.tolist() for array in arrays):
            if kind == 1:
                run.numbers = dict.fromkeys(sorted(values))
            else:
                (run.pairs if kind else run.calls).append(values)
        return run

    def has(self, number: float, tokens: Sequence[int] = ()) -> bool:
        """Return whether a number occurs together with tokens, up to rounding, or anywhere if none does."""
        known = self.numbers_of(tokens) or self.numbers
        return any(abs(number - other) <= 1e-5 * max(abs(number), 1e-3) for other in known)

    def numbers_of(self, tokens: Sequence[int]) -> list[float]:
        """Return the numbers that occur together with tokens, with or without the start token."""
        return [number for number, *own in self.pairs if own in (tokens, tokens[1:])]


class SearchRecorder(ArrayRecorder):
    """The calls and the numbers of a run."""

    def __init__(self) -> None:
        super().__init__()
        self.run = SearchRun()

    def wrap(self, model: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a model whose calls are recorded."""

        def step(tokens: Any) -> Any:
            tokens = list(tokens) if isinstance(tokens, Iterator) else tokens  # which is read twice
            with contextlib.suppress(Exception):
                values = [np.nan, tokens] if np.ndim(tokens) == 0 else list(tokens)
                self.run.calls.append(np.asarray(values, np.float64).reshape(-1).tolist())
            return trace_arrays(model(tokens), self)

        return step

    def add(self, value: Any, depth: int = MAX_NESTED) -> None:
        """Record the numbers in a value, and numbers that are next to tokens."""
        if isinstance(value, float | np.floating):
            self.run.numbers[float(value)] = None
        elif (array := _as_floats(value)) is not None:
            self.run.numbers |= dict.fromkeys(array.reshape(-1)[:MAX_SIZE].tolist())
        elif depth and len(self.run.numbers) < MAX_NUMBERS:
            parts = list(value) if isinstance(value, list | tuple) else _attributes(value)
            if 2 <= len(parts) <= MAX_NESTED:
                tokens = next((numbers for part in parts if (numbers := _tokens(part)) is not None), None)
                number = next((float(part) for part in parts if isinstance(part, float | np.floating)), None)
                if tokens is not None and number is not None:
                    self.run.pairs.append([number, *tokens])
            for part in parts:
                self.add(part, depth - 1)


def _attributes(value: Any) -> list[Any]:
    """Return the keys and values of a dictionary, or the values of an object of the learner's class."""
    if isinstance(value, dict):
        return list(value.items())
    file = getattr(sys.modules.get(type(value).__module__), "__file__", None)
    return list(getattr(value, "__dict__", {}).values()) if file and is_learners(file) else []


def _tokens(value: Any) -> list[float] | None:
    """Return tokens as numbers, or None if a value is not a sequence of whole numbers."""
    with contextlib.suppress(Exception):
        array = np.asarray(value)
        if array.dtype.kind == "i" and array.ndim == 1:
            return [float(token) for token in array]
    return None


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
