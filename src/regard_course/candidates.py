"""Find the functions and classes of a learner's file that answer an exercise, and the library code in use."""

import ast
import dis
import functools
import inspect
import os
import re
import sys
import sysconfig
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from regard_course.inputs import Specification, normalize_name
from regard_course.translated import say

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
OPTIONS = ("axis", "dim", "keepdims", "keepdim", "dtype", "eps")
"""Names of parameters of basic functions that are not inputs of an exercise."""
WRAPPED = (
    *("__wrapped__", "__func__", "func", "pyfunc", "py_func"),
    *("_orig_mod", "_torchdynamo_orig_callable", "_torchdynamo_inline"),
)
"""Attributes in which decorators, partial functions, methods and compilers store the original function."""
MAX_DEPTH = 4
"""Maximum number of nested wrappers that are unwrapped."""
SOLVES_EXERCISE = re.compile(
    r"attention|\btransformer(encoder|decoder)?(layer)?\b|sinusoid|masked.?softmax|beam.?search|greedy", re.I
)
"""Names of library functions that do the work of an exercise. Softmax and matmul are not among them."""
COURSE = Path(__file__).parent
# Read now, because the process that runs a learner's code refuses to read this folder.
EXERCISE_NAMES = frozenset(tomllib.loads((COURSE / "exercises" / "exercises.toml").read_text(encoding="utf-8")))
REGARD = tuple(f"{COURSE.with_name(name)}{os.sep}" for name in ("regard", "regard_course", "regard_lab"))
"""Folders of Regard. Their parent may contain other packages, too."""
SOLUTIONS = "mistakes"
"""Folder of the course with solutions. Its other code runs whenever an answer is called."""
PACKAGES = ("site-packages", "dist-packages")
"""Folders of installed packages, in this environment or another one that it uses."""
STANDARD_LIBRARY = sysconfig.get_path("stdlib")
CALLS = ("forward", "__call__")
"""Methods in which a class does its work. Its other methods, such as `__init__`, have names of their own."""
TORCH_MODULES = str(Path("torch", "nn", "modules"))
"""Part of the paths of PyTorch's modules, whose methods call the `forward` of a module."""


@dataclass(frozen=True)
class Candidates:
    """The answers in a learner's file."""

    names: Mapping[str, Any]
    """All names of the file's module."""
    own: dict[str, Any]
    """Callable objects whose code is in the file, by name."""
    exercises: dict[str, str] = field(default_factory=dict)
    """Name of the answer to each exercise."""
    passed_over: dict[str, list[str]] = field(default_factory=dict)
    """Unused names in the file that also fit each exercise."""
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    """For each exercise whose only candidate is an imported object: the name and the module of this object."""

    @property
    def replaced(self) -> list[str]:
        """Functions of other modules that the file replaces, as in `json.dumps = mine`."""
        replaced: dict[str, None] = {}
        for node in ast.walk(_parse_module(self.names)):
            for target in node.targets if isinstance(node, ast.Assign) else ():
                if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                    module = self.names.get(target.value.id)
                    if inspect.ismodule(module):
                        replaced[f"{module.__name__}.{target.attr}"] = None
        return list(replaced)

    @property
    def calls(self) -> dict[str, list[str]]:
        return {exercise: sorted(self.used_names(name)) for exercise, name in self.exercises.items()}

    def used_names(self, name: str) -> set[str]:
        """Return the other names in the file that an object uses, directly or indirectly."""
        used, pending = set[str](), [name]
        while pending:
            for code in _find_codes(self.own[pending.pop()], self.names):
                for instruction in dis.get_instructions(code):
                    if instruction.opname not in ("LOAD_GLOBAL", "LOAD_NAME"):
                        continue
                    if instruction.argval in self.own and instruction.argval not in used:
                        used.add(instruction.argval)
                        pending.append(instruction.argval)
        return {other for other in used if self.own[other] is not self.own[name]}


