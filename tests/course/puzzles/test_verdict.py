"""The diagnosis of wrong programs, and the messages for files that cannot be run."""

import re
from pathlib import Path

import pytest

from regard.errors import InputError
from regard_course.puzzles import verdict
from regard_course.puzzles.puzzle import PUZZLES
from regard_course.puzzles.verdict import PuzzleReport, _all_repairs, check_file
from regard_course.sandbox import ForkServer
from tests.course.puzzles.conftest import Write
from tests.course.puzzles.planted_programs import IMPORTS, RIGHT, SECOND, THIRD, WRONG

LINE = IMPORTS.count("\n") + 1
"""Line of the first line after the imports."""


def check(path: Path, name: str, server: ForkServer) -> PuzzleReport:
    return check_file(path, PUZZLES[name], server)[1]


@pytest.mark.parametrize(
    ("programs", "least"), [(WRONG, 39), (SECOND, 25), (THIRD, 23)], ids=["first", "second", "third"]
)
def test_mistakes_are_named(
    programs: list[tuple[str, str, str]], least: int, write: Write, fork_server: ForkServer
) -> None:
    """The first message names the mistake of at least `least` programs, of 41, 27 and 27."""
    unnamed = []
    for number, (name, pattern, code) in enumerate(programs):
        report = check(write(f"wrong{number}", code), name, fork_server)
        assert not report.right and report.text, (name, code)
        first = f"{report.trouble} {''.join(map(str, report.mistakes[:1]))}".lower()
        if not re.search(pattern, first):
            unnamed.append((name, pattern, first))
    assert len(programs) - len(unnamed) >= least, unnamed


def test_right_programs_are_not_blamed(write: Write, fork_server: ForkServer) -> None:
    assert len(RIGHT) >= 9 and {name for name, _ in RIGHT} == set(PUZZLES)
    for number, (name, code) in enumerate(RIGHT):
        report = check(write(f"right{number}", code), name, fork_server)
        assert report.right and not report.mistakes, (name, code, report)


def test_report_has_the_smallest_wrong_input(write: Write, fork_server: ForkServer) -> None:
    code = "before = select(indices, indices.map(lambda i: i - 1))\nanswer = aggregate(before, tokens)"
    report = check(write("previous", code), "previous", fork_server)
    assert (report.text, report.expected, report.given, report.correct) == ("a", ["-"], ["∅"], 0)
    assert f"Line {LINE + 1}: A step has no value" in str(report)
    code = "answer = width(select(tokens, tokens) & select(indices, indices, operator.le))"
    report = check(write("histogram", code), "histogram", fork_server)
    assert [mistake.line for mistake in report.mistakes] == [0, LINE], report


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("answer = (tokens", rf"bad.py: has a syntax error: .* \(line {LINE}\)"),
        ("while True: pass", rf"bad.py, line {LINE}: did not end within 1 second: is there an endless loop\?"),
        ("print('x' * 10**9)\nanswer = tokens", rf"bad.py, line {LINE}: prints without end"),
        ("result = tokens", "bad.py: the name `answer` is missing"),
        ("answer = ...", rf"bad.py, line {LINE}: nothing is written yet"),
        ("answer = 3", rf"bad.py, line {LINE}: `answer` is of type int"),
        ("answer = select(tokens, tokens)", rf"bad.py, line {LINE}: `answer` is a selector"),
        ("answer = letters", rf"bad.py, line {LINE}: cannot be run: NameError"),
        ("answer = indices - 1", rf"line {LINE}: cannot be run: TypeError: .*use .map\(lambda"),
        ("answer = tokens[0]", rf"line {LINE}: cannot be run: TypeError: .*use .map\(lambda"),
        ("answer = width(tokens)", rf"line {LINE}: an expression is not a selector"),
        ("answer = width(select(tokens, 'a'))", rf"line {LINE}: 'a' is not an expression"),
        ("answer = aggregate(select(indices, 0), tokens)", rf"line {LINE}: 0 is not .* write constant\(0\)"),
        ("answer = elementwise('a', tokens)", rf"line {LINE}: 'a' is not a function"),
        ("answer = tokens.map(list)", rf"line {LINE}: .* is not a suitable value"),
        ("answer = tokens.map(lambda t: 'x' * 10**6)", rf"line {LINE}: .* is not a suitable value"),
        ("answer = average(select_all(), tokens)", rf"line {LINE}: average needs whole numbers, not 'a'"),
        ("import regard_lab.programs.library", rf"line {LINE}: reads the solutions"),
        ("import regard_course.puzzles.puzzle", rf"line {LINE}: reads the solutions"),
        ("import os; os.system('ls')", rf"line {LINE}: starts a process"),
        ("from regard_lab.programs.language import steps\nanswer = steps", rf"line {LINE + 1}: .*written"),
        (
            "pair = elementwise(lambda a, b: (a, b), indices, indices)\n"
            "pair = elementwise(lambda a, b: (a, b), pair, pair)\nanswer = pair",
            rf"line {LINE + 1}: an expression has more than 128 possible values",
        ),
    ],
)
def test_file_that_cannot_be_run_is_one_line(
    code: str, message: str, write: Write, fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "while True" in code:
        monkeypatch.setattr(verdict, "SECONDS", 1.0)
    with pytest.raises(InputError, match=message) as raised:
        check(write("bad", code), "previous", fork_server)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("answer = aggregate(select_all(), tokens)", "selects several steps, with the values 'a', 'b'"),
        ("answer = tokens.map(lambda t: {'a': 1}[t])", r"the function fails for \('b'\): KeyError: 'b'"),
        ("answer = elementwise(lambda t: t, tokens, indices)", "the function fails for .*TypeError"),
        ("answer = width(select(tokens, tokens, lambda k: True))", "the function fails for .*TypeError"),
    ],
)
def test_program_that_fails_for_a_text_is_one_line(
    code: str, message: str, write: Write, fork_server: ForkServer
) -> None:
    report = check(write("bad", code), "previous", fork_server)
    assert re.match(f"line {LINE}: .*{message}", report.trouble), report.trouble
    assert not report.given and report.text


@pytest.mark.parametrize(
    ("code", "kinds"),
    [
        ("answer = aggregate(select(indices, indices.map(lambda i: 2 - i)), tokens)", False),
        ("answer = aggregate(select(tokens, indices.map(lambda i: 2 - i)), tokens)", True),
        ("answer = aggregate(select(indices, tokens), tokens)", True),
        ("answer = aggregate(select(tokens, tokens), tokens)", False),
    ],
    ids=["two places", "letter and place", "place and letter", "two letters"],
)
def test_values_of_two_kinds_are_named_only_for_two_kinds(
    code: str, kinds: bool, write: Write, fork_server: ForkServer
) -> None:
    puzzle = PUZZLES["reverse"]
    program = verdict.load_program(write("kinds", code), puzzle.alphabet, puzzle.longest, fork_server)
    words = [repair.words for repair in _all_repairs(program, puzzle, {})]
    assert any("two kinds" in text for text in words) == kinds
    assert not any("no step comes before" in text for text in words)
