"""The language: values by hand, errors, and compiled random programs."""

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from regard.errors import InputError
from regard_lab.programs.compiler import compile_program
from regard_lab.programs.language import (
    Expression,
    Program,
    aggregate,
    average,
    constant,
    elementwise,
    evaluate,
    indices,
    select,
    select_all,
    steps,
    tokens,
    width,
    written,
)
from regard_lab.programs.library import PROGRAMS
from tests.lab.programs.resampling import make_inputs

EXPECTED: dict[str, tuple[str, Any]] = {
    "previous": ("cab", [None, "c", "a"]),
    "repeated": ("abca", ["n", "n", "n", "y"]),
    "compare": ("acca", [">", "=", "<", "="]),
    "most-frequent": ("bcca", ["b", "b", "c", "c"]),
    "depth": ("(()))", ["1", "2", "1", "0", "-"]),
    "balanced": ("())(", ["n", "y", "n", "n"]),
    "induction": ("abcabb", [None, None, None, "b", "c", "b"]),
    "lookup": ("x1yx2x", [None, None, None, "1", None, "2"]),
    "bigram": ("abaab", [None, None, None, None, "a"]),
    "palindrome": ("abcba", [True]),
    "majority": ("abccb", ["b"]),
    "distinct": ("abca", [3]),
    "signal": ("abaa", [2]),
    "sorted": ("cab", ["a", "b", "c", None, None, None]),
    "reverse": ("abc", "cba"),
    "delete": ("abca", "bc"),
    "unique": ("abad", "abd"),
    "rotate": ("abc", "cab"),
    "double": ("ab", "aabb"),
    "unary": ("baca", "aa"),
    "swap": ("ab/a", "a/ab"),
    "checksum": ("caa", "caa0"),
}  # Answers by hand


@pytest.mark.parametrize("name", EXPECTED)
def test_programs_answer_as_by_hand(name: str) -> None:
    text, expected = EXPECTED[name]
    program = PROGRAMS[name]
    assert (program.write(text) if program.family == "encoder-decoder" else program.answer(text)) == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: elementwise(operator.add, indices, steps), "of the sides input, output"),
        (lambda: aggregate(select(indices, steps), written), "values of the side output do not fit"),
        (lambda: select_all() & select_all("input", "output"), "cannot be joined"),
        (lambda: evaluate(aggregate(select_all(), tokens), "ab"), "'a', 'b': select one step, or use average"),
        (lambda: _program("encoder", tokens), "has a value at each output step"),
        (
            lambda: compile_program(_program("encoder", width(select_all("input", "output")))),
            "computes on output steps",
        ),
        (
            lambda: compile_program(_program("encoder-decoder", aggregate(select(steps, steps), written))),
            "use functions of",
        ),
        (lambda: compile_program(_program("decoder-only", indices.map(lambda i: i + 8))), "answers '10': map answers"),
        (
            lambda: compile_program(_program("encoder-decoder", steps.map(str))),
            "can write '0', '1', .*, but its symbols are 'ab'",
        ),
        (
            lambda: _program("encoder-decoder", aggregate(select(indices, constant(0, "output")), tokens)).write("a"),
            "writes more than 4",
        ),
    ],
    ids=[
        *("sides", "values", "join", "several", "side", "encoder", "written", "symbols", "written-symbols"),
        "endless",
    ],
)
def test_errors_name_the_way_out(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def _program(family: Any, result: Expression) -> Program:
    return Program("own", "", "ab", result, family=family, longest=4, outputs=4)


def _symbols(expressions: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    """Return strategies of expressions whose values are "a", "b" or None, made of other such expressions."""
    number = expressions.map(lambda symbols: width(select(symbols, tokens)))
    mean = expressions.map(lambda symbols: average(select(symbols, constant("a")), indices))
    read = st.builds(
        lambda values, distance: aggregate(select(indices, indices.map(lambda i: i - distance)), values),
        expressions,
        st.integers(-1, 2),
    )
    nth = st.builds(
        lambda symbols, count: aggregate(select(symbols, tokens) & select(indices, count), symbols), expressions, number
    )
    return st.one_of(
        number.map(lambda count: count.map(lambda n: "ab"[n % 2])),
        mean.map(lambda value: value.map(lambda m: "a" if m > 1 else "b")),
        read,
        nth,
        read.map(lambda symbols: symbols.otherwise("b")),
        st.builds(lambda x, y: elementwise(lambda a, b: "a" if a == b else None, x, y), expressions, read),
    )


@given(result=st.recursive(st.just(tokens), _symbols, max_leaves=3), causal=st.booleans())
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@torch.inference_mode()
def test_compiled_expressions_are_those_of_the_interpreter(result: Expression, causal: bool) -> None:
    if causal:
        program = _program("decoder-only", result)
    else:
        program = _program("encoder", aggregate(select(indices, steps), result))
    compiled = compile_program(program)
    for length in range(1, 5):
        arguments, answers, is_answer = make_inputs(compiled, program.texts(length))
        predicted = compiled.model(*arguments).argmax(-1)
        assert torch.equal(predicted[is_answer], answers[is_answer])


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: select("a", tokens), "'a' is not an expression"),  # type: ignore[arg-type]
        (lambda: select(tokens, tokens, True), "'True' is not a function"),  # type: ignore[arg-type]
        (lambda: aggregate(tokens, tokens), "an expression is not a selector"),  # type: ignore[arg-type]
        (lambda: width(False), "'False' is not a selector"),  # type: ignore[arg-type]
        (lambda: average(select(tokens, tokens), 1), "^1 is not an expression: write constant\\(1\\)"),  # type: ignore[arg-type]
        (lambda: elementwise("a", tokens), "'a' is not a function"),  # type: ignore[arg-type]
        (lambda: tokens.map(3), "'3' is not a function"),  # type: ignore[arg-type]
    ],
)
def test_parts_of_another_kind(write: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        write()


def test_program_with_too_many_values() -> None:
    many = elementwise(lambda token, index: (token, index), tokens, indices)
    for number in range(3):
        many = elementwise(lambda old, index, number=number: (old, index, number), many, indices)
    program = Program("many", "", "abc", many.map(lambda _: "x"), family="decoder-only", longest=6)
    with pytest.raises(InputError, match="program many needs more than 2048 dimensions"):
        compile_program(program)
