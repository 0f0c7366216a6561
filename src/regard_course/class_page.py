"""A page for a teacher: who has done what, and which mistakes are frequent (`regard check FOLDER --page`)."""

import dataclasses
import html
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from regard_course.exercises import EXERCISES
from regard_course.exercises.exercise import Exercise
from regard_course.handed_in import show_name
from regard_course.lessons.lesson import HOME, lessons
from regard_course.marks import FILES, Mark, Marks
from regard_course.pages import read_asset
from regard_course.progress import PROGRESS, CourseProgress, read_progress

OTHER = "no known mistake: look at the code"
ALTERNATIVES = " or: "
"""Separator of explanations that give the same answers."""
SIGNS = {"right": "✓", "partly": "◐", "wrong": "✗", "unreadable": "!", "none": "-"}
LEGEND = (
    "✓ all inputs right, ◐ some inputs right, ✗ no input right, ! a remark on a file, - no answer or not begun."
)
STOPPED = "stopped: "
"""Beginning of the note of code that was stopped, for example after a crash."""
TOO_LATE = re.compile(r"did not end within \d+ seconds?")
"""Part of the note of code that was stopped by its time limit."""
UNREADABLE = "a file cannot be run, for example because of a syntax error"
PRIVACY = (
    "This file contains names and marks. It was made on this machine from local files, loads nothing from the "
    "network and sends nothing. Give it to nobody who may not see the marks."
)


def render_class(marks: Marks, folder: Path, *, seed: int = 0, exercises: Sequence[Exercise] = EXERCISES) -> str:
    """Return the page of a class as one HTML file.

    folder: the people's answers. A person's subfolder may contain `progress.json` of the course, or the folder
    `course` with it. seed: the seed of the inputs. exercises: the exercises with their known mistakes.
    """
    progress = find_progress(folder)
    now = datetime.now().isoformat(" ", "minutes")
    title = f"Class: {folder.resolve().name}"
    body = "\n".join(
        [
            f"<header><h1>{html.escape(title)}</h1></header>\n<main>",
            f"<p>Checked {now} with seed {seed}.{_old_rows(marks)} {PRIVACY}</p>",
            _table(marks.rows, progress),
            f"<p><small>{LEGEND} A click on a heading sorts the table.</small></p>",
            "<h2>Frequent mistakes</h2>",
            _mistakes(marks.rows, exercises),
            "</main>",
        ]
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n"
        f'<link rel="icon" href="data:,">\n<style>\n{read_asset("learn.css")}{read_asset("class.css")}</style>\n'
        f'</head>\n<body>\n{body}\n<script type="module">\n{read_asset("class.js")}</script>\n</body>\n</html>\n'
    )


def _old_rows(marks: Marks) -> str:
    if not marks.kept:
        return ""
    return f" {marks.kept} of the {len(marks.rows)} results are from an earlier check and were not checked again."


def find_progress(folder: Path) -> dict[str, CourseProgress]:
    """Return the progress that people handed in. Raises `InputError` for a damaged file."""
    places = {
        show_name(person.name): home
        for person in sorted(folder.resolve().iterdir())
        for home in (person / HOME, person)
        if (home / PROGRESS).resolve() == home / PROGRESS and (home / PROGRESS).is_file()  # no links
    }
    return {name: read_progress(home) for name, home in places.items()}


def _table(rows: Sequence[Mark], progress: Mapping[str, CourseProgress]) -> str:
    """Return the table of people and exercises."""
    names = list(dict.fromkeys(row.exercise for row in rows))
    marks: dict[tuple[str, str], Mark] = {}
    for row in rows:
        key = row.person, row.exercise
        if row.exercise == FILES:  # several files of a person are one cell
            words = [marks[key].note] if key in marks else []
            row = dataclasses.replace(row, note="; ".join([*words, f"{row.file} {row.note}"]))
        marks[key] = row
    people = sorted({*(row.person for row in rows), *progress}, key=str.casefold)
    heads = [_head("person", tall=False), _head("points")]
    heads += [_head("lessons done"), _head("last own check")] if progress else []
    lines = []
    for person in people:
        own = [marks[person, name] for name in names if (person, name) in marks]
        points = sum(mark.points for mark in own)
        cells = [
            f'<th scope="row" data-key="{html.escape(person)}" title="{html.escape(person)}">'
            f"{html.escape(person)}</th>",
            f'<td data-key="{points}">{points}/{sum(mark.of for mark in own)}</td>',
        ]
        if progress:
            cells += _progress_cells(progress.get(person, CourseProgress()))
        cells += [_cell(marks.get((person, name))) for name in names]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    right = [sum(mark.state == "right" for mark in rows if mark.exercise == name) for name in names]
    empty = f'<td colspan="{len(heads) - 1}"></td>'
    totals = ["" if name == FILES else f"{count}/{len(people)}" for name, count in zip(names, right, strict=True)]
    foot = "".join(f'<td class="right">{total}</td>' for total in totals)
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="people and exercises"><table id="class">\n'
        f"<thead><tr>{''.join(heads)}{''.join(map(_head, names))}</tr></thead>\n"
        f"<tbody>\n{chr(10).join(lines)}\n</tbody>\n"
        f'<tfoot><tr><th scope="row">right</th>{empty}{foot}</tr></tfoot></table></div>'
    )


