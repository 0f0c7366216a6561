"""One lesson: a text in `text/NAME.md`, training runs, and the results of several seeds (`benchmarks/lessons.py`)."""

import functools
import json
import re
import shlex
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from regard.errors import unknown_choice
from regard_course.inputs import read_table
from regard_course.translated import ENGLISH, State, find_language

HOME = Path("course")
"""Default folder of the lessons' runs, as written in the lessons' texts."""
PARTS = ("Predict", "Answer", "By hand", "See", "Why", "Exercises")
"""Headings in the text of every lesson, in order."""
FIGURES: dict[str, str] = read_table("lessons/figures.toml")
"""Measurements of a run that a lesson reports, with their labels."""


@dataclass(frozen=True, kw_only=True)
class LessonRun:
    """One training run of a lesson."""

    name: str
    """Name of the variant in the lesson's table."""
    task: str
    flags: dict[str, Any] = field(default_factory=dict)
    input: str | None = None
    """The input of the lesson's question, which the view shows first. None: random inputs."""

    @property
    def command(self) -> str:
        return " ".join(["regard train", self.task, *(f"--{name}={value}" for name, value in self.flags.items())])


ROWS: dict[str, dict[str, Any]] = read_table("lessons/runs.toml")
"""The content of `runs.toml`: the lessons in order."""
RUNS: dict[str, tuple[LessonRun, ...]] = {
    name: tuple(
        LessonRun(
            name=variant,
            task=flags.get("task", row["task"]),
            flags=row.get("flags", {}) | {flag: value for flag, value in flags.items() if flag != "task"},
            input=row.get("input"),
        )
        for variant, flags in row.get("variants", {}).items()
    )
    for name, row in ROWS.items()
}
"""The runs of each lesson (see `runs.toml`), none if it measures without training."""
MEASURED: dict[str, Any] = json.loads((files("regard_course.lessons") / "ranges.json").read_text(encoding="utf-8"))
"""The measurements of each lesson's runs by name; those of a run may be missing."""


def _percent(value: float) -> str:
    """Format a fraction (0 to 1) as a percentage with one decimal, or two if one would show 100.0%."""
    return f"{min(value, 0.9999):.2%}" if 0.999 <= value < 1 else f"{value:.1%}"


