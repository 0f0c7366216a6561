"""Call a learner's function or class with an exercise's inputs, in its process. Answers are plain values for JSON."""

import contextlib
import dis
import importlib
import inspect
import linecache
import random
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard_course.arrays import (
    Library,
    Outputs,
    convert_argument,
    convert_result,
    encode_outputs,
    equal_arrays,
    equal_outputs,
    guess_libraries,
    loaded_torch,
)
from regard_course.candidates import is_learners
from regard_course.inputs import MESSAGES, Array, Case, RandomLanguageModel, Specification
from regard_course.recording import ArrayRecorder, SearchRecorder, record_run, trace_arrays
from regard_course.time_limit import report_progress
from regard_course.translated import say
from regard_course.weight_matching import (
    CONSTRUCTOR_NAMES,
    CopiedWeights,
    WeightLayout,
    copy_weights,
    find_hidden_modules,
    find_parameters,
    possible_layouts,
)

TRACEBACK_LINES = 3
"""Maximum number of innermost lines of the learner's code that are shown with an error."""
MAX_ATTEMPTS = 4
"""Maximum number of combinations of library and layout that run on all cases if none is right."""
CALLERS = "regard_course.probe_models"
"""Module of the functions `Specification.call`. It needs PyTorch, which loads slowly."""
NOWHERE = 10**9  # in place of the line of an error that every library gives
EMPTY = {"RESUME", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST", "POP_TOP", "NOP"}
"""Operations of a function without code."""
Answer = dict[str, Any]
Note = tuple[bool | None, str]
"""The text of a note, and whether the note alone makes the answer incorrect. None: no, but it is always shown."""


def collect_answers(
    exercise: Specification,
    solution: Any,
    cases: Sequence[Case],
    is_right: Callable[[Answer], bool],
    send: Callable[[Answer], None],
    monitor: contextlib.AbstractContextManager[Any] | None = None,
) -> None:
    """Call a solution with all cases, and send each answer.

    An answer is `{"attempt": 0, "case": 0, "outputs": [...]}`, or has an error instead of outputs.

    The code may use NumPy or PyTorch, and the parameters may have several layouts. The first case is tried with
    each combination of library and layout. The first combination whose answer `is_right` is used for all cases.
    If no answer is right, up to `MAX_ATTEMPTS` combinations are used. This process does not know the expected
    outputs, so `is_right` asks another process. monitor: a context manager in which the first case is called.
    """
    if exercise.call:
        importlib.import_module(CALLERS)  # before the monitor records calls
    libraries = guess_libraries(solution)
    certain = loaded_torch() is not None or len(libraries) == 1  # PyTorch is loaded when it is tried
    combinations = [(library, layout) for library in libraries for layout in _layouts(exercise, solution, cases[0])]
    tried: list[tuple[Answer, tuple[Library, WeightLayout]]] = []
    if _is_stub(solution):
        send({"attempt": 0, "case": 0, "started": False})
        return
    for library, layout in combinations:
        with monitor or contextlib.nullcontext():
            answer = answer_case(exercise, solution, cases[0], library, layout)
        if "outputs" in answer and is_right(answer):
            tried = [(answer, (library, layout))]
            break
        tried.append((answer, (library, layout)))
        if answer.get("started") is False or answer.get("reached") == NOWHERE:
            break  # with every library
    # Without results, the error of the attempt that came furthest: others are errors of the wrong library.
    furthest = max(tried if certain else tried[::-1], key=lambda attempt: attempt[0].get("reached", 0))
    usable = [attempt for attempt in tried if "outputs" in attempt[0]] or [furthest]
    for number, (first, (library, layout)) in enumerate(usable[:MAX_ATTEMPTS]):
        send({**first, "attempt": number, "case": 0})
        for index, case in enumerate(cases[1:], 1):
            answer = answer_case(exercise, solution, case, library, layout)
            send({**answer, "attempt": number, "case": index})


def _layouts(exercise: Specification, solution: Any, case: Case) -> list[WeightLayout]:
    if not isinstance(solution, type) or not exercise.module_weights(case):
        return [WeightLayout()]
    try:
        parameters = find_parameters(initialize(exercise, solution, case))
    except Exception:
        return [WeightLayout()]
    projections = any(name.split(".")[-1] == "w_q" for name in exercise.module_weights(case))
    return possible_layouts(parameters, case.sizes["width"], case.sizes.get("heads", 1), projections)


def answer_case(exercise: Specification, solution: Any, case: Case, library: Library, layout: WeightLayout) -> Answer:
    """Return the answer to one case: outputs, gradients and notes, or an error with the learner's lines."""
    report_progress()  # the number of cases, libraries and layouts is limited
    seed_generators()
    if case.functions_only and isinstance(solution, type):
        return {"skipped": True}
    try:
        if exercise.call:
            caller = getattr(importlib.import_module(CALLERS), exercise.call)
            outputs, words = caller(solution, case)
            notes = [(False, note) for note in words]
            return {"outputs": encode_outputs(outputs), "gradients": {}, "notes": notes}
        return _call_solution(exercise, solution, case, library, layout)
    except (MemoryError, EOFError):
        raise
    except NotImplementedError:
        return {"started": False, "error": say("raises NotImplementedError"), "lines": []}
    except Exception as error:
        if "allocate memory" in str(error):
            raise MemoryError from error
        folder = Path.cwd()
        with contextlib.suppress(TypeError):
            folder = Path(inspect.getfile(solution)).parent
        lines = learner_lines(error, folder)
        return {"error": explain(error, lines), "lines": lines, "reached": _reached(error)}


def _call_solution(
    exercise: Specification, solution: Any, case: Case, library: Library, layout: WeightLayout
) -> Answer:
    differentiate = bool(case.gradients) and library == "torch"
    function, copied, values, notes = _prepare(exercise, solution, case, layout)
    arguments = {name: convert_argument(value, library, differentiate) for name, value in values.items()}
    seed_generators()  # again, because the initial weights of a module took random numbers
    result = call_function(function, arguments)
    outputs = convert_result(result, len(exercise.outputs))
    notes += [
        (None, say(MESSAGES["in_place"], name))
        for name, value in values.items()
        if isinstance(value, np.ndarray)
        and not equal_arrays(convert_result(arguments[name], 1)[0], value.astype(np.float64))
    ]
    notes += _repetition_notes(function, values, library, case, outputs)
    gradients = _gradients(exercise, case, result, arguments, function, copied) if differentiate else {}
    return {"outputs": encode_outputs(outputs), "gradients": gradients, "notes": notes}


def _prepare(
    exercise: Specification, solution: Any, case: Case, layout: WeightLayout
) -> tuple[Any, CopiedWeights, dict[str, Any], list[Note]]:
    """Return the function or the module with the weights of a case, its arguments, and notes on the weights."""
    function, copied, values = solution, CopiedWeights(), dict(case.arguments)
    notes: list[Note] = []
    if isinstance(solution, type):
        function = initialize(exercise, solution, case)
        values = _call_arguments(exercise, case)
        weights = exercise.module_weights(case)
        if weights:
            copied = copy_weights(weights, function, case.sizes["width"], case.sizes.get("heads", 1), layout)
            if hidden := find_hidden_modules(function):
                return function, copied, values, [(True, say(MESSAGES["hidden_modules"], ", ".join(hidden)))]
            unmatched = (copied.missing, MESSAGES["no_parameter"]), (copied.unused, MESSAGES["no_weight"])
            notes = [(False, say(words, ", ".join(names))) for names, words in unmatched if names]
    return function, copied, values, notes


def record_answer(exercise: Specification, solution: Any, case: Case) -> list[list[Array]]:
    """Return the arrays of a run, or an encoded `SearchRun`, for each combination of library and layout."""
    runs = []
    for library in guess_libraries(solution):
        for layout in _layouts(exercise, solution, case):
            search = SearchRecorder() if isinstance(case.arguments.get("step"), RandomLanguageModel) else None
            recorder = search or ArrayRecorder()
            with contextlib.suppress(Exception):  # what was computed before an error is recorded
                function, _, values, _ = _prepare(exercise, solution, case, layout)
                arguments = {name: convert_argument(value, library) for name, value in values.items()}
                if library == "numpy":
                    arguments = {name: trace_arrays(value, recorder) for name, value in arguments.items()}
                if search:
                    arguments["step"] = search.wrap(arguments["step"])
                seed_generators()
                with record_run(recorder):
                    call_function(function, arguments)
            runs.append(search.run.encode() if search else list(recorder.arrays.values()))
    return sorted(runs, key=len, reverse=True)[:MAX_ATTEMPTS]


def seed_generators() -> None:
    """Give the generators of random numbers of Python, NumPy and PyTorch a fixed state."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  learners use the global generator
    torch = loaded_torch()
    if torch is not None:
        torch.default_generator.manual_seed(0)  # torch.manual_seed formats the stack for each absent device: 1 ms


def _repetition_notes(
    function: Any, values: Mapping[str, Any], library: Library, case: Case, outputs: Outputs
) -> list[Note]:
    """Return a note if a second call has other results: because of random numbers, if their state decides."""

    def repeat() -> Outputs:
        fresh = {name: convert_argument(value, library) for name, value in values.items()}
        return convert_result(call_function(function, fresh), len(outputs))

    if equal_outputs(case, repeat(), outputs):
        return []
    seed_generators()
    return [(True, say(MESSAGES["random" if equal_outputs(case, repeat(), outputs) else "changing"]))]


def _call_arguments(exercise: Specification, case: Case) -> dict[str, Any]:
    """Return the arguments of a module's call, without the arguments that the module stores as attributes."""
    return {name: value for name, value in case.arguments.items() if name not in exercise.module_arguments}


def initialize(exercise: Specification, cls: type, case: Case) -> Any:
    """Return an instance of a learner's class with the sizes of the case, in evaluation mode. Lazy layers of
    PyTorch are called once, because their parameters have no shapes before the first call."""
    module, torch = cls(**_constructor_arguments(exercise, cls, case)), loaded_torch()
    if hasattr(module, "eval"):
        module.eval()
    if torch is not None and isinstance(module, torch.nn.Module):
        lazy = torch.nn.parameter.UninitializedTensorMixin
        if any(isinstance(parameter, lazy) for parameter in module.parameters()):
            inputs = _call_arguments(exercise, case)
            call_function(module, {name: convert_argument(value, "torch") for name, value in inputs.items()})
    return module


def _constructor_arguments(exercise: Specification, cls: type, case: Case) -> dict[str, int]:
    """Return the constructor's arguments: those with known names, then the other required ones in order."""
    variable = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    parameters = [part for part in inspect.signature(cls).parameters.values() if part.kind not in variable]
    arguments: dict[str, int] = {}
    free = [name for name in exercise.constructor_sizes if name in case.sizes]
    for parameter in parameters:
        size = next((n for n in free if parameter.name.lower() in CONSTRUCTOR_NAMES.get(n, (n,))), None)
        if size is not None:
            arguments[parameter.name] = case.sizes[size]
            free.remove(size)
    for parameter in parameters:
        if parameter.name not in arguments and parameter.default is parameter.empty and free:
            arguments[parameter.name] = case.sizes[free.pop(0)]
    return arguments


def call_function(function: Any, arguments: Mapping[str, Any]) -> Any:
    """Call a function or module with positional arguments, without a mask that it does not accept."""
    values = list(arguments.values())
    target = function.forward if not callable(function) and hasattr(function, "forward") else function
    with contextlib.suppress(TypeError, ValueError):
        signature = inspect.signature(getattr(function, "forward", target))
        names = list(arguments)
        while names and "mask" in names[-1] and not _accepts(signature, values):
            names.pop()
            values.pop()
        if not _accepts(signature, values):
            values = list(arguments.values())  # the error then concerns the arguments of the exercise
    return target(*values)


def _accepts(signature: inspect.Signature, values: Sequence[Any]) -> bool:
    try:
        signature.bind(*values)
    except TypeError:
        return False
    return True


def _gradients(
    exercise: Specification, case: Case, result: Any, arguments: Any, function: Any, copied: CopiedWeights
) -> dict[str, Any]:
    """Return the directional derivative with respect to each argument, or None."""
    torch = loaded_torch()
    first = result[0] if isinstance(result, tuple | list) else result
    gradients: dict[str, Any] = dict.fromkeys(case.gradients)
    if not hasattr(first, "backward") or not first.requires_grad:
        return gradients
    # Sum with 64 bits, to avoid additional rounding errors.
    weights = torch.tensor(case.output_weights(tuple(first.shape)), dtype=first.dtype)
    first.double().mul(weights.double()).sum().backward()
    is_module = isinstance(function, torch.nn.Module)
    stored = {name: parameter.grad for name, parameter in function.named_parameters()} if is_module else {}
    zeros = {name: np.zeros_like(value) for name, value in exercise.module_weights(case).items()}
    for name, direction in case.directions().items():
        changes = dict(direction) if isinstance(direction, Mapping) else {name: direction}
        value = arguments.get(name)
        if value is not None:
            parts = value if isinstance(value, Mapping) else {name: value}
            gradients[name] = _derivative({key: part.grad for key, part in parts.items()}, changes)
        elif is_module:  # a weight that the module stores
            gradients[name] = _derivative(stored, copied.buffers(zeros | changes))
    return gradients


def _derivative(gradients: Mapping[str, Any], directions: Mapping[str, Any]) -> float | None:
    """Return the sum of the derivatives along directions, by name, or None if there is no gradient."""
    known = [
        float((gradients[name].double().numpy() * direction).sum())
        for name, direction in directions.items()
        if gradients.get(name) is not None
    ]
    return sum(known) if known else None


def _is_stub(solution: Any) -> bool:
    """Return whether a function has no code but a docstring, `...`, `pass` or `return`."""
    code = getattr(solution, "__code__", None)
    return code is not None and (
        {instruction.opname for instruction in dis.get_instructions(code)} <= EMPTY
        and all(value in (None, Ellipsis, solution.__doc__) for value in code.co_consts)
    )


def _reached(error: BaseException) -> int:
    """Return the line of the learner's function that failed; `NOWHERE` for an unknown name."""
    step = error.__traceback__
    while step is not None and not is_learners(step.tb_frame.f_code.co_filename):
        step = step.tb_next
    return NOWHERE if isinstance(error, NameError) else step.tb_lineno if step else 0


def explain(error: BaseException, lines: Sequence[str]) -> str:
    """Return an error as one line, with the advice that fits the error and the last of the learner's lines."""
    words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    text = f"{words}\n{lines[-1] if lines else ''}"
    advice = next((say(advice) for error, advice in MESSAGES["advice"].items() if re.search(error, text)), "")
    return f"{words} ({advice})" if advice else words


def learner_lines(error: BaseException, folder: Path) -> list[str]:
    """Return the lines of an error's traceback that are in the learner's folder, the innermost line last."""
    course = str(Path(__file__).parent)
    lines: deque[tuple[str, int, str]] = deque(maxlen=TRACEBACK_LINES)
    is_learners: dict[str, bool] = {}
    step = error.__traceback__
    while step is not None:  # an unlimited recursion has millions of frames, so nothing else is kept
        code = step.tb_frame.f_code
        file = code.co_filename
        if file not in is_learners:
            in_folder = Path(file).parent == folder and not file.startswith(course)
            is_learners[file] = file.startswith("<ip") or in_folder  # "<ipython-input ...>" is a notebook's cell
        if is_learners[file]:
            lines.append((file, step.tb_lineno, code.co_name))
        step = step.tb_next
    texts = [(line, name, linecache.getline(file, line).strip()) for file, line, name in lines]
    return [say(MESSAGES["line"], *text) for text in texts]