def find_candidates(names: Mapping[str, Any], wanted: Sequence[Specification], *, chosen: bool = False) -> Candidates:
    """Find the answers to exercises among the names of a module: by their names, then by their aliases. If a `chosen`
    exercise has none, it is the only function or class that no other function uses."""
    public = {name: value for name, value in names.items() if callable(value) and not name.startswith("_")}
    # A class that only renames an imported class contains no code.
    own = {name: value for name, value in public.items() if any(True for _ in _find_codes(value, names))}
    candidates = Candidates(names, own)
    for item in wanted:
        fitting = [name for name in own if item.matches(name) and (name == item.name or fits(own[name], item))]
        if fitting:
            fitting.sort(key=lambda name: _rank(name, own[name], item))
            candidates.exercises[item.name] = fitting[0]
            others = [name for name in fitting[1:] if own[name] is not own[fitting[0]]]
            if others:
                candidates.passed_over[item.name] = others
    if chosen and not candidates.exercises:
        (exercise,) = wanted
        named = [name for name in own if exercise.matches(name)]
        free = own.keys() - EXERCISE_NAMES if exercise.name in EXERCISE_NAMES else own.keys()
        named = named or [name for name in free if not any(name in candidates.used_names(user) for user in own)]
        if len(named) == 1:
            candidates.exercises[exercise.name] = named[0]
    imported = {name: value for name, value in public.items() if name not in own}
    for item in wanted:
        exact = [name for name in imported if normalize_name(name) == normalize_name(item.name)]
        near = [] if candidates.exercises else [name for name in imported if item.matches(name)]
        if item.name not in candidates.exercises and (exact or near):
            name = (exact or near)[0]
            candidates.imported[item.name] = name, _find_origin(name, imported[name], names)
    return candidates


def _rank(name: str, value: Any, exercise: Specification) -> tuple[bool, bool, bool]:
    same = normalize_name(name) == normalize_name(exercise.name)
    return name != exercise.name, not same, not isinstance(value, type) and not inspect.isroutine(value)


def fits(candidate: Any, exercise: Specification) -> bool:
    """Return whether a function accepts the inputs of an exercise, or whether a class accepts its sizes."""
    try:
        own = [p for p in inspect.signature(candidate).parameters.values() if p.kind in POSITIONAL]
    except (TypeError, ValueError):
        return True
    required = sum(parameter.default is parameter.empty for parameter in own)
    if isinstance(candidate, type):
        return required <= len(exercise.constructor_sizes)
    accepted = sum(parameter.name not in OPTIONS for parameter in own)
    needed = sum(parameter.default is parameter.empty for parameter in exercise.parameters)
    return required <= len(exercise.parameters) and needed <= accepted


def _find_codes(value: Any, names: Mapping[str, Any], depth: int = MAX_DEPTH) -> Iterator[CodeType]:
    """Yield the code objects of a value that are written in the module, including code inside wrappers."""
    code = _safe_getattr(value, "__code__")
    if isinstance(code, CodeType) and (
        _safe_getattr(value, "__globals__") is names or code.co_filename == names.get("__file__")
    ):
        yield from _nested_codes(code)
    if not depth:
        return
    inner = [_safe_getattr(value, name) for name in WRAPPED]
    if isinstance(value, type):
        inner += [member for cls in value.__mro__ for member in vars(cls).values() if not isinstance(member, type)]
    elif isinstance(code, CodeType):
        cells = _safe_getattr(value, "__closure__") or ()
        inner += [_safe_getattr(cell, "cell_contents") for cell in cells]
    elif not inspect.isroutine(value) and not inspect.ismodule(value):
        inner.append(type(value))
    if isinstance(value, property):
        inner.append(value.fget)
    for part in inner:
        if callable(part) or isinstance(part, staticmethod | classmethod | property):
            yield from _find_codes(part, names, depth - 1)


def _nested_codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested_codes(constant)


def _safe_getattr(value: Any, name: str) -> Any:
    try:
        return getattr(value, name, None)
    except Exception:  # a learner's object may raise anything; an empty closure cell raises ValueError
        return None


