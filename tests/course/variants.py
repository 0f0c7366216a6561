"""Right solutions and changed ones, generated from `variants.toml`: a table of equivalent pieces of code."""

import ast
import contextlib
import copy
import textwrap
import tomllib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from regard_course.arrays import Library, convert_argument, convert_result, equal_outputs
from regard_course.exercises.exercise import Exercise
from regard_course.inputs import Case
from regard_course.learner_calls import call_function
from tests.course.checking import execute

_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
LIBRARIES: tuple[Library, ...] = ("numpy", "torch")
IMPORTS = {"numpy": "import numpy as np", "torch": "import math\nimport torch\nimport torch.nn.functional as F"}
FORMS = (
    "{head}\n{body}",
    "def _compute({parameters}):\n{body}\n\n{head}\n    return _compute({names})",
    "class Tools:\n    @staticmethod\n    def compute({parameters}):\n{deeper}\n\n"
    "{head}\n    return Tools.compute({names})",
)
"""Forms of a file: a function, a helper and a function, a class and a function."""
ARITHMETIC: dict[type, type] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
COMPARISONS: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}


@dataclass(frozen=True)
class Program:
    """The pieces of code for an exercise in a library."""

    library: Library
    exercise: str
    head: str
    steps: list[list[str]]
    """The pieces of code of each step."""

    def write(self, pieces: list[str], form: int = 0) -> str:
        body = textwrap.indent("\n".join(pieces), "    ")
        parameters = self.head.partition("(")[2].rpartition(")")[0]
        names = ", ".join(part.partition("=")[0] for part in parameters.split(", "))
        deeper = textwrap.indent(body, "    ")
        text = FORMS[form].format(head=self.head, body=body, parameters=parameters, names=names, deeper=deeper)
        return f"{IMPORTS[self.library]}\n\n{text}\n"

    @property
    def first(self) -> list[str]:
        return [pieces[0] for pieces in self.steps]

    def draw(self, count: int) -> list[str]:
        """Return up to `count` different solutions, with every piece before a piece is repeated."""
        generator, found = np.random.default_rng(0), dict[str, None]()
        for trial in range(20 * count):
            pieces = [own[trial % len(own)] if trial < 6 else own[generator.integers(len(own))] for own in self.steps]
            found[self.write(pieces, trial % len(FORMS))] = None
        return list(found)[:count]


def mutants(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield every change of one operator or number: the number of the changed node in `ast.walk`, the change in words,
    and the changed source."""
    tree = ast.parse(source)
    for number, node in enumerate(ast.walk(tree)):
        for change in _changes(node):
            copied = copy.deepcopy(tree)
            target = list(ast.walk(copied))[number]
            vars(target).update(change)
            words = f"{ast.unparse(node)} -> {ast.unparse(ast.fix_missing_locations(target))}"
            yield number, words, ast.unparse(copied)


def _changes(node: ast.AST) -> Iterator[dict[str, object]]:
    if isinstance(node, ast.BinOp):
        if type(node.op) in ARITHMETIC:
            yield {"op": ARITHMETIC[type(node.op)]()}
        elif isinstance(node.op, ast.Pow):
            yield {"op": ast.Mult()}
    elif isinstance(node, ast.Compare):
        if type(node.ops[0]) in COMPARISONS:
            yield {"ops": [COMPARISONS[type(node.ops[0])]()]}
    elif isinstance(node, ast.UnaryOp):
        yield {"op": ast.UAdd() if isinstance(node.op, ast.USub | ast.Invert) else ast.USub()}
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        number: float = node.value  # type: ignore[assignment]
        yield {"value": number + 1 if isinstance(number, int) else 2 * number}


CHANGES: list[Callable[[Any], Any]] = [lambda x: 1e-3 * x, lambda x: 30 * x, np.round, lambda x: 0 * x + 0.5]


def corners(exercise: Exercise) -> list[Case]:
    """Return valid inputs of all kinds: other seeds, and small, large, tied and whole numbers."""
    found = [case for seed in (7, 8, 9) for case in exercise.cases(seed)]
    if exercise.name in ("attention_rollout", "induction_score", "auroc", "patching_effect"):
        return found  # whose arguments are not any numbers
    for case, change in product(found[:3], CHANGES):
        changed = {
            name: change(value) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value
            for name, value in case.arguments.items()
        }
        found.append(Case(name=case.name, arguments=changed, valid_steps=case.valid_steps))
    return found


def changes_the_function(exercise: Exercise, library: Library, right: str, changed: str) -> bool:
    """Return whether a changed solution differs from the right one on a valid input, by more than rounding."""
    cases = corners(exercise)
    mine, theirs = (_answers(exercise, library, source, cases) for source in (right, changed))
    return any(
        known is not None and (other is None or not equal_outputs(case, other, known))
        for case, known, other in zip(cases, mine, theirs, strict=True)
    )


def _answers(exercise: Exercise, library: Library, source: str, cases: list[Case]) -> list[Any]:
    function, found = execute(source)[exercise.name], []
    for case in cases:
        outputs = None
        with contextlib.suppress(Exception), np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arguments = {name: convert_argument(value, library) for name, value in case.arguments.items()}
            outputs = convert_result(call_function(function, arguments), len(exercise.outputs))
        found.append(outputs)
    return found


PROGRAMS = [
    Program(library, exercise, head, steps)
    for library in LIBRARIES
    for exercise, (head, steps) in _TABLE[library].items()
]
