"""Right solutions and changed ones, generated from `variants.toml`: a table of equivalent pieces of code."""

import ast
import copy
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard_course.arrays import Library

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
    """Name of each step, and its pieces of code."""

    def write(self, pieces: list[str], form: int = 0) -> str:
        body = textwrap.indent("\n".join(pieces), "    ")
        parameters = self.head.partition("(")[2].rpartition(")")[0]
        names = ", ".join(part.partition("=")[0] for part in parameters.split(", "))
        deeper = textwrap.indent(body, "    ")
        text = FORMS[form].format(head=self.head, body=body, parameters=parameters, names=names, deeper=deeper)
        return f"{IMPORTS[self.library]}\n\n{text}\n"

    @property
    def first(self) -> list[str]:
        return [pieces[0] for _, *pieces in self.steps]

    def draw(self, count: int) -> list[str]:
        """Return up to `count` different solutions, with every piece before a piece is repeated."""
        generator, found = np.random.default_rng(0), dict[str, None]()
        for trial in range(20 * count):
            pieces = [
                own[trial % len(own)] if trial < 6 else own[generator.integers(len(own))] for _, *own in self.steps
            ]
            found[self.write(pieces, trial % len(FORMS))] = None
        return list(found)[:count]

    def mutants(self) -> Iterator[tuple[str, str, str]]:
        """Yield the step, the change and the source of the first solution with one operator or number changed."""
        for index, (step, *_) in enumerate(self.steps):
            function = ast.parse("def f():\n" + textwrap.indent(self.first[index], "    "))
            for words, changed in _change(function):
                body = textwrap.dedent(changed.partition("\n")[2])
                yield step, words, self.write([*self.first[:index], body, *self.first[index + 1 :]])


def _change(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield every change of one operator or number, in words, and the changed code."""
    for number, node in enumerate(ast.walk(tree)):
        for change in _changes(node):
            copied = copy.deepcopy(tree)
            target = list(ast.walk(copied))[number]
            vars(target).update(change)
            yield f"{ast.unparse(node)} -> {ast.unparse(ast.fix_missing_locations(target))}", ast.unparse(copied)


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


PROGRAMS = [
    Program(library, exercise, head, steps)
    for library in LIBRARIES
    for exercise, (head, steps) in _TABLE[library].items()
]
