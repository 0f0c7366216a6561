"""Which objects of a learner's file answer which exercise, and what else runs when they do.

Only what is written in the file is an answer: an imported function is not, whatever it is called.
"""

import ast
import dis
import functools
import inspect
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

from regard.course.exercises import EXERCISES, Exercise
from regard.course.exercises.exercise import plain_name

PLACES = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
OPTIONS = ("axis", "dim", "keepdims", "keepdim", "dtype", "eps")
"""Parameters of basic functions, which take none of an exercise's inputs."""
INSIDE = (
    "__wrapped__",
    "__func__",
    "func",
    "pyfunc",
    "py_func",
    "_orig_mod",
    "_torchdynamo_orig_callable",
    "_torchdynamo_inline",
)
"""Where decorators, partial functions, methods and compilers keep the function that they were given."""
DEPTH = 4
"""Wrappers inside of wrappers that are opened."""
WHOLE = re.compile(
    r"attention|\btransformer(encoder|decoder)?(layer)?\b|sinusoid|masked.?softmax|beam.?search|greedy", re.I
)
"""Names of library functions that do the work of an exercise; softmax and matmul do not."""
COURSE = Path(__file__).parent
SOLUTIONS = ("reference", "mistakes")
"""Folders of the course whose functions do an exercise's work; its other code runs when an answer is called."""
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib")})


@dataclass(frozen=True)
class Candidates:
    """What a learner's file has for the exercises."""

    names: Mapping[str, Any]
    """All names of the file's module."""
    own: dict[str, Any]
    """Callable objects that are written in the file, by name."""
    exercises: dict[str, str] = field(default_factory=dict)
    """Which of them answers which exercise."""
    passed_over: dict[str, list[str]] = field(default_factory=dict)
    """Other names that would answer an exercise too."""
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Exercises that only an imported object would answer: its name, and the module it comes from."""

    @property
    def replaced(self) -> list[str]:
        """Functions of other modules that the file puts its own in the place of, as in `json.dumps = mine`."""
        found: dict[str, None] = {}
        for step in ast.walk(_tree(self.names)):
            for place in step.targets if isinstance(step, ast.Assign) else ():
                if isinstance(place, ast.Attribute) and isinstance(place.value, ast.Name):
                    module = self.names.get(place.value.id)
                    if inspect.ismodule(module):
                        found[f"{module.__name__}.{place.attr}"] = None
        return list(found)

    @property
    def calls(self) -> dict[str, list[str]]:
        """Names of the file that each answer uses, directly or through others."""
        return {exercise: sorted(self.reached(name)) for exercise, name in self.exercises.items()}

    def reached(self, name: str) -> set[str]:
        """Return the other names of the file that an object uses, directly or through others."""
        found, waiting = set[str](), [name]
        while waiting:
            for code in _codes(self.own[waiting.pop()], self.names):
                for step in dis.get_instructions(code):
                    used = step.argval
                    if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and used in self.own and used not in found:
                        found.add(used)
                        waiting.append(used)
        return {each for each in found if self.own[each] is not self.own[name]}


def find_candidates(names: Mapping[str, Any], exercise: Exercise | None) -> Candidates:
    """Return which names of a module answer which exercise: that one alone where one is asked for.

    The exercise's own name comes before other names for it. Where one exercise is asked for and no name fits,
    the file's only function or class is taken, helpers of it aside.
    """
    public = {name: value for name, value in names.items() if callable(value) and not name.startswith("_")}
    own = {name: value for name, value in public.items() if is_written_in(value, names)}
    found = Candidates(names, own)
    for each in EXERCISES if exercise is None else (exercise,):
        fitting = sorted(
            (name for name in own if each.answers_to(name) and (name == each.name or fits(own[name], each))),
            key=lambda name: _rank(name, own[name], each),
        )
        if fitting:
            found.exercises[each.name] = fitting[0]
            others = [name for name in fitting[1:] if own[name] is not own[fitting[0]]]
            if others:
                found.passed_over[each.name] = others
    if exercise is not None and not found.exercises:
        called = [name for name in own if exercise.answers_to(name)]
        called = called or [name for name in own if not any(name in found.reached(other) for other in own)]
        if len(called) == 1:
            found.exercises[exercise.name] = called[0]
    foreign = {name: value for name, value in public.items() if name not in own}
    for each in EXERCISES if exercise is None else (exercise,):
        exact = [name for name in foreign if plain_name(name) == plain_name(each.name)]
        near = [] if found.exercises else [name for name in foreign if each.answers_to(name)]
        if each.name not in found.exercises and (exact or near):
            name = (exact or near)[0]
            found.imported[each.name] = name, _origin(name, foreign[name], names)
    return found


def _rank(name: str, thing: Any, exercise: Exercise) -> tuple[int, bool]:
    spelling = 0 if name == exercise.name else 1 if plain_name(name) == plain_name(exercise.name) else 2
    return spelling, not isinstance(thing, type) and not inspect.isroutine(thing)


def fits(thing: Any, exercise: Exercise) -> bool:
    """Whether a function takes what an exercise gives, or a class is built of what it has."""
    try:
        own = [each for each in inspect.signature(thing).parameters.values() if each.kind in PLACES]
    except (TypeError, ValueError):
        return True
    needed = sum(each.default is each.empty for each in own)
    if isinstance(thing, type):
        return needed <= len(exercise.builds)
    wanted = inspect.signature(exercise.reference).parameters.values()
    room = sum(each.name not in OPTIONS for each in own)
    return needed <= len(wanted) and sum(each.default is each.empty for each in wanted) <= room


def is_written_in(thing: Any, names: Mapping[str, Any]) -> bool:
    """Whether a function, or a method of a class, is written in the module that has these names.

    A class that only gives another name to an imported one has no code of its own.
    """
    return next(_codes(thing, names), None) is not None


def _codes(thing: Any, names: Mapping[str, Any], depth: int = DEPTH) -> Iterator[CodeType]:
    """Yield the code of an object that is written in the module, that of decorated functions included."""
    code = _attribute(thing, "__code__")
    if isinstance(code, CodeType) and (
        _attribute(thing, "__globals__") is names or code.co_filename == names.get("__file__")
    ):
        yield from _nested(code)
    if not depth:
        return
    inside = [_attribute(thing, name) for name in INSIDE]
    if isinstance(thing, type):
        inside += [
            value for each in thing.__mro__ for value in vars(each).values() if not isinstance(value, type)
        ]
    elif isinstance(code, CodeType):
        cells = _attribute(thing, "__closure__") or ()
        inside += [_attribute(cell, "cell_contents") for cell in cells]
    elif not inspect.isroutine(thing) and not inspect.ismodule(thing):
        inside.append(type(thing))
    if isinstance(thing, property):
        inside.append(thing.fget)
    for value in inside:
        if callable(value) or isinstance(value, staticmethod | classmethod | property):
            yield from _codes(value, names, depth - 1)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _attribute(thing: Any, name: str) -> Any:
    try:
        return getattr(thing, name, None)
    except Exception:  # an object of the learner's may do anything here; an empty cell raises ValueError
        return None


def _module(thing: Any) -> str:
    found = _attribute(thing, "__module__") or _attribute(type(thing), "__module__")
    return found if isinstance(found, str) else ""


def _origin(name: str, thing: Any, names: Mapping[str, Any]) -> str:
    """Return the module that a name was imported from, as the file says it, or else as the object does."""
    for step in ast.walk(_tree(names)):
        if isinstance(step, ast.ImportFrom) and any((part.asname or part.name) == name for part in step.names):
            return "." * step.level + (step.module or "")
    if isinstance(thing, type):
        bases = [each for each in thing.__mro__ if each.__module__ != names.get("__name__")]
        return _module(bases[0])
    inner = next((value for value in (_attribute(thing, each) for each in INSIDE) if callable(value)), thing)
    return re.split(r"\._", _module(inner))[0] or "a library"


def _tree(names: Mapping[str, Any]) -> ast.Module:
    """Return a module's file, parsed; an empty one where there is no file any more."""
    try:
        return ast.parse(Path(names["__file__"]).read_text(encoding="utf-8"))
    except (KeyError, TypeError, OSError, ValueError, SyntaxError):
        return ast.Module([], [])


