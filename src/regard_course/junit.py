"""Reports of checks as JUnit XML, which servers for continuous integration show."""

from collections.abc import Sequence
from xml.etree import ElementTree

from regard.errors import escape_controls
from regard_course.report import CheckReport, ExerciseReport


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
        test = ElementTree.SubElement(
            suite, "testcase", classname=report.exercise or suite.get("name", ""), name=name
        )
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