@dataclass(frozen=True)
class Range:
    """Minimum, median and maximum of a measurement over several seeds, as fractions (0 to 1).

    >>> str(Range(0.5, 0.75, 1.0))
    '50.0% to 100.0% (median 75.0%)'
    >>> Range(0.5, 0.75, 1.0).verdict(0.4)
    'below all 10 seeds, which gave 50.0% to 100.0%'
    """

    low: float
    middle: float
    high: float
    seeds: int = 10

    def describe(self, language: str = ENGLISH) -> str:
        say, low, high = find_language(language).say, _percent(self.low), _percent(self.high)
        if low == high:
            return say("{0} (all seeds)", low)
        return say("{0} to {1} (median {2})", low, high, _percent(self.middle))

    __str__ = describe

    def verdict(self, value: float, language: str = ENGLISH) -> str:
        """Return a sentence that compares a run's value with those of the seeds. A value counts as usual if it is
        within the range after rounding, either to the four stored decimals or to the displayed decimals."""
        say, low, high = find_language(language).say, _percent(self.low), _percent(self.high)
        ends = low if low == high else say("{0} to {1}", low, high)
        value = round(value, 4)
        if value < self.low and _percent(value) != low:
            return say("below all {0} seeds, which gave {1}", self.seeds, ends)
        if value > self.high and _percent(value) != high:
            return say("above all {0} seeds, which gave {1}", self.seeds, ends)
        return say("usual: {0} seeds gave {1}", self.seeds, ends)


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """One lesson of the course."""

    number: int
    name: str
    title: str
    parts: Mapping[str, str]
    """Markdown text by heading, see `PARTS`."""
    runs: tuple[LessonRun, ...]
    """The run that the learner trains, then its variants; none if the lesson only measures."""
    language: str = ENGLISH
    state: State = ""
    """State of the translation."""

    def say(self, text: str, *values: object) -> str:
        return find_language(self.language).say(text, *values)

    @property
    def ranges(self) -> dict[str, dict[str, Range]]:
        """The results of several seeds, by name of the run and name of the measurement."""
        return {
            run.name: {
                name: Range(min(values), statistics.median(values), max(values), len(values))
                for name, values in MEASURED.get(self.name, {}).get(run.name, {}).get("figures", {}).items()
                if name in FIGURES
            }
            for run in self.runs
        }

    @property
    def seeds(self) -> int:
        """The number of seeds that were measured; 0 without a run."""
        return max((interval.seeds for figures in self.ranges.values() for interval in figures.values()), default=0)

    @property
    def seconds(self) -> float:
        """The measured training time of the learner's run on one core, in seconds; 0 without a run."""
        return float(MEASURED.get(self.name, {}).get(self.runs[0].name, {}).get("seconds", 0.0)) if self.runs else 0.0

    @property
    def question(self) -> str:
        """The last question of the part Predict, as Markdown."""
        return str(re.findall(r"[^.?]*\?", self.parts["Predict"])[-1]).strip()

    @property
    def code(self) -> str:
        (code,) = re.findall(r"```python\n(.*?)```", self.parts["By hand"], re.DOTALL)
        return str(code)

    def describe_figures(self, figures: Mapping[str, float | None]) -> list[str]:
        """Return one line per measurement of a run, with its range over several seeds."""
        ranges = self.ranges[self.runs[0].name]
        return [
            f"{self.say(FIGURES[name])}: {_percent(value)}"
            + (f" ({ranges[name].verdict(value, self.language)})" if name in ranges else "")
            for name, value in figures.items()
            if name in FIGURES and value is not None
        ]

    def commands(self, home: Path) -> list[str]:
        """Return the commands that a page can run: those that end alone. home: folder of the runs that they use."""
        text = "\n".join(set_home(part, home) for part in self.parts.values())
        commands = re.findall(r"`(regard \w+ [^`\n]+)`", text)
        return [command for command in commands if command.split()[1] not in ("show", "look", "learn", "check")]


def set_home(text: str, home: Path, escape: Callable[[str], str] = str) -> str:
    """Return a lesson's text with commands that use `home`, quoted for a shell, instead of `HOME`. escape:
    function applied to each path, for example `html.escape` if the text is HTML."""

    def replace(match: re.Match[str]) -> str:
        return f"{match[1]}{escape(shlex.quote(str(home / match[2])))}"

    return re.sub(rf"(--(?:savepath |compare_with |output |text=)){HOME}/([\w/]+(?:\.txt|\.svg)?)", replace, text)


@functools.cache
def lessons(language: str = ENGLISH) -> tuple[Lesson, ...]:
    """Return all lessons in order. Raises `InputError` for an unknown language or an invalid translation."""
    return tuple(_read(number, name, language) for number, name in enumerate(RUNS, 1))


def find_lesson(name: str, language: str = ENGLISH) -> Lesson:
    """Return the lesson with this name. Raises `InputError` for an unknown name.

    >>> find_lesson("signal").title
    'Positions'
    """
    for lesson in lessons(language):
        if lesson.name == name:
            return lesson
    raise unknown_choice("lesson", name, list(RUNS))


def english_text(name: str) -> str:
    return files(__package__).joinpath(f"text/{name}.md").read_text(encoding="utf-8")


def _read(number: int, name: str, language: str) -> Lesson:
    text, state = find_language(language).translate(f"lessons/{name}", english_text(name))
    title, *sections = re.split(r"^#{1,2} (.*)$", text, flags=re.MULTILINE)[1:]
    headings, texts = sections[1::2], sections[2::2]
    parts = {heading.strip(): text.strip() for heading, text in zip(headings, texts, strict=True)}
    assert tuple(parts) == PARTS, f"lesson {name} has parts {tuple(parts)}"
    return Lesson(
        number=number, name=name, title=title.strip(), parts=parts, runs=RUNS[name], language=language, state=state
    )