@functools.cache
def is_library(filename: str) -> bool:
    """Whether code of this file belongs to an installed package or to Regard, and is no learner's."""
    path = Path(filename)
    if path.is_relative_to(COURSE):
        return path.relative_to(COURSE).parts[0] in SOLUTIONS
    return path.is_relative_to(COURSE.parent) or filename.startswith(LIBRARIES)


class Watch:
    """Notes which of a file's functions run, and which library functions do the work of an exercise.

    As in `with Watch(candidates) as watch: ...`; then `watch.names`, `watch.library`.
    """

    def __init__(self, found: Candidates) -> None:
        self.names: set[str] = set()
        self.library: dict[str, None] = {}
        self._codes = {code: name for name, thing in found.own.items() for code in _codes(thing, found.names)}
        self._inside: FrameType | None = None

    def __enter__(self) -> "Watch":
        sys.setprofile(self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        sys.setprofile(None)
        self._inside = None

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            code = frame.f_code
            if code in self._codes:
                self.names.add(self._codes[code])
            elif self._inside is None and is_library(code.co_filename):
                ours = Path(code.co_filename).is_relative_to(COURSE.parent)
                smoothed = code.co_name == "cross_entropy" and frame.f_locals.get("label_smoothing")
                if ours or smoothed or WHOLE.search(code.co_qualname):
                    self._inside = frame
                    self.library[f"{frame.f_globals.get('__name__', '')}.{code.co_qualname}"] = None
        elif event == "return" and frame is self._inside:
            self._inside = None
        elif event == "c_call" and self._inside is None and WHOLE.search(_attribute(argument, "__name__") or ""):
            self.library[argument.__name__] = None
