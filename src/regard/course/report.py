"""What a check found, as data that tells of itself."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from regard.course.diagnosis import SmallExample
from regard.result import Result

Verdict = Literal["right", "wrong", "failed", "not compared"]
State = Literal["right", "wrong", "stopped", "not begun", "helper", "imported"]
"""A helper is a function that another answer uses and that does not answer the exercise it is named like."""
UNDECIDED = ("not begun", "helper", "imported")
"""States that do not decide whether a file is right."""
SIGNS = {"right": "✓", "wrong": "✗", "failed": "✗", "not compared": "-"}
STYLES = {
    "right": "green",
    "wrong": "red",
    "stopped": "red",
    "not begun": "dim",
    "helper": "dim",
    "imported": "dim",
}
COUNTS = {2: "Two", 3: "Three"}
LINES, PRINTS = 10, 1_000
"""Lines and characters of what the learner's code printed that are shown."""


@dataclass(frozen=True, kw_only=True)
class CaseReport:
    """How one input went."""

    name: str
    verdict: Verdict
    words: str = ""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A usual mistake that would have answered the same."""

    name: str
    did: str
    """What was done."""
    instead: str
    """What to do."""
    paper: str
    """The line that it departs from."""
    example: SmallExample | None
    """A small input on which it shows."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """One explanation of wrong answers: one mistake, or two or three together."""

    findings: list[Finding]


@dataclass(frozen=True, kw_only=True)
class ExerciseReport:
    """How one exercise went."""

    exercise: str
    title: str
    object: str
    """What it is called in the learner's code."""
    state: State
    cases: list[CaseReport] = field(default_factory=list)
    diagnoses: list[Diagnosis] = field(default_factory=list)
    """Every explanation there is; where they are several, they answer alike on all inputs."""
    notes: list[str] = field(default_factory=list)
    trouble: str = ""
    """Why it was stopped, or is no answer."""
    lines: list[str] = field(default_factory=list)
    """The learner's own lines in which that happened."""
    ending: str = ""
    """Where to look, of a wrong answer that no diagnosis explains."""


@dataclass(frozen=True, kw_only=True, repr=False)
class CheckReport(Result):
    """What was found in a learner's code."""

    name: str
    """The file, or the object."""
    exercises: list[ExerciseReport]
    prints: str = ""
    """What the code printed, cut."""

    @property
    def right(self) -> bool:
        """Whether everything that was begun is right, and something was."""
        begun = [each for each in self.exercises if each.state not in UNDECIDED]
        return bool(begun) and all(each.state == "right" for each in begun)

    def summary(self) -> str:
        """Say how each exercise went."""
        return f"{self.name}: " + ", ".join(f"{each.exercise} {each.state}" for each in self.exercises[:4])

    def json(self) -> dict[str, Any]:
        """Return all as plain values, and whether all is right."""
        return {**super().json(), "right": self.right}

    def table(self) -> RenderableType:
        """Return every exercise with what was tried, what went wrong and why."""
        parts: list[RenderableType] = []
        for each in self.exercises:
            parts += [_exercise(each), ""]
        if self.prints:
            parts += ["Your code printed:", Padding(_text(self.prints), (0, 0, 0, 2)), ""]
        return Group(*parts[:-1])


def _text(words: str, style: str = "") -> Text:
    """Return text of a learner's as a terminal is to show it: control characters are escaped."""
    shown = (each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in words)
    return Text("".join(shown), style=style)


def _exercise(report: ExerciseReport) -> RenderableType:
    called = f" ({report.object})" if report.object and report.object != report.exercise else ""
    head = _text(f"{report.exercise}{called}: ", "bold")
    head.append(report.state, style=STYLES[report.state])
    if report.trouble:
        head.append(_text(f", {report.trouble}"))
    parts: list[RenderableType] = [head, *(_text(f"    {line}") for line in report.lines)]
    if report.cases:
        parts.append(_cases(report.cases))
    parts += [Text(f"  Note: {note}.") for note in report.notes]
    if len(report.diagnoses) > 1:
        parts.append(Text("  Each of these would answer exactly as your code does:"))
    for each in report.diagnoses:
        parts.append(_diagnosis(each))
    if report.ending:
        parts.append(Text(f"  {report.ending}"))
    return Group(*parts)


def _cases(cases: list[CaseReport]) -> RenderableType:
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), pad_edge=False)
    for _ in range(4):
        table.add_column(overflow="fold")
    if len({(each.verdict, each.words) for each in cases}) == 1 and cases[0].verdict == "failed":
        cases = [dataclasses.replace(cases[0], name="on every input")]
    for each in cases:
        style = "green" if each.verdict == "right" else "" if each.verdict == "not compared" else "red"
        table.add_row(" ", Text(SIGNS[each.verdict], style=style), each.name, _text(each.words))
    return table


def _diagnosis(diagnosis: Diagnosis) -> RenderableType:
    parts: list[RenderableType] = []
    if len(diagnosis.findings) > 1:
        parts.append(Text(f"  {COUNTS[len(diagnosis.findings)]} mistakes together:"))
    for each in diagnosis.findings:
        parts.append(Padding(Text(f"→ {each.did}", style="bold"), (0, 0, 0, 2)))
        lines = [Text(each.instead), Text(each.paper, style="dim")]
        if each.example is not None:
            lines.append(Text(f"{each.example.exercise}, {each.example.inputs}:"))
            lines.append(Text(f"  so      {each.example.wrong}"))
            lines.append(Text(f"  should  {each.example.right}"))
        parts.append(Padding(Group(*lines), (0, 0, 0, 4)))
    return Group(*parts)
