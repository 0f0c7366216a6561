"""The puzzles: their stubs, hints and solutions."""

import ast
import re

import pytest

from regard.errors import InputError
from regard_course.puzzles.models import compile_puzzle
from regard_course.puzzles.puzzle import PUZZLES, find_puzzle
from regard_course.puzzles.verdict import check_file
from regard_course.sandbox import ForkServer
from tests.course.puzzles.conftest import Write


def solution(name: str) -> str:
    [code] = re.findall(r"```python\n(.*?)```", PUZZLES[name].hints[3], re.DOTALL)
    return str(code)


def test_right_answers_by_hand() -> None:
    by_hand = {
        "first": ("cab", "ccc"),
        "previous": ("cab", "-ca"),
        "count": ("abca", "1112"),
        "histogram": ("abca", "2112"),
        "reverse": ("aabc", "cbaa"),
        "rotate": ("abca", "aabc"),
        "sort": ("cabb", "abbc"),
        "balanced": ("())(", "nynn"),
        "induction": ("abcab", "---bc"),
    }
    assert list(by_hand) == list(PUZZLES) and len(PUZZLES) == 9
    for name, (text, answer) in by_hand.items():
        assert "".join(PUZZLES[name].expected[text]) == answer, name


@pytest.mark.parametrize("name", PUZZLES)
def test_solution_is_right_and_its_model_is_exact(name: str, write: Write, fork_server: ForkServer) -> None:
    puzzle = PUZZLES[name]
    program, report = check_file(write(name, solution(name)), puzzle, fork_server)
    assert report.right, report
    compiled = compile_puzzle(puzzle, program)
    assert compiled.count_right(compiled.compiled.model) == len(puzzle.inputs)
    assert set(compiled.heads.values()) == set(program.selectors)


@pytest.mark.parametrize("name", PUZZLES)
def test_stub_begins_a_program(name: str) -> None:
    stub, hints = PUZZLES[name].stub, PUZZLES[name].hints
    assert ast.parse(stub) and stub.endswith("\nanswer = ...\n")
    assert all(len(line) <= 114 for line in stub.splitlines())
    assert len(hints) == 4 and all(hints)


def test_unknown_puzzle() -> None:
    with pytest.raises(InputError, match=r"puzzle 'revers' is unknown.*did you mean reverse\?"):
        find_puzzle("revers")
