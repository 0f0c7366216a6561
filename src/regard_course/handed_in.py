"""The files that the people of a class handed in. No link out of a person's folder is followed, and only regular files
are opened: a pipe would block."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import regard.io
from regard.errors import InputError
from regard_course.inputs import MESSAGES
from regard_course.lessons.lesson import HOME
from regard_course.progress import PROGRESS
from regard_course.translated import say

IGNORED = ("__pycache__", "node_modules", "site-packages")
KINDS = regard.io.KINDS | {stat.S_IFIFO: "a pipe (FIFO)", stat.S_IFDIR: "a folder in place of a file"}
MAX_NAME, MAX_PROBLEMS, MAX_SHOWN = 60, 20, 5
READ = (".py", ".PY", ".Py", ".ipynb")
"""Endings of names that are read, or are mentioned one by one."""
MAX_BYTES = 10_000_000
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a cell that a spreadsheet would run as a formula."""


class Problem(NamedTuple):
    """A file that is not read, or whose name is unusual."""

    file: str
    words: str
    """Continuation of the file's name."""
    read: bool = False


@dataclass
class HandedIn:
    """The files of one person."""

    home: Path
    """The person's folder, or the class's folder if the person has one file. Without links."""
    files: list[Path] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def add_problem(self, path: Path, words: str, *, read: bool = False) -> None:
        """Add a problem, up to `MAX_PROBLEMS` and a last one that says so."""
        name = show_name(os.path.relpath(path, self.home))
        more = len(self.problems) == MAX_PROBLEMS
        self.problems += [Problem(name, say("and more files have problems") if more else words, read)]
        del self.problems[MAX_PROBLEMS + 1 :]

    def add_file(self, path: Path) -> None:
        """Add a file, or the reason why it is not read."""
        if _kind(path) == stat.S_IFLNK:
            try:
                target = path.resolve(strict=True)
            except (OSError, RuntimeError):  # it leads nowhere, or to itself
                target = None
            if target is None:
                self.add_problem(path, say("is a link that leads nowhere"))
            elif not target.is_relative_to(self.home):
                self.add_problem(path, say("is a link that leaves the person's folder: not followed"))
            elif _kind(target) == stat.S_IFDIR:
                self.add_problem(path, say("is a link to a folder: not followed"))
            elif path.suffix == ".py" != target.suffix and _kind(target) == stat.S_IFREG:
                self.add_problem(path, say("is a link to a file that does not end in .py: not read"))
            elif path.suffix == ".py" or _kind(target) != stat.S_IFREG:
                self.add_file(target)
            return
        words = file_problem(path)
        if words and (path.suffix == ".py" or _kind(path) != stat.S_IFREG):
            self.add_problem(path, say("{0}: not read", words))
        elif path.suffix == ".py" and path not in self.files:
            self.files.append(path)
            if odd := odd_name(path.name):
                self.add_problem(path, odd, read=True)
        elif path.suffix in READ[1:]:
            self.add_problem(path, say("does not end in .py: not read"))


def show_name(name: str) -> str:
    """Return a file's name as printable text of at most `MAX_NAME` characters.

    >>> show_name("a\\x1b[2J.py")
    'a\\\\x1b[2J.py'
    """
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)
    return shown if len(shown) <= MAX_NAME else f"{shown[: MAX_NAME - 11]}…{shown[-10:]}"


def odd_name(name: str) -> str:
    """Return how the name of a file is unusual, or an empty text."""
    if not name.isprintable():
        return say("has characters in its name that cannot be printed: they are escaped here")
    if name.startswith(FORMULA):
        return say("has a name that a spreadsheet runs as a formula: the CSV table has ' before it")
    return say(MESSAGES["long_name"], len(name)) if len(name) > MAX_NAME else ""


def file_problem(path: Path) -> str:
    """Return why a path is not a file that can be read, or an empty text. Opens regular files only."""
    try:
        status = path.stat()
        if kind := KINDS.get(stat.S_IFMT(status.st_mode)):
            return say("is {0}", say(kind))
        if status.st_size > MAX_BYTES:
            return say("has more than {0} MB", MAX_BYTES // 10**6)
        os.close(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)))
    except OSError as error:
        return say("cannot be read ({0})", error.strerror)
    return ""


def find_people(folder: Path) -> dict[str, HandedIn]:
    """Return the files of each person: a Python file, or the Python files of a subfolder. Hidden folders and
    virtual environments are omitted. Raises `InputError` if no file can be read."""
    if not folder.is_dir():
        raise InputError(f"{str(folder)!r} is not a folder: give the folder with one file or subfolder per person")
    people: dict[str, HandedIn] = {}
    names: dict[str, str] = {}
    whole = folder.resolve()
    for entry in _entries(whole):
        person = HandedIn(entry if _is_folder(entry) else whole)
        if person.home == entry:
            if odd := odd_name(entry.name):
                person.problems.append(Problem(show_name(entry.name), odd, read=True))
            _add_files(person)
        elif _kind(entry) == stat.S_IFLNK:  # a link to another person's file does not leave the class's folder
            person.add_problem(entry, say("is a link: not followed"))
        else:
            person.add_file(entry)
        if not person.files and not person.problems:
            if person.home != entry:
                continue
            person.problems.append(Problem(show_name(entry.name), say("contains no Python file")))
        own = entry.stem if entry.suffix == ".py" else entry.name
        if own not in names:
            shown = show_name(own)
            while shown in people:  # two unusual names that look alike
                shown += "'"
            names[own] = shown
        known = people.setdefault(names[own], person)
        if known is not person:
            people[names[own]] = HandedIn(whole, known.files + person.files, known.problems + person.problems)
    if not any(person.files for person in people.values()):
        problems = [problem for person in people.values() for problem in person.problems]
        words = "".join(f"; {problem.file} {problem.words}" for problem in problems[:1])
        raise InputError(
            f"{str(folder)!r} contains no Python file: one file or one subfolder per person is needed{words}"
        )
    return people


def describe_unread(folder: Path) -> str:
    """Return which files of a class are not read because of their names, in one line, or an empty text."""
    names = list[str]()
    for home, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in (*IGNORED, HOME.name))
        for path in (Path(home, name) for name in sorted(files) if not name.startswith(".") and name != PROGRESS):
            if path.suffix not in READ and _kind(path) == stat.S_IFREG:
                names.append(str(path.relative_to(folder)))
    shown = ", ".join(map(show_name, names[:MAX_SHOWN])) + (", ..." if len(names) > MAX_SHOWN else "")
    return say("Not read, because the name does not end in .py: {0} ({1}).", shown, len(names)) if names else ""


def _add_files(person: HandedIn) -> None:
    pending = [person.home]
    while pending:
        folder = pending.pop(0)
        try:
            entries = list(_entries(folder))
        except OSError as error:
            person.add_problem(folder, say("{0}: not read", say("cannot be read ({0})", error.strerror)))
            continue
        if (folder / "pyvenv.cfg").exists():
            continue
        for entry in entries:
            if _is_folder(entry):
                pending.append(entry)
            else:
                person.add_file(entry)


def _is_folder(path: Path) -> bool:
    """Return whether a path is a folder whose files are read: no link, and without the name of a Python file."""
    return _kind(path) == stat.S_IFDIR and path.suffix != ".py"


def _kind(path: Path) -> int:
    """Return the kind of a file, as in `KINDS`, without following a link; 0 if it is unknown."""
    try:
        return stat.S_IFMT(path.lstat().st_mode)
    except OSError:
        return 0


def _entries(folder: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if not entry.name.startswith(".") and entry.name not in IGNORED:
            yield entry
