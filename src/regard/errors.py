"""Exceptions raised by Regard.

    RegardError
    ├── InputError      the input is invalid; exit status 2
    │   └── EditedError     a file of a run was edited, or belongs to another run
    └── MachineError    the machine failed (disk, permissions); exit status 1

Each message is one line with the value, the expected values and a solution.
"""

import copyreg
import re
from collections.abc import Iterable
from typing import Any

MAX_LISTED = 12
"""Largest number of choices listed in a message. With more choices, a message contains only the nearest choice."""


PACKAGES = ("regard", "regard_lab", "regard_course")  # Packages of this distribution


def is_own(module: str) -> bool:
    """Return whether the name of a module belongs to Regard.

    >>> is_own("regard_lab.bench"), is_own("regardless")
    (True, False)
    """
    return module.partition(".")[0] in PACKAGES


class RegardError(Exception):
    """Base class of Regard's exceptions. `exit_status` is the exit status of the command."""

    exit_status = 1

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors are pickled to be sent between processes. By default, unpickling calls the class with only the
        # message, which fails for subclasses with other arguments.
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


class InputError(RegardError):
    """An invalid value, flag or file, or an invalid combination of flags."""

    exit_status = 2


class EditedError(InputError):
    """A file of a run was edited or belongs to another run. `found`: description of the difference."""

    def __init__(self, found: str, advice: str) -> None:
        super().__init__(f"{found}; {advice}")
        self.found = found


class MachineError(RegardError):
    """A failure of the machine, such as a full disk or a file that cannot be written."""

    exit_status = 1


def check_range(name: str, value: int, low: int, high: int) -> None:
    """Raise `InputError` unless `value` is an integer from `low` to `high`.

    >>> check_range("steps", 10, 1, 100)
    """
    if not isinstance(value, int):
        raise InputError(f"{name} {value!r} is not a whole number: choose from {low} to {high}")
    if not low <= value <= high:
        raise InputError(f"{name} {value} is out of range: choose from {low} to {high}")


def unknown_choice(what: str, name: str, choices: Iterable[str], other: str = "") -> InputError:
    """Return an error for an unknown name. The message lists the choices, or contains the nearest choice.

    `what`: kind of the name, such as "score". `other`: additional accepted form, such as "module:Class".

    >>> print(unknown_choice("score", "dott", ["dot", "additive"]))
    score 'dott' is unknown: choose dot, additive; did you mean dot?
    """
    from difflib import get_close_matches  # local import, to keep `import regard` fast

    known = list(choices)
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else ""
    if hint and len(known) > MAX_LISTED:
        return InputError(f"{what} {name!r} is unknown: {hint}")
    listed = f"choose {', '.join(known) or 'none'}{f' or {other}' if other else ''}"
    return InputError(f"{what} {name!r} is unknown: {listed}{f'; {hint}' if hint else ''}")


def shorten(text: str, most: int = 40) -> str:
    """Return the quoted beginning of a text for a message.

    >>> shorten("abcdef", 3)
    "'abc…'"
    """
    return repr(text if len(text) <= most else f"{text[:most]}…")


def plural(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> plural(1, "line"), plural(1200, "line")
    ('1 line', '1,200 lines')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"


_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def one_line(error: BaseException, most: int) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def escape_controls(text: str) -> str:
    """Escape control characters, line separators and changes of text direction, except tabs and newlines.

    >>> escape_controls("a\\x1b[2J")
    'a\\\\x1b[2J'
    """
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