def _module_name(value: Any) -> str:
    name = _safe_getattr(value, "__module__") or _safe_getattr(type(value), "__module__")
    return name if isinstance(name, str) else ""


def _find_origin(name: str, value: Any, names: Mapping[str, Any]) -> str:
    """Return the module that a name was imported from, according to the file or else to the object."""
    for node in ast.walk(_parse_module(names)):
        if isinstance(node, ast.ImportFrom) and any((part.asname or part.name) == name for part in node.names):
            return "." * node.level + (node.module or "")
    if isinstance(value, type):
        bases = [cls for cls in value.__mro__ if cls.__module__ != names.get("__name__")]
        return _module_name(bases[0])
    inner = next((part for part in (_safe_getattr(value, attribute) for attribute in WRAPPED) if callable(part)), value)
    return re.split(r"\._", _module_name(inner))[0] or say("a library")


def _parse_module(names: Mapping[str, Any]) -> ast.Module:
    """Return the syntax tree of a module's file, or an empty tree if the file no longer exists."""
    try:
        return ast.parse(Path(names["__file__"]).read_text(encoding="utf-8"))
    except (KeyError, TypeError, OSError, ValueError, SyntaxError):
        return ast.Module([], [])


@functools.cache
def is_library(filename: str) -> bool:
    """Return whether a file belongs to an installed package or to Regard, and not to the learner."""
    path = Path(filename)
    if path.is_relative_to(COURSE):
        return path.relative_to(COURSE).parts[0] == SOLUTIONS
    return filename.startswith(REGARD) or any(part in PACKAGES for part in path.parts)


@functools.cache
def is_learners(filename: str) -> bool:
    return not is_library(filename) and not filename.startswith((STANDARD_LIBRARY, "<frozen ", str(COURSE)))


class CallMonitor:
    """Monitor of which functions of a file run, and which library functions do the work of an exercise.

    A library function is recorded only if the learner's code calls it, or calls it as a module of PyTorch. What
    a library calls or imports for its own work has similar names: `numpy.einsum` calls `_greedy_path`.

    Use it as `with CallMonitor(candidates) as monitor: ...`, then read `monitor.names` and `monitor.library`.
    """

    def __init__(self, candidates: Candidates) -> None:
        self.names: set[str] = set()
        self.library: dict[str, None] = {}
        self._codes = {
            code: name for name, value in candidates.own.items() for code in _find_codes(value, candidates.names)
        }

    def __enter__(self) -> "CallMonitor":
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            code = frame.f_code
            if code in self._codes:
                self.names.add(self._codes[code])
            elif is_library(code.co_filename) and code.co_flags & inspect.CO_OPTIMIZED:  # not the body of a class
                regard = code.co_filename.startswith(REGARD)
                smoothed = code.co_name == "cross_entropy" and frame.f_locals.get("label_smoothing")
                if (regard or smoothed or _solves_exercise(code)) and _is_called_by_learner(frame.f_back):
                    # Regard's functions are called through a check of their arguments.
                    called = frame.f_locals.get("function") if code.co_name == "checked" else None
                    name = f"{frame.f_globals.get('__name__', '')}.{code.co_qualname}"
                    self.library[f"{called.__module__}.{called.__qualname__}" if called else name] = None
        elif (
            event == "c_call"
            and SOLVES_EXERCISE.search(_safe_getattr(argument, "__name__") or "")
            and _is_called_by_learner(frame)
        ):
            self.library[argument.__name__] = None


def _solves_exercise(code: CodeType) -> bool:
    path = code.co_qualname.split(".")
    return SOLVES_EXERCISE.search(path[-2 if len(path) > 1 and path[-1] in CALLS else -1]) is not None


def _is_called_by_learner(caller: FrameType | None) -> bool:
    """Return whether a calling frame is the learner's code, directly or through the call of a PyTorch module."""
    while caller is not None and TORCH_MODULES in caller.f_code.co_filename:
        if _solves_exercise(caller.f_code):
            return False  # that function is recorded
        caller = caller.f_back
    return caller is not None and is_learners(caller.f_code.co_filename)
