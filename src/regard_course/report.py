"""The report of a check, as data with a printed table."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from xml.etree import ElementTree

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from regard.arguments import public
from regard.errors import escape_controls
from regard.result import Result
from regard_course.diagnosis import SmallExample
from regard_course.translated import LANGUAGE, say, speak

Verdict = Literal["right", "wrong", "failed", "not compared"]
State = Literal["right", "wrong", "stopped", "not begun", "helper", "imported", "note"]
"""The result of a helper, which another answer uses, or of a note, a remark on a file, decides nothing."""
UNDECIDED = ("not begun", "helper", "imported", "note")
"""States of answers that do not count as errors of a file."""
SIGNS = {"right": "✓", "wrong": "✗", "failed": "✗", "not compared": "-"}
STYLES = {"right": "green", "wrong": "red", "stopped": "red", **dict.fromkeys(UNDECIDED, "dim")}
MAX_LINES, MAX_CHARACTERS = 10, 1_000
"""Limits of the output of the learner's code in the report."""


@public
@dataclass(frozen=True, kw_only=True)
class CaseReport:
    """Result of one input."""

    name: str
    verdict: Verdict
    words: str = ""


@public
@dataclass(frozen=True, kw_only=True)
class Finding:
    """A known mistake that gives the learner's answers."""

    name: str
    did: str
    """Description of the error in the code."""
    instead: str
    """What to do instead."""
    paper: str
    """The line of the paper that the code contradicts."""
    example: SmallExample | None
    """A small input on which the mistake changes the output."""


@public
@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """One explanation of incorrect answers: one mistake, or two mistakes together."""

    findings: list[Finding]


@public
@dataclass(frozen=True, kw_only=True)
class ExerciseReport:
    """Result of one exercise."""

    exercise: str
    title: str
    object: str
    """Name of the function or class in the learner's code."""
    state: State
    cases: list[CaseReport] = field(default_factory=list)
    diagnoses: list[Diagnosis] = field(default_factory=list)
    """All possible explanations. Several explanations give the same answers on all inputs."""
    notes: list[str] = field(default_factory=list)
    trouble: str = ""
    """The reason why the code was stopped, or does not count as an answer."""
    lines: list[str] = field(default_factory=list)
    """The lines of the learner's code where an error occurred."""
    ending: str = ""
    """Advice for an error that no diagnosis explains."""
    first_step: Finding | None = None
    """The first quantity at which a run of the code leaves the right solution, without a known mistake."""
    inputs: int = 0
    """Number of inputs of the exercise."""

    @property
    def possible_points(self) -> int:
        """Number of inputs of the exercise, one point each: the same for every answer."""
        return self.inputs

    @property
    def points(self) -> int:
        """Number of correct inputs. Inputs that do not apply to an answer (gradients to NumPy, some sizes to
        classes) count as correct if all others are. An answer that only a note makes wrong has one point less."""
        points = sum(case.verdict == "right" for case in self.cases)
        if points and points == sum(case.verdict != "not compared" for case in self.cases):
            points = self.inputs
        return max(0, points - (self.state == "wrong" and points == self.inputs))

    @property
    def explanation(self) -> str:
        """The named mistakes, or else the notes or the first incorrect input, in one line."""
        if self.state in ("right", "not begun"):
            return "; ".join(self.notes)
        named = " or: ".join(" ".join(finding.did for finding in item.findings) for item in self.diagnoses)
        step = self.first_step.did if self.first_step else ""
        wrong = [f"{case.name}: {case.words}" for case in self.cases if case.verdict in ("wrong", "failed")]
        return " ".join((self.trouble or named or "; ".join(self.notes) or step or "".join(wrong[:1])).split())


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class CheckReport(Result):
    """Result of a check of a file or an object."""

    name: str
    """Name of the file or object."""
    exercises: list[ExerciseReport]
    prints: str = ""
    """Beginning of the code's output."""
    language: str = field(default_factory=LANGUAGE.get)
    """Language of the sentences and of the printed report. States and names of inputs are English."""

    @property
    def right(self) -> bool:
        """Whether at least one exercise was started, and all started exercises are correct."""
        begun = [report for report in self.exercises if report.state not in UNDECIDED]
        return bool(begun) and all(report.state == "right" for report in begun)

    def summary(self) -> str:
        """Return the state of the first exercises in one line."""
        return f"{self.name}: " + ", ".join(f"{report.exercise} {report.state}" for report in self.exercises[:4])

    def json(self) -> dict[str, Any]:
        content = super().json()
        for report, values in zip(self.exercises, content["exercises"], strict=True):
            values |= {"points": report.points, "possible_points": report.possible_points}
        return {**content, "right": self.right}

    def table(self) -> RenderableType:
        parts: list[RenderableType] = []
        with speak(self.language):
            for report in self.exercises:
                parts += [_show_exercise(report), ""]
            if self.prints:
                parts += [say("Your code printed:"), Padding(_safe_text(self.prints), (0, 0, 0, 2)), ""]
        return Group(*parts[:-1])


