"""The page of an exercise: its stub, hints in three steps, a worked solution, and links to its lessons.

Hints and solutions are in `hints/NAME.md`.
"""

import dataclasses
import functools
import html
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files

from markdown_it import MarkdownIt

from regard_course.exercises import EXERCISES, find_exercise
from regard_course.exercises.exercise import Exercise
from regard_course.lessons.lesson import Lesson, lessons
from regard_course.translated import ENGLISH, State, find_language

MARKDOWN = MarkdownIt("commonmark", {"html": False})
FOLDER = "exercises"
"""Folder of the stubs in the commands of the pages."""
STATEMENT = "Statement"
"""Heading of the stub's docstring in a translation."""
HINTS = ("Hint 1", "Hint 2", "Hint 3", "Solution")
"""Headings in the file of hints, in order."""
NOT_TRANSLATED = ("missing", "outdated")
"""States of a translation in which the English text is shown."""
NOTES: dict[State, str] = {
    "missing": "This page is not translated yet, so its text is English.",
    "older": "The English text is newer than this translation.",
    "outdated": "The English text is newer than its translation, so it is shown in English.",
}
"""The line on a page, for each state of a translation."""


def exercise_names(lesson: Lesson) -> list[str]:
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
    return f"{EXERCISES.index(exercise) + 1:02d}_{exercise.name}.py"


@dataclass(frozen=True, kw_only=True)
class ExerciseText:
    """The texts of an exercise in one language."""

    exercise: Exercise
    """The exercise, with a translated title and statement."""
    hints: dict[str, str]
    """Three hints and the solution as Markdown, by heading."""
    language: str
    state: State
    """State of the translation."""


def english_exercise(name: str) -> str:
    exercise = find_exercise(name)
    hints = files("regard_course").joinpath(f"hints/{name}.md").read_text(encoding="utf-8")
    return f"# {exercise.title}\n\n## {STATEMENT}\n\n{exercise.statement}\n\n{hints}"


@functools.cache
def read_exercise(name: str, language: str = ENGLISH) -> ExerciseText:
    """Return the texts of an exercise. Raises `InputError` if the translation is invalid."""
    chosen, exercise = find_language(language), find_exercise(name)
    text, state = chosen.translate(f"exercises/{name}", english_exercise(name))
    title, *sections = re.split(r"^#{1,2} (.*)$", text, flags=re.MULTILINE)[1:]
    parts = {heading.strip(): part.strip() for heading, part in zip(sections[1::2], sections[2::2], strict=True)}
    statement = parts.pop(STATEMENT)
    assert tuple(parts) == HINTS, f"the hints of {name} are {tuple(parts)}"
    translated = dataclasses.replace(
        exercise,
        title=title.strip(),
        statement=statement,
        source=chosen.say(exercise.source) if exercise.source else "",
        instruction=chosen.say(exercise.instruction),
        words=(chosen.say("Exercise"), chosen.say("then")),
    )
    return ExerciseText(exercise=translated, hints=parts, language=language, state=state)


def solution_code(name: str) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", read_exercise(name).hints["Solution"], re.DOTALL)
    return str(code)


def exercise_body(name: str, language: str = ENGLISH) -> str:
    """Return the content of the page of an exercise, as HTML."""
    text, say = read_exercise(name, language), find_language(language).say
    exercise, hints = text.exercise, text.hints
    title = exercise.title[:1].upper() + exercise.title[1:]
    file = f"{FOLDER}/{stub_name(find_exercise(name))}"
    uses = [lesson for lesson in lessons(language) if name in exercise_names(lesson)]
    links = ", ".join(f'<a href="{lesson.name}.html">{html.escape(lesson.title)}</a>' for lesson in uses)
    index = EXERCISES.index(find_exercise(name))
    steps = [*EXERCISES[max(0, index - 1) : index], *EXERCISES[index + 1 : index + 2]]
    others = " ".join(f'<a href="exercise-{step.name}.html">{step.name}</a>' for step in steps)
    closed = "".join(
        f"<details><summary>{say(heading)}</summary>\n{render_part(hints[heading], text.state)}</details>\n"
        for heading in HINTS[:3]
    )
    states = (("", "not begun"), ("tried", "tried, not right yet"), ("right", "right"))
    options = "".join(f'<option value="{value}">{say(words)}</option>' for value, words in states)
    return "\n".join(
        [
            f'<header><nav><a href="index.html">{say("All lessons")}</a> {others}</nav>',
            f"<h1><small>{say('Exercise {0}', index + 1)}</small> {html.escape(title)}</h1></header>",
            f'<main data-exercise="{name}">{state_note(text.state, say)}',
            f"<p>{say('Lessons: {0}.', links)} {html.escape(exercise.source)}</p>",
            f"<h2>{say('Start')}</h2>\n<p>"
            + say(
                "The file <code>{0}</code>, written by <code>regard learn --stubs {1}</code>:",
                file,
                f"{FOLDER}{language_flag(language)}",
            ),
            f"</p>\n<pre><code>{html.escape(exercise.stub)}</code></pre>",
            f'<h2>{say("Check")}</h2>\n<p><code>regard check {file}</code></p>\n<div id="check"></div>',
            f'<p><label>{say("My solution is")} <select id="state">{options}</select></label></p>',
            f"<h2>{say('Hints')}</h2>\n{closed}",
            f'<h2>{say("Solution")}</h2>\n<p id="locked" hidden>'
            f"{say('The solution opens after a check of your own code.')} "
            f'<button type="button" id="unlock">{say("Show it anyway")}</button></p>',
            f'<details id="solution"><summary>{say("A worked solution")}</summary>\n'
            f"{render_part(hints['Solution'], text.state)}</details>\n</main>",
        ]
    )


def render_part(text: str, state: State) -> str:
    """Return Markdown as HTML, marked as English if it is not translated."""
    page = str(MARKDOWN.render(text))
    return f'<div lang="{ENGLISH}">\n{page}</div>' if state in NOT_TRANSLATED else page


def state_note(state: State, say: Callable[[str], str]) -> str:
    return f'<p class="note">{say(NOTES[state])}</p>' if state else ""


def mark_english(state: State, say: Callable[[str], str]) -> str:
    """Return a mark for a title whose page is shown in English because its translation is missing, or an empty
    text."""
    return f" <em>({say('in English')})</em>" if state in NOT_TRANSLATED else ""


def language_flag(language: str) -> str:
    return "" if language == ENGLISH else f" --language {html.escape(shlex.quote(language))}"
