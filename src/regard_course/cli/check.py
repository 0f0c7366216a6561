"""`regard check FILE.py ... [EXERCISE]`: check a learner's implementation, or a class's."""

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from regard.cli.parsing import parse, wants_help
from regard.cli.terminal import print_message, print_table, raw_output
from regard.errors import InputError, plural
from regard.io import check_writable, refuse_input, write_file
from regard_course.check import NoAnswerError, check_file, choose_exercises, write_stubs
from regard_course.handed_in import describe_unread, find_people, show_name
from regard_course.lessons.lesson import HOME
from regard_course.progress import PROGRESS, record_checks
from regard_course.report import CheckReport, ExerciseReport, State, render_junit
from regard_course.sandbox import Assignment, ForkServer
from regard_course.translated import ENGLISH, say, speak

PROG = "regard check"
DESCRIPTION = (
    "Check your solutions to the exercises: attention, layers, a Transformer, decoding searches, a training "
    "loop. FILE.py has one function or class per exercise, named after the exercise. You may give several files "
    "and folders. EXERCISE names the exercise that FILE.py solves, if the function or class has another name. "
    "The code runs in a separate process, which never receives an expected answer. Incorrect answers are "
    "compared with the answers of common mistakes. With --table or --page, FOLDER has one file or one subfolder "
    "per person. Exit status: 0 if all answers are correct or a class is marked, 1 otherwise."
)
USAGE = f"{PROG} FILE.py|FOLDER ... [EXERCISE]"
WIDTH = 110
SHOWN = 5
"""Number of people in a message."""
STANDARD_OUTPUT = "-"


@dataclass(frozen=True, kw_only=True)
class CheckFlags:
    """Flags of the command."""

    stubs: Path | None = None
    """Write a template for each exercise to this folder, without checking any code."""
    exercises: Path | None = None
    """Python file with exercises of your own in place of the course's. It is run: use only your own."""
    savepath: Path = HOME
    """Directory of the course. If it exists, its index shows the result, as it does for a check on a page."""
    seed: int = 0
    """Seed of the inputs. Another seed draws other inputs of the same kinds."""
    language: str = ENGLISH
    """Language of the report: en, de, or the folder of a translation."""
    table: Path | None = None
    """Check a folder of people's answers, and add their points to this CSV file, whose rows are kept."""
    page: Path | None = None
    """Write the page of a class to this HTML file: who has done what, and the frequent mistakes."""
    json: Path | None = None
    """Also write the report to this JSON file, or print it instead of the text (-)."""
    junit: Path | None = None
    """Also write the report to this JUnit XML file, or print it instead of the text (-)."""


def run_check(argv: list[str]) -> None:
    """Check the files and print the reports. Exits with status 1 if an answer is incorrect."""
    if wants_help(argv):
        parse(CheckFlags(), argv, prog=USAGE, description=DESCRIPTION)
    count = next((index for index, word in enumerate(argv) if word.startswith("-")), len(argv))
    words, flags = argv[:count], parse(CheckFlags(), argv[count:], prog=PROG, description=DESCRIPTION)
    if flags.stubs is not None:
        stubs = write_stubs(flags.stubs, flags.exercises)
        own = "" if flags.exercises is None else f" --exercises {flags.exercises}"
        sys.stdout.write(f"Wrote {len(stubs)} stubs into {flags.stubs}; then: regard check {stubs[0]}{own}\n")
        return
    is_path = bool(words) and (words[-1].endswith(".py") or Path(words[-1]).exists())
    exercise = words.pop() if len(words) > 1 and not is_path else None
    if not words:
        raise InputError(
            f"the file name is missing: give a file, as in `{PROG} attention.py`, or write templates with --stubs DIR"
        )
    if flags.seed < 0:
        raise InputError(f"--seed {flags.seed} must not be negative: choose 0, 1, 2, ...")
    with speak(flags.language):
        if flags.table is not None or flags.page is not None:
            _mark_class(words, exercise, flags)
        elif not _check_files(words, exercise, flags):
            sys.exit(1)


def _check_files(words: list[str], exercise: str | None, flags: CheckFlags) -> bool:
    """Check the files, print and write the reports, and return whether all answers are correct."""
    assignment = choose_exercises(exercise, seed=flags.seed, exercises=flags.exercises)
    files, remarks = _find_files(words)
    for folder in filter(Path.is_dir, map(Path, words)):
        if unread := describe_unread(folder):
            print_message(unread)
    for output in (flags.json, flags.junit):
        if output is not None and str(output) != STANDARD_OUTPUT:
            check_writable(output)
            refuse_input(output, [*files, flags.exercises])
    reports = _check(files, assignment, flags, remarks)
    contents = [report.json() for report in reports]
    _write_json(flags.json, contents if len(contents) > 1 else contents[0])
    _write_text(flags.junit, render_junit(reports).decode())
    if flags.exercises is None and record_checks(flags.savepath, reports):
        print_message(say("recorded in {0}, for the pages of `regard learn`", flags.savepath / PROGRESS))
    return all(report.right for report in reports)