def _safe_text(text: str, style: str = "") -> Text:
    """Return the learner's text with control characters escaped, so that it cannot control the terminal."""
    characters = (c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
    return Text("".join(characters), style=style)


def _show_exercise(report: ExerciseReport) -> RenderableType:
    name = f" ({report.object})" if report.object and report.object != report.exercise else ""
    head = _safe_text(f"{report.exercise}{name}: ", "bold")
    head.append(say(report.state), style=STYLES[report.state])
    if report.trouble:
        head.append(_safe_text(f", {report.trouble}"))
    parts: list[RenderableType] = [head, *(_safe_text(f"    {line}") for line in report.lines)]
    if report.cases:
        table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), pad_edge=False)
        for _ in range(4):
            table.add_column(overflow="fold")
        cases = report.cases
        if len({(case.verdict, case.words) for case in cases}) == 1 and cases[0].verdict == "failed":
            cases = [dataclasses.replace(cases[0], name=say("on every input"))]
        for case in cases:
            style = "green" if case.verdict == "right" else "" if case.verdict == "not compared" else "red"
            table.add_row(" ", Text(SIGNS[case.verdict], style=style), say(case.name), _safe_text(case.words))
        parts.append(table)
    parts += [Text(f"  {say('Note')}: {note}{'' if note.endswith('?') else '.'}") for note in report.notes]
    if len(report.diagnoses) > 1:
        parts.append(Text(f"  {say('Each of these mistakes gives exactly your results:')}"))
    parts += [_show_diagnosis(diagnosis) for diagnosis in report.diagnoses]
    if report.ending:
        parts.append(Text(f"  {report.ending}"))
    if report.first_step:
        parts.append(_show_diagnosis(Diagnosis(findings=[report.first_step])))
    return Group(*parts)


def _show_diagnosis(diagnosis: Diagnosis) -> RenderableType:
    parts: list[RenderableType] = []
    if len(diagnosis.findings) > 1:
        parts.append(Text(f"  {say('Two mistakes together:')}"))
    for finding in diagnosis.findings:
        parts.append(Padding(Text(f"→ {finding.did}", style="bold"), (0, 0, 0, 2)))
        lines = [Text(finding.instead), *([Text(finding.paper, style="dim")] if finding.paper else [])]
        if finding.example is not None:
            lines.append(Text(f"{say('Example')}: {finding.example.exercise}, {finding.example.inputs}"))
            lines.append(Text(f"  {say('yours'):<7} {finding.example.wrong}"))
            lines.append(Text(f"  {say('right'):<7} {finding.example.right}"))
        parts.append(Padding(Group(*lines), (0, 0, 0, 4)))
    return Group(*parts)


# Reports of checks as JUnit XML, which servers for continuous integration show.


def render_junit(reports: Sequence[CheckReport]) -> bytes:
    """Return reports as JUnit XML: a suite for each file, and a test for each input of an exercise."""
    root = ElementTree.Element("testsuites")
    for report in reports:
        suite = ElementTree.SubElement(root, "testsuite", name=report.name)
        for exercise in report.exercises:
            _add_exercise(suite, exercise)
        suite.set("tests", str(len(suite)))
        suite.set("failures", str(len(suite.findall("testcase/failure"))))
        suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def _add_exercise(suite: ElementTree.Element, report: ExerciseReport) -> None:
    """Add the inputs of an exercise. The first incorrect input has the named mistake as its text."""

    def add(name: str, tag: str = "", message: str = "", text: str = "") -> None:
        test = ElementTree.SubElement(suite, "testcase", classname=report.exercise or suite.get("name", ""), name=name)
        if tag:
            ElementTree.SubElement(test, tag, message=escape_controls(message)).text = escape_controls(text)

    explanation = report.explanation
    for case in report.cases:
        if case.verdict == "not compared":
            add(case.name, "skipped", case.words)
        elif case.verdict == "right":
            add(case.name)
        else:
            add(case.name, "failure", case.words, explanation)
            explanation = ""
    if report.state in ("not begun", "helper", "note"):
        add("answer", "skipped", report.trouble or report.state)
    elif report.state != "right" and explanation:  # no input shows the error
        add("answer", "failure", explanation)
