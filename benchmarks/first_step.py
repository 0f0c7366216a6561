"""How often `regard check` names the first quantity that differs, without its known mistakes.

Run it in the folder of the repository, with a set of right solutions: `python -m benchmarks.first_step tests`
(`tests/course/variants.toml`, the first pieces), `others` (other pieces) or `hints` (the worked solutions of the
exercises); a number after it takes each n-th change only. Each operator and each number of a solution is changed
once. A changed solution that gives other results counts, and is right if the report names the quantity that the
changed part computes: the first one in whose computation it takes part.

To find it, each expression of the right solution records its values. An expression computes a quantity if its value
is the quantity, and the value of no expression in it is. A part that belongs to none of them belongs to a variable, or
to a function, and to what is computed from it.
"""

import ast
import copy
import dataclasses
import re
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from regard_course.arrays import Library, convert_argument, guess_libraries
from regard_course.exercises.course import EXERCISES
from regard_course.exercises.exercise import Exercise
from regard_course.first_step import QUANTITIES, _is_usable, _Recording, record_quantities
from regard_course.learner_calls import call_function
from regard_course.recording import ArrayRecorder
from tests.course.checking import check_source, execute
from tests.course.variants import PROGRAMS, changes_the_function, mutants

SPECIAL = ("one ", "a batch of one", "by hand", "equal ", "a single token", "large ", "small ", "mostly")
"""Beginnings of the names of inputs on which different quantities are equal."""
RECORDED = (ast.BinOp, ast.UnaryOp, ast.Call, ast.Name, ast.Subscript, ast.IfExp, ast.Attribute, ast.GeneratorExp)
Names = set[str]


class _Recorded(ast.NodeTransformer):
    """Calls `record(number, value)` for each expression."""

    def __init__(self, numbers: dict[ast.AST, int]) -> None:
        self.numbers = numbers

    def visit(self, node: ast.AST) -> Any:
        new: Any = self.generic_visit(node)
        if isinstance(node, RECORDED) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            return ast.Call(ast.Name("record", ast.Load()), [ast.Constant(self.numbers[node]), new], [])
        return new


