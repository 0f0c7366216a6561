"""What can go wrong, as one small family.

    RegardError
    ├── InputError      what was asked for cannot be done as asked; exit status 2
    │   └── EditedError     a run's file was edited, or belongs to another run
    └── MachineError    the machine failed (disk, permissions); exit status 1

Every message is one line that names the value, the limit and the fix.
"""

import re
from collections.abc import Iterable
from typing import Literal, get_args, get_origin, get_type_hints

MANY = 12
"""Choices above which only the nearest one is named."""


class RegardError(Exception):
    """Base of all errors that Regard raises on purpose; `exit_status` is what the command line returns."""

    exit_status = 1


class InputError(RegardError):
    """A value, a flag, a file or a combination of them that cannot work."""

    exit_status = 2


class EditedError(InputError):
    """A file of a run that was edited, or belongs to another run; `found` says what differs, without advice."""

    def __init__(self, found: str, advice: str) -> None:
        super().__init__(f"{found}; {advice}")
        self.found = found


class MachineError(RegardError):
    """The machine could not do it: a full disk, a file that cannot be written."""

    exit_status = 1


def check_range(name: str, value: int, low: int, high: int) -> None:
    """Raise `InputError` unless `value` is a whole number with `low` <= `value` <= `high`."""
    if not isinstance(value, int):
        raise InputError(f"{name} {value!r} is no whole number: choose from {low} to {high}")
    if not low <= value <= high:
        raise InputError(f"{name} {value} is out of range: choose from {low} to {high}")


def check_share(name: str, value: float, *, below: bool = False) -> None:
    """Raise `InputError` unless `value` is from 0 to 1, with `below` to below 1."""
    if not 0 <= value <= 1 or (below and value == 1):
        raise InputError(f"{name} {value} is out of range: choose from 0 to {'below ' if below else ''}1")


def check_choices(config: object) -> None:
    """Raise `InputError` where a field of a dataclass that has a few choices is none of them."""
    for name, hint in get_type_hints(type(config)).items():
        choices = [
            each for part in (hint, *get_args(hint)) if get_origin(part) is Literal for each in get_args(part)
        ]
        value = getattr(config, name, None)
        if choices and value not in choices and not (value is None and type(None) in get_args(hint)):
            raise unknown_choice(name, str(value), map(str, choices))


def unknown_choice(what: str, name: str, choices: Iterable[str], other: str = "") -> InputError:
    """Return the error that says that no `what` is called `name`, which there are, and the nearest of them.

    `other`: what may be given besides, such as a class of one's own.
    """
    from difflib import get_close_matches  # which `import regard` need not wait for

    known = list(choices)
    near = get_close_matches(name, known, n=1)
    meant = f"did you mean {near[0]}?" if near else ""
    if meant and len(known) > MANY:
        return InputError(f"{what} {name!r} is unknown: {meant}")
    offered = f"choose {', '.join(known) or 'none'}{f' or {other}' if other else ''}"
    return InputError(f"{what} {name!r} is unknown: {offered}{f'; {meant}' if meant else ''}")


def shorten(text: str, most: int = 40) -> str:
    """Return a text as an error shows it: quoted, and no more than its beginning."""
    return repr(text if len(text) <= most else f"{text[:most]}…")


_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def one_line(error: BaseException, most: int) -> str:
    """Return the kind and text of an error in one line of at most `most` characters."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def escape_controls(text: str) -> str:
    """Return a text with its control characters, line separators and changes of direction written out.

    Tabs and newlines stay. `escape_controls("a\x1b[2J")` is `"a\\x1b[2J"`.
    """
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
