"""The page of an exercise: its stub, hints in three steps, a worked solution, and links to its lessons.

Hints and solutions are in `hints/NAME.md`.
"""

import functools
import html
import re
from importlib.resources import files

from markdown_it import MarkdownIt

from regard.course.exercises import EXERCISES, Exercise, find_exercise
from regard.course.lessons import Lesson, lessons

MARKDOWN = MarkdownIt("commonmark", {"html": False})
FOLDER = "exercises"
"""Folder of the stubs in the commands of the pages."""
HINTS = ("Hint 1", "Hint 2", "Hint 3", "Solution")
"""Headings in the file of hints, in order."""


def exercise_names(lesson: Lesson) -> list[str]:
    """Return the names of the exercises in a lesson's text."""
    known = {exercise.name for exercise in EXERCISES}
    return [name for name in re.findall(r"`(\w+)`", lesson.parts["Exercises"]) if name in known]


def exercise_links(page: str) -> str:
    """Return the HTML of the part Exercises with a link for each name of an exercise."""
    for exercise in EXERCISES:
        code = f"<code>{exercise.name}</code>"
        page = page.replace(
            code, f'<a href="exercise-{exercise.name}.html" data-exercise="{exercise.name}">{code}</a>'
        )
    return page


def stub_name(exercise: Exercise) -> str:
    """Return the name of the file in which an exercise begins."""
    return f"{EXERCISES.index(exercise) + 1:02d}_{exercise.name}.py"


@functools.cache
def read_hints(name: str) -> dict[str, str]:
    """Return three hints and the solution of an exercise as Markdown, by heading."""
    text = files("regard.course").joinpath(f"hints/{name}.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)[1:]
    hints = {heading.strip(): part.strip() for heading, part in zip(parts[::2], parts[1::2], strict=True)}
    assert tuple(hints) == HINTS, f"the hints of {name} are {tuple(hints)}"
    return hints


def solution_code(name: str) -> str:
    """Return the worked solution as Python code."""
    (code,) = re.findall(r"```python\n(.*?)```", read_hints(name)["Solution"], re.DOTALL)
    return str(code)


def exercise_body(name: str) -> str:
    """Return the content of the page of an exercise, as HTML."""
    exercise, hints = find_exercise(name), read_hints(name)
    file = f"{FOLDER}/{stub_name(exercise)}"
    uses = [lesson for lesson in lessons() if name in exercise_names(lesson)]
    links = ", ".join(f'<a href="{lesson.name}.html">{html.escape(lesson.title)}</a>' for lesson in uses)
    index = EXERCISES.index(exercise)
    steps = [*EXERCISES[max(0, index - 1) : index], *EXERCISES[index + 1 : index + 2]]
    others = " ".join(f'<a href="exercise-{step.name}.html">{step.name}</a>' for step in steps)
    closed = "".join(
        f"<details><summary>{heading}</summary>\n{MARKDOWN.render(hints[heading])}</details>\n"
        for heading in HINTS[:3]
    )
    return "\n".join(
        [
            f'<header><nav><a href="index.html">All lessons</a> {others}</nav>',
            f"<h1><small>Exercise {index + 1}</small> {html.escape(exercise.title)}</h1></header>",
            f'<main data-exercise="{name}">',
            f"<p>Lessons: {links}. {html.escape(exercise.source)}</p>",
            f"<h2>Start</h2>\n<p>The file <code>{file}</code>, written by "
            f"<code>regard learn --stubs {FOLDER}</code>:</p>",
            f"<pre><code>{html.escape(exercise.stub)}</code></pre>",
            f'<h2>Check</h2>\n<p><code>regard check {file}</code></p>\n<div id="check"></div>',
            '<p><label>My solution is <select id="state"><option value="">not begun</option>'
            '<option value="tried">tried, not right yet</option><option value="right">right</option></select>'
            "</label></p>",
            f"<h2>Hints</h2>\n{closed}",
            '<h2>Solution</h2>\n<p id="locked" hidden>The solution opens after a check of your own code. '
            '<button type="button" id="unlock">Show it anyway</button></p>',
            f'<details id="solution"><summary>A worked solution</summary>\n{MARKDOWN.render(hints["Solution"])}'
            "</details>\n</main>",
        ]
    )