def _head(name: str, *, tall: bool = True) -> str:
    style = ' class="tall"' if tall else ""
    return f'<th scope="col"><button type="button"{style}>{html.escape(name)}</button></th>'


def _progress_cells(progress: CourseProgress) -> list[str]:
    """Return the number of lessons that a person has done, and the date of the last own check."""
    done = [lesson.title for lesson in lessons() if lesson.name in progress.lessons]
    checked = max((exercise.checked for exercise in progress.exercises.values()), default="")
    day = checked[:10]
    key = "".join(filter(str.isdecimal, checked[:16])) or 0
    return [
        f'<td data-key="{len(done)}" title="{html.escape(", ".join(done))}">{len(done)}/{len(lessons())}</td>',
        f'<td data-key="{key}" title="{html.escape(checked)}">{html.escape(day) or SIGNS["none"]}</td>',
    ]


def _cell(mark: Mark | None) -> str:
    if mark is None or mark.state == "none":
        return f'<td class="none" data-key="-1">{SIGNS["none"]}</td>'
    state = mark.state
    points = f" {mark.points}/{mark.of}" if state in ("partly", "wrong") else ""
    color = "wrong" if state == "unreadable" else state
    return (
        f'<td class="{color}" data-key="{mark.points / max(mark.of, 1):.4f}" title="{html.escape(mark.note)}">'
        f"{SIGNS[state]}{points}</td>"
    )


def _mistakes(rows: Sequence[Mark], exercises: Sequence[Exercise]) -> str:
    """Return the mistakes of a class, the most frequent first, with the people who made each."""
    known = {exercise.name: {mistake.did for mistake in exercise.mistakes} for exercise in exercises}
    people: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if late := TOO_LATE.search(row.note):
            people[f"{STOPPED}{late[0]}"][row.person].append(row.exercise)
        elif row.exercise == FILES:
            people[row.note][row.person].append(row.file)
        elif row.state == "unreadable":
            people[UNREADABLE][row.person].append(row.exercise)
        elif row.note.startswith(STOPPED):
            people[row.note][row.person].append(row.exercise)
        elif row.state in ("partly", "wrong"):
            for mistake in _name_mistakes(row.note, known.get(row.exercise, set())):
                people[mistake][row.person].append(row.exercise)
    if not people:
        return "<p>No answer is wrong.</p>"
    ranking = sorted(people.items(), key=lambda item: (item[0] == OTHER, -len(item[1]), item[0]))
    lines = "\n".join(
        f"<tr><td>{len(names)}</td><td><details><summary>{html.escape(mistake)}</summary>"
        f"<p>{html.escape(', '.join(names))}</p></details></td><td>{_codes(names)}</td></tr>"
        for mistake, names in ranking
    )
    return (
        '<table class="mistakes">\n<thead><tr><th scope="col">people</th><th scope="col">mistake</th>'
        f'<th scope="col">exercises</th></tr></thead>\n<tbody>\n{lines}\n</tbody></table>'
    )


def _codes(names: Mapping[str, Sequence[str]]) -> str:
    exercises = dict.fromkeys(exercise for own in names.values() for exercise in own)
    return ", ".join(f"<code>{html.escape(exercise)}</code>" for exercise in exercises)


def _name_mistakes(note: str, known: set[str]) -> list[str]:
    """Return the mistakes that a note names. Several explanations of the same answers stay together."""
    if ALTERNATIVES in note:
        return [note]
    named = [mistake for mistake in known if mistake and mistake in note]
    return [mistake for mistake in named if not any(mistake in other != mistake for other in named)] or [OTHER]