def _write_json(path: Path | None, content: object) -> None:
    _write_text(path, json.dumps(content, ensure_ascii=False, allow_nan=False, indent=2))


def _write_text(path: Path | None, text: str) -> None:
    if str(path) == STANDARD_OUTPUT:
        raw_output().write(f"{text}\n")
    elif path is not None:
        write_file(path, f"{text}\n".encode())


def _find_files(words: list[str]) -> tuple[dict[Path, tuple[Path | None, Path]], list[CheckReport]]:
    """Return the files with their person's folder, and reports on files that are not read or have unusual names."""
    paths: dict[Path, tuple[Path | None, Path]] = {}
    remarks: list[CheckReport] = []
    for word in words:
        path = Path(word)
        if not path.is_dir():
            paths[path] = None, Path()
            continue
        for name, person in find_people(path).items():
            paths |= {file: (person.home, file.relative_to(path.resolve()).parent) for file in person.files}
            for problem in person.problems:
                file = problem.file if problem.file.startswith(name) else f"{name}/{problem.file}"
                state: State = "note" if problem.read else "stopped"
                remark = ExerciseReport(exercise=file, title=file, object="", state=state, trouble=problem.words)
                remarks.append(CheckReport(name=file, exercises=[remark]))
    return paths, remarks


def _check(
    paths: dict[Path, tuple[Path | None, Path]], assignment: Assignment, flags: CheckFlags, remarks: list[CheckReport]
) -> list[CheckReport]:
    """Check the files one by one, and print each report. In a set of files, a file without answers is named."""
    silent = any(str(path) == STANDARD_OUTPUT for path in (flags.json, flags.junit))
    reports: list[CheckReport] = []
    with ForkServer() as server:
        for path, (home, inside) in paths.items():
            try:
                report = check_file(path, assignment, server=server, home=home)
            except NoAnswerError as error:
                if len(paths) == 1:
                    raise
                print_message(str(error).partition(":")[0])
                continue
            reports.append(replace(report, name=str(inside / report.name)))
            if silent:
                continue
            if len(paths) > 1:
                sys.stdout.write(f"{path.parent / show_name(path.name)}\n")
            print_table(report.table(), WIDTH)
            if len(paths) > 1:
                sys.stdout.write("\n")
    if not reports:
        raise InputError(say("none of the {0} files contains an answer to an exercise", len(paths)))
    if not silent:
        for remark in remarks:
            print_table(remark.table(), WIDTH)
    return reports + remarks


def _mark_class(words: list[str], exercise: str | None, flags: CheckFlags) -> None:
    """Check a folder of people's answers, and write the table and the page of the class."""
    from regard_course.marks import find_progress, mark_folder, render_class  # imports PyTorch, which takes seconds

    flag = "--table" if flags.table is not None else "--page"
    if len(words) != 1:
        raise InputError(f"{flag} needs one folder, not {len(words)} files: move the answers into one folder")
    if flags.language != ENGLISH:
        raise InputError(f"{flag} writes English: leave out --language {flags.language}")
    if flags.junit is not None:
        raise InputError(f"{flag} writes no JUnit file: leave out --junit, or check the folder without {flag}")
    folder = Path(words[0])
    if flags.page is not None:
        check_writable(flags.page)
        find_people(folder)
        find_progress(folder)  # an error is found before the answers are checked
    marks = mark_folder(folder, flags.table, exercise, seed=flags.seed, exercises=flags.exercises, show=True)
    if marks.kept:
        people = list(dict.fromkeys(row.person for row in marks.rows[: marks.kept]))
        shown = ", ".join(people[:SHOWN]) + (", ..." if len(people) > SHOWN else "")
        print_message(
            f"{flags.table}: rows 1 to {marks.kept} ({shown}) are old and were not checked again; delete the "
            f"file to check everything again"
        )
    if unread := describe_unread(folder):
        print_message(unread)
    _write_json(flags.json, marks.json())
    if flags.page is not None:
        exercises = choose_exercises(exercise, exercises=flags.exercises).exercises
        write_file(flags.page, render_class(marks, folder, seed=flags.seed, exercises=exercises).encode())
    if str(flags.json) == STANDARD_OUTPUT:
        return
    print_table(marks.table(), WIDTH)
    if flags.table is not None:
        sys.stdout.write(f"Wrote {plural(len(marks.rows) - marks.kept, 'row')} to {flags.table}\n")
    if flags.page is not None:
        sys.stdout.write(f"Wrote the page of the class to {flags.page}\n")
