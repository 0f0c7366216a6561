"""A folder of people's answers as a table of points: `regard check FOLDER --table marks.csv`."""

import ast
import atexit
import csv
import dataclasses
import functools
import html
import io
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from regard.data.worker_pool import map_in_processes
from regard.errors import InputError, escape_controls
from regard.io import check_writable
from regard.machine import available_cores
from regard.progress import counting_bar
from regard.result import Result
from regard.viz.report_page import Markup, Part, Plot, render_page
from regard_course.check import NoAnswerError, check_file, choose_exercises
from regard_course.exercises.course import EXERCISES
from regard_course.exercises.exercise import Exercise
from regard_course.grading import begin_report
from regard_course.handed_in import FORMULA, HandedIn, describe_unread, find_people, show_name
from regard_course.inputs import MESSAGES
from regard_course.lessons.lesson import HOME, lessons
from regard_course.pages import read_asset
from regard_course.progress import PROGRESS, CourseProgress, read_progress
from regard_course.report import ExerciseReport
from regard_course.sandbox import ForkServer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NO_ANSWER = "no answer"
FILES = "(files)"
"""In place of the exercise, in rows on files that are not read, that cannot be run, or have unusual names."""
MarkState = Literal["right", "partly", "wrong", "unreadable", "none"]
NAMES = re.compile(r"^(?:(?:async +)?def|class) +(\w+)|^(\w+) *=", re.MULTILINE)
"""Names that a file defines, for files with a syntax error."""


@dataclass(frozen=True)
class Mark:
    """The points of one person for one exercise, or a remark on one file: a row of the table."""

    person: str
    exercise: str
    points: int
    """Number of correct inputs."""
    of: int
    """Number of compared inputs."""
    cases: str
    """The points of each input, for example "1 a mask; 0 one step"."""
    note: str
    """The named mistake, or another reason for missing points."""
    file: str
    seed: int

    @property
    def state(self) -> MarkState:
        """Whether the inputs are right; none: no answer or not begun; unreadable: a file cannot be run."""
        if self.note.startswith("not begun") or self.note == NO_ANSWER:
            return "none"
        if not self.file or self.exercise == FILES:
            return "unreadable"
        if self.points == self.of:
            return "right"
        return "partly" if self.points else "wrong"


COLUMNS = tuple(field.name for field in dataclasses.fields(Mark))


@dataclass(frozen=True, kw_only=True, repr=False)
class Marks(Result):
    """The marks of a folder."""

    rows: list[Mark]
    kept: int
    """Number of rows, the first ones, that the table contained already. They were not checked again."""

    def table(self) -> RenderableType:
        """Return for each exercise how many people are right, wrong and without answer, and the usual note."""
        table = Table(box=None, pad_edge=False)
        for title in ("exercise", "right", "wrong", NO_ANSWER):
            table.add_column(title, justify="left" if title == "exercise" else "right", no_wrap=True)
        table.add_column("most frequent note", overflow="fold")
        for exercise in dict.fromkeys(row.exercise for row in self.rows if row.exercise != FILES):
            rows = [row for row in self.rows if row.exercise == exercise]
            missing = sum(row.state == "none" for row in rows)
            right = sum(row.state == "right" for row in rows)
            notes = Counter(row.note for row in rows if row.note and row.state != "none").most_common(1)
            often = f"{notes[0][1]} x {escape_controls(notes[0][0])}" if notes else ""
            table.add_row(exercise, *map(str, (right, len(rows) - right - missing, missing)), Text(often))
        for row in self.rows:
            if row.exercise == FILES:
                table.add_row(FILES, "", "", "", Text(escape_controls(f"{row.person}: {row.file} {row.note}")))
        return table


