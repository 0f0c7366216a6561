"""What a lesson is: a text in parts, a run, and what ten seeds came to."""

import functools
import json
import re
import shlex
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from regard.course.lessons.lesson_runs import RUNS, LessonRun
from regard.errors import unknown_choice

HOME = Path("course")
"""Folder of the lessons' runs where none is named, as the lessons' texts have it."""
PARTS = ("Predict", "Answer", "By hand", "See", "Why", "Exercises")
"""Parts of every lesson's text, in their order."""
FIGURES = {
    "exact_match": "answers without an error",
    "relevance": "attention on what the answer depends on (best head or last layer)",
    "alignment_error": "alignment error",
}
"""Figures of a run that a lesson tells of."""


def _share(value: float) -> str:
    """Write a share (0 to 1) with a decimal, and with two where one would make nearly all of it the whole."""
    return f"{min(value, 0.9999):.2%}" if 0.999 <= value < 1 else f"{value:.1%}"


@dataclass(frozen=True)
class Range:
    """What a figure came to over the seeds: shares (0 to 1)."""

    low: float
    middle: float
    high: float

    def __str__(self) -> str:
        alike = _share(self.low) == _share(self.high)
        return self._ends if alike else f"{self._ends}, the middle one {_share(self.middle)}"

    @property
    def _ends(self) -> str:
        low, high = _share(self.low), _share(self.high)
        return f"all {low}" if low == high else f"{low} to {high}"

    def verdict(self, value: float) -> str:
        """Say whether a value is usual, to the four decimals that are kept of the seeds' own, and to those that
        are written."""
        value = round(value, 4)
        if value < self.low and _share(value) != _share(self.low):
            return f"below all ten seeds: {self._ends}"
        if value > self.high and _share(value) != _share(self.high):
            return f"above all ten seeds: {self._ends}"
        return f"usual, ten seeds came to {self._ends}"


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """One lesson."""

    number: int
    name: str
    title: str
    parts: Mapping[str, str]
    """Markdown, by the name of the part."""
    runs: tuple[LessonRun, ...]
    """What is trained: the learner's own run first, then what it is compared with."""

    @property
    def ranges(self) -> dict[str, dict[str, Range]]:
        """What ten seeds came to: by the run's name, by the figure's."""
        found = {}
        for run in self.runs:
            figures = _measured().get(self.name, {}).get(run.name, {}).get("figures", {})
            found[run.name] = {
                name: Range(min(values), statistics.median(values), max(values))
                for name, values in figures.items()
                if name in FIGURES
            }
        return found

    @property
    def seconds(self) -> float:
        """Seconds of one core that the learner's own run took where it was measured."""
        return float(_measured().get(self.name, {}).get(self.runs[0].name, {}).get("seconds", 0.0))

    @property
    def question(self) -> str:
        """The last question of what is to be predicted, Markdown."""
        found = re.findall(r"[^.?]*\?", self.parts["Predict"])
        return str(found[-1]).strip()

    @property
    def code(self) -> str:
        """What is worked out by hand, as Python."""
        (found,) = re.findall(r"```python\n(.*?)```", self.parts["By hand"], re.DOTALL)
        return str(found)

    def told(self, figures: Mapping[str, float | None]) -> list[str]:
        """Say what a run came to, and whether that is usual."""
        ranges = self.ranges[self.runs[0].name]
        return [
            f"{FIGURES[name]}: {_share(value)}" + (f" ({ranges[name].verdict(value)})" if name in ranges else "")
            for name, value in figures.items()
            if name in FIGURES and value is not None
        ]


def in_home(text: str, home: Path, written: Callable[[str], str] = str) -> str:
    """Return a lesson's text whose commands name runs under `home`, quoted for a shell, instead of under HOME.

    `written`: how a path stands in the text, as `html.escape` where that is HTML.
    """

    def moved(match: re.Match[str]) -> str:
        return f"{match[1]} {written(shlex.quote(str(home / match[2])))}"

    return re.sub(rf"(--savepath|--compare-with) {HOME}/([\w/]+)", moved, text)


@functools.cache
def _measured() -> dict[str, Any]:
    """Return what benchmarks/lessons.py has measured."""
    found: dict[str, Any] = json.loads(files(__package__).joinpath("ranges.json").read_text(encoding="utf-8"))
    return found


@functools.cache
def lessons() -> tuple[Lesson, ...]:
    """Return all lessons, in their order."""
    return tuple(_read(number, name) for number, name in enumerate(ORDER, 1))


def find_lesson(name: str) -> Lesson:
    """Return the lesson called `name`; raises `InputError` where none is."""
    for each in lessons():
        if each.name == name:
            return each
    raise unknown_choice("lesson", name, ORDER)


def _read(number: int, name: str) -> Lesson:
    text = files(__package__).joinpath(f"text/{name}.md").read_text(encoding="utf-8")
    title, *parts = re.split(r"^#{1,2} (.*)$", text, flags=re.MULTILINE)[1:]
    named = {parts[place].strip(): parts[place + 1].strip() for place in range(1, len(parts) - 1, 2)}
    assert tuple(named) == PARTS, f"lesson {name} has parts {tuple(named)}"
    return Lesson(number=number, name=name, title=title.strip(), parts=named, runs=RUNS[name])


ORDER = (
    "lookups",
    "counting",
    "difference",
    "signal",
    "signal2",
    "forgetting",
    "decoders",
    "scores",
    "waves",
    "multihead",
    "transformer",
    "translation",
    "explaining",
)
"""All lessons, each of which needs those before it."""