class Labels:
    """The quantities of the parts of a right solution, by their numbers in `ast.walk`."""

    def __init__(self, source: str, exercise: Exercise, library: Library) -> None:
        self.nodes = list(ast.walk(ast.parse(source)))
        self.numbers = {node: number for number, node in enumerate(self.nodes)}
        self.parents = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self.answer, self.order, self.found = exercise.name, list[str](), list[dict[int, Names]]()
        copied = copy.deepcopy(self.nodes[0])
        wrapped = _Recorded(dict(zip(ast.walk(copied), range(len(self.nodes)), strict=True))).visit(copied)
        arrays: dict[int, ArrayRecorder] = defaultdict(ArrayRecorder)

        def record(number: int, value: Any) -> Any:
            arrays[number].add(value)
            return value

        names: dict[str, Any] = {"record": record}
        exec(compile(ast.fix_missing_locations(wrapped), "right.py", "exec"), names)
        cases = [case for case in exercise.cases(0) if not case.name.startswith(SPECIAL)]
        for case in sorted(cases, key=lambda case: case.arguments.get("mask") is None)[:4]:
            arrays.clear()
            values = {name: convert_argument(value, library) for name, value in case.arguments.items()}
            with np.errstate(all="ignore"):
                call_function(names[exercise.name], values)
            matches: dict[int, Names] = defaultdict(set)
            for item in record_quantities(exercise, case):
                self.order += [item.words] if item.words not in self.order else []
                ordered = bool(QUANTITIES.get(item.step, {}).get("ordered"))
                for number, recorder in arrays.items() if _is_usable(item.value) else ():
                    if _Recording(list(recorder.arrays.values())).contains(item.value, ordered=ordered):
                        matches[number].add(item.words)
            self.found.append(matches)

    def __getitem__(self, number: int) -> Names:
        return self._of(self.nodes[number]) or self._after(self._statement(self.nodes[number]), frozenset())

    def _statement(self, node: ast.AST) -> ast.stmt:
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def _of(self, node: ast.AST, *, new: bool = True) -> Names:
        """Return the quantities that are first computed by an expression around a part. new: whether the part itself
        is computed here."""
        path, start = set[ast.AST](), node
        while not isinstance(node, ast.stmt):
            path.add(node)
            others = [part for part in ast.walk(node) if part not in path or (part is start and not new)]
            names = {
                name
                for matches in self.found
                for name in matches[self.numbers[node]] - set().union(*(matches[self.numbers[part]] for part in others))
            }
            if names:
                return names
            node = self.parents[node]
        return set()

    def _after(self, statement: ast.stmt, seen: frozenset[ast.AST]) -> Names:
        """Return the first quantities that are computed from what a statement changes."""
        inside = set(ast.walk(statement))
        changed, filled = set[str](), set[str]()
        for node in inside:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                changed.add(node.id)
            called = isinstance(node, ast.Attribute) and node.attr == "append"
            stored = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
            if (called or stored) and isinstance(node.value, ast.Name):  # type: ignore[attr-defined]
                filled.add(node.value.id)  # type: ignore[attr-defined]
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                filled.add(node.target.id)
        parent = self.parents[statement]
        if isinstance(statement, ast.Return) and isinstance(parent, ast.FunctionDef) and parent.name != self.answer:
            changed.add(parent.name)
        stores = [node for node in self.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
        results = []
        for node in self.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in changed | filled:
                use, function = self._statement(node), node.id == getattr(parent, "name", "")
                lines = [store.lineno for store in stores if store.id == node.id and store.lineno > statement.lineno]
                before, after = use.lineno < statement.lineno, use.lineno > min(lines, default=node.lineno)
                if use is statement or use in seen or ((before or after) and not function):
                    continue
                names = self._of(node, new=node.id in filled) or self._after(use, seen | {statement})
                results += [names] if names else []
        returned = {name for name in self.order if name.startswith("the returned")}
        return min(results, key=lambda names: min(map(self.order.index, names)), default=returned)


def solutions(kind: str) -> Iterator[tuple[str, str]]:
    """Yield the exercise and the source of right solutions."""
    if kind == "hints":
        for exercise in EXERCISES:
            text = Path(f"src/regard_course/hints/{exercise.name}.md").read_text(encoding="utf-8")
            if not exercise.call:
                yield exercise.name, re.findall(r"```python\n(.*?)```", text, re.DOTALL)[-1]
    generator = np.random.default_rng(5)
    for program in PROGRAMS if kind != "hints" else ():
        others = [pieces[1:] or pieces for pieces in program.steps]
        drawn = [pieces[generator.integers(len(pieces))] for pieces in others]
        yield program.exercise, program.write(program.first if kind == "tests" else drawn)


def main() -> None:
    kind, every, counts = sys.argv[1], int(sys.argv[2] if sys.argv[2:] else 1), Counter[str]()
    warnings.simplefilter("ignore")
    for name, written in solutions(kind):
        source = ast.unparse(ast.parse(written))
        (exercise,) = (dataclasses.replace(item, mistakes=()) for item in EXERCISES if item.name == name)
        library = guess_libraries(execute(source)[name])[0]
        labels = Labels(source, exercise, library)
        for number, words, changed in list(mutants(source))[every - 1 :: every]:
            if not changes_the_function(exercise, library, source, changed):
                continue
            report = check_source(changed, exercise)
            named = report.first_step.did.partition(": ")[2][:-1] if report.first_step else ""
            right = named in labels[number]
            kinds = ("right step" if right else "wrong step") if named else "no step"
            counts["accepted" if report.state == "right" else kinds] += 1
            if not right:
                shown = named or report.state
                sys.stdout.write(f"{library} {name}: {words}; {shown}, not {sorted(labels[number])}\n")
    rejected = sum(counts.values()) - counts["accepted"]
    shares = (
        f"{rejected / sum(counts.values()):.1%} rejected, {counts['right step'] / rejected:.1%} with the right step"
    )
    sys.stdout.write(f"{dict(counts)}: {shares}\n")


if __name__ == "__main__":
    main()