def mark_folder(
    folder: str | Path,
    table: str | Path | None = None,
    exercise: str | None = None,
    *,
    seed: int = 0,
    exercises: str | Path | None = None,
    show: bool = False,
) -> Marks:
    """Check the answers of every person in a folder, and write a table of points (CSV) unless `table` is None.

    The people are checked in parallel, and the rows of each person are written when the person is checked. If the
    table exists, its rows are kept and the missing rows are added.

    folder: one file or one subfolder of files for each person. table: the CSV file, with the columns of `Mark`.
    exercise, seed, exercises: as in `check`. Without `exercise`, each person has a row for each exercise that
    somebody's files name. show: whether to show the progress.

    Raises `InputError` if the folder has no Python files, or if the table has other columns or another seed.
    """
    folder, table = Path(folder), None if table is None else Path(table)
    assignment = choose_exercises(exercise, seed=seed, exercises=exercises)
    people = find_people(folder)
    rows: list[Mark] = []
    if table is not None:
        check_writable(table)
        rows = _read_table(table, seed)
    named = {name for person in people.values() for path in person.files for name in _defined_names(path)}
    wanted = [item for item in assignment.exercises if assignment.chosen or any(map(item.matches, named))]
    if not wanted:
        raise InputError(f"no file in {str(folder)!r} defines a name of an exercise: give the EXERCISE, or --exercises")
    known = {(row.person, row.exercise) for row in rows}
    missing = [person for person in people if any((person, item.name) not in known for item in wanted)]
    work = functools.partial(_mark_person, exercise=exercise, seed=seed, exercises=exercises)
    jobs = [(person, people[person], [item.name for item in wanted]) for person in missing]
    kept = len(rows)
    with counting_bar("people", len(people) - len(missing), len(people), show=show) as advance:
        results = map_in_processes(work, jobs, processes=available_cores(), purpose="checks the answers")
        for marks in results:
            fresh = [mark for mark in marks if (mark.person, mark.exercise) not in known]
            if table is not None:
                _append_rows(table, fresh)
            rows += fresh
            advance()
    return Marks(rows=rows, kept=kept)


def _defined_names(path: Path) -> set[str]:
    """Return the names that a file defines or imports, without running it."""
    try:
        text = path.read_bytes()
        body = ast.parse(text).body
    except OSError:
        return set()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {name for names in NAMES.findall(text.decode("utf-8", "replace")) for name in names if name}
    names = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in body:
        if isinstance(node, ast.ImportFrom):
            names |= {name.asname or name.name for name in node.names}
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


@functools.cache
def _server() -> ForkServer:
    server = ForkServer()
    atexit.register(server.close)
    return server


def _mark_person(
    job: tuple[str, HandedIn, Sequence[str]], *, exercise: str | None, seed: int, exercises: str | Path | None
) -> list[Mark]:
    """Return the marks of one person: for each exercise the file with the most points, and remarks on files."""
    person, handed_in, wanted = job
    assignment = choose_exercises(exercise, seed=seed, exercises=exercises)
    best: dict[str, tuple[ExerciseReport, str]] = {}
    troubles: dict[str, list[str]] = {}
    remarks = [(problem.file, problem.words) for problem in handed_in.problems]
    broken, lost = list[tuple[str, str, set[str]]](), list[tuple[str, str]]()
    for path in handed_in.files:
        name = show_name(str(path.relative_to(handed_in.home)))
        try:
            reports = check_file(path, assignment, server=_server(), home=handed_in.home).exercises
        except NoAnswerError:
            lost.append((name, "contains no answer to an exercise"))
            continue
        except InputError as error:  # the file was removed or exchanged in the meantime
            remarks.append((name, str(error)))
            continue
        for report in reports:
            if not report.object:  # the file cannot be run, which concerns only its own exercises
                # by the names that it defines, or by the name of a stub, such as 03_attention.py
                names = [*_defined_names(path), path.stem.lstrip("0123456789").lstrip("_")]
                answered = [
                    item.name for item in assignment.exercises if assignment.chosen or any(map(item.matches, names))
                ]
                own = set(answered).intersection(wanted)
                for item in own:
                    troubles.setdefault(item, []).append(f"{name} {report.trouble}")
                broken.append((name, report.trouble, own))
            elif report.exercise in wanted and (
                report.exercise not in best or report.points > best[report.exercise][0].points
            ):
                best[report.exercise] = report, name
    remarks += [(name, words) for name, words, own in broken if not own - set(best)] + ([] if best else lost)
    marks = []
    for name in wanted:
        words = "; ".join([NO_ANSWER, *troubles.get(name, [])])
        report, file = begin_report(assignment.find(name), "", seed), ""
        if name in best:
            report, file = best[name]
            state = "" if report.state in ("right", "wrong", "imported") else report.state
            words = ": ".join(filter(None, (state, report.explanation)))
        compared = [case for case in report.cases if case.verdict != "not compared"]
        cases = "; ".join(f"{int(case.verdict == 'right')} {case.name}" for case in compared)
        marks.append(Mark(person, name, report.points, report.inputs, cases, words, file, seed))
    return marks + [Mark(person, FILES, 0, 0, "", words, file, seed) for file, words in remarks]


def _read_table(table: Path, seed: int) -> list[Mark]:
    """Return the rows of an existing table, or nothing."""
    if not table.exists():
        return []
    with table.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        content = list(reader)
    where = f"the table {str(table)!r} exists"
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise InputError(f"{where} with other columns than {', '.join(COLUMNS)}: choose another name")
    try:
        plain: list[dict[str, Any]] = [
            {name: text[text[:1] == "'" and text[1:].startswith(FORMULA) :] for name, text in row.items()}
            for row in content
        ]
        rows = [Mark(**(row | {name: int(row[name]) for name in ("points", "of", "seed")})) for row in plain]
    except (ValueError, TypeError) as error:
        raise InputError(f"{where}, but a row is damaged ({error}): remove the row, or choose another name") from error
    if any(row.seed != seed for row in rows):
        raise InputError(f"{where} with the seed {rows[0].seed}, not {seed}: choose another name, or this --seed")
    return rows


def _append_rows(table: Path, rows: Sequence[Mark]) -> None:
    """Append rows in one write, after the header if the table is new."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if not table.exists() or not table.stat().st_size:
        text.write("\ufeff")  # without it, spreadsheet programs read the file with another encoding
        writer.writerow(COLUMNS)
    for row in rows:
        cells = [escape_controls(str(value)).replace("\n", "\\n") for value in dataclasses.astuple(row)]
        writer.writerow([f"'{cell}" if cell.startswith(FORMULA) else cell for cell in cells])
    with table.open("a", encoding="utf-8", newline="") as file:
        file.write(text.getvalue())


# A page for a teacher: who has done what, and which mistakes are frequent (`regard check FOLDER --page`).

OTHER = "no known mistake: look at the code"
ALTERNATIVES = " or: "
"""Separator of explanations that give the same answers."""
NONE = "-"
STATES: dict[MarkState, tuple[str, str]] = {
    "right": ("all inputs right", "#009e73"),
    "partly": ("some right", "#e69f00"),
    "wrong": ("none right", "#d55e00"),
    "none": ("no answer", "#7f889480"),
    "unreadable": ("cannot be run", "#cc79a7"),
}
"""Name and color of each state in the picture."""
SIGNS = {"right": "✓", "partly": "◐", "wrong": "✗", "unreadable": "!"}
LEGEND = "✓ all inputs right, ◐ some inputs right, ✗ no input right, ! a remark on a file, - no answer or not begun."
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
    """Return the page of a class as one HTML file. folder: the people's answers, where `progress.json` or `course` with
    it may be in a subfolder. seed: of the inputs. exercises: with their known mistakes."""
    now = datetime.now().isoformat(" ", "minutes")
    counts = f"{marks.kept} of the {len(marks.rows)} results"
    old = f" {counts} are from an earlier check and were not checked again." if marks.kept else ""
    parts: list[Part] = [
        Plot(lambda width: _draw_states(marks.rows, width), "Number of people who solved each exercise"),
        " ".join(filter(None, (f"Checked {now} with seed {seed}.{old}", describe_unread(folder), PRIVACY))),
        Markup(f"<h2>Frequent mistakes</h2>\n{_mistakes(marks.rows, exercises)}\n<h2>People</h2>"),
        Markup(_table(marks.rows, find_progress(folder))),
        f"{LEGEND} A click on a heading sorts the table.",
    ]
    return render_page(f"Class: {folder.resolve().name}", parts, read_asset("class.js"))


def _draw_states(rows: Sequence[Mark], width: float) -> "Figure":
    """Draw a bar for each exercise: how many people are right, partly right, wrong, and have not answered."""
    from regard.viz.figure import drawable  # matplotlib is slow to import
    from regard.viz.plots import make_panels

    names = list(dict.fromkeys(row.exercise for row in rows if row.exercise != FILES))
    figure, [axes] = make_panels(1, width, 1.1 + 0.22 * len(names))
    lefts = [0] * len(names)
    for state, (label, colour) in STATES.items():
        counts = [sum(row.state == state for row in rows if row.exercise == name) for name in names]
        axes.barh(range(len(names)), counts, left=lefts, color=colour, label=label)
        lefts = [left + count for left, count in zip(lefts, counts, strict=True)]
    axes.set_yticks(range(len(names)), list(map(drawable, names)))
    axes.set(xlabel="people", ylim=(len(names) - 0.4, -0.6))
    axes.locator_params(axis="x", integer=True)
    figure.legend(loc="outside upper left", ncols=max(int(width // 1.6), 1))
    return figure


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
    titles = ["person", "points", *(("lessons done", "last own check") if progress else ())]
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
            work = progress.get(person, CourseProgress())
            done = [lesson.title for lesson in lessons() if lesson.name in work.lessons]
            checked = max((exercise.checked for exercise in work.exercises.values()), default="")
            time = "".join(filter(str.isdecimal, checked[:16])) or 0
            cells += [
                f'<td data-key="{len(done)}" title="{html.escape(", ".join(done))}">{len(done)}/{len(lessons())}</td>',
                f'<td data-key="{time}" title="{html.escape(checked)}">{html.escape(checked[:10]) or NONE}</td>',
            ]
        cells += [_cell(marks.get((person, name))) for name in names]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    right = [sum(mark.state == "right" for mark in rows if mark.exercise == name) for name in names]
    empty = f'<td colspan="{len(titles) - 1}"></td>'
    totals = ["" if name == FILES else f"{count}/{len(people)}" for name, count in zip(names, right, strict=True)]
    foot = "".join(f'<td class="right">{total}</td>' for total in totals)
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="people and exercises"><table id="class">\n'
        f"<thead><tr>{''.join(map(_head, [*titles, *names]))}</tr></thead>\n"
        f"<tbody>\n{chr(10).join(lines)}\n</tbody>\n"
        f'<tfoot><tr><th scope="row">right</th>{empty}{foot}</tr></tfoot></table></div>'
    )


def _head(name: str) -> str:
    style = "" if name == "person" else ' class="tall"'
    return f'<th scope="col"><button type="button"{style}>{html.escape(name)}</button></th>'


def _cell(mark: Mark | None) -> str:
    if mark is None or mark.state == "none":
        return f'<td class="none" data-key="-1">{NONE}</td>'
    state = mark.state
    points = f" {mark.points}/{mark.of}" if state in ("partly", "wrong") else ""
    return (
        f'<td class="{"wrong" if state == "unreadable" else state}" '
        f'data-key="{mark.points / max(mark.of, 1):.4f}" title="{html.escape(mark.note)}">'
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
        elif row.state == "unreadable" or row.note.startswith(STOPPED):
            note = UNREADABLE if row.state == "unreadable" else row.note
            people[note][row.person].append(row.exercise)
        elif row.state in ("partly", "wrong"):
            for mistake in _name_mistakes(row.note, known.get(row.exercise, set())):
                people[mistake][row.person].append(row.exercise)
    if not people:
        return "<p>No answer is wrong.</p>"
    ranking = sorted(people.items(), key=lambda item: (item[0] == OTHER, -len(item[1]), item[0]))
    lines = []
    for mistake, names in ranking:
        where = dict.fromkeys(exercise for own in names.values() for exercise in own)
        codes = ", ".join(f"<code>{html.escape(exercise)}</code>" for exercise in where)
        lines.append(
            f"<tr><td>{len(names)}</td><td><details><summary>{html.escape(mistake)}</summary>"
            f"<p>{html.escape(', '.join(names))}</p></details></td><td>{codes}</td></tr>\n"
        )
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="mistakes"><table>\n<thead><tr>'
        '<th scope="col">people</th><th scope="col">mistake</th>'
        f'<th scope="col">exercises</th></tr></thead>\n<tbody>\n{"".join(lines)}</tbody></table></div>'
    )


def _name_mistakes(note: str, known: set[str]) -> list[str]:
    """Return the mistakes that a note names, or the first step that differs. Alternatives stay together."""
    if ALTERNATIVES in note or note.startswith(MESSAGES["first"].partition(":")[0]):
        return [note]
    named = [mistake for mistake in known if mistake and mistake in note]
    return [mistake for mistake in named if not any(mistake in other != mistake for other in named)] or [OTHER]
