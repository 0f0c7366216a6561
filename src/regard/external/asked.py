"""What is asked of a model that was not built here: its inputs, and what they are called.

A text is called by itself, a file by its name, and anything else by its kind and its number among the inputs.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import InputError, shorten
from regard.external.pictures import Pictures

BETWEEN = " ||| "
"""What stands between a source and its target."""


class Asked(NamedTuple):
    """One input: a text and its target, where there is one; or anything else that a reader of one's own takes."""

    given: Any
    target: str | None = None

    @property
    def text(self) -> str:
        """What it is called."""
        if self.target is not None:
            return f"{self.given}{BETWEEN}{self.target}"
        if isinstance(self.given, Path):
            return self.given.name
        return self.given if isinstance(self.given, str) else type(self.given).__name__


def asked_of(given: Any) -> Asked:
    """Return an input however it was given: a text, `source ||| target`, or a pair of both."""
    if isinstance(given, Asked):
        return given
    if isinstance(given, str):
        source, between, target = f" {given} ".partition(BETWEEN)
        return pair_of(source.strip(), target.strip()) if between else Asked(given)
    if isinstance(given, tuple) and len(given) == 2 and all(isinstance(each, str) for each in given):
        return pair_of(*given)
    return Asked(given)


def pair_of(source: Any, target: str) -> Asked:
    """Return a source and its target; raises `InputError` where one of them is empty."""
    if isinstance(source, str) and not source.strip():
        raise InputError(f"no source stands before target {shorten(target)}: type source{BETWEEN}target")
    if not target.strip():
        raise InputError("target is empty: type one, or leave it out")
    return Asked(source, target)


def all_asked(inputs: Any) -> tuple[Asked, ...]:
    """Return some inputs, or one text; raises `InputError` for what is neither."""
    if isinstance(inputs, str):
        return (asked_of(inputs),)
    if not isinstance(inputs, Iterable):
        raise InputError(f"inputs {shorten(str(inputs))} are no list: give one, as in ['The cat sat']")
    return tuple(map(asked_of, inputs))


def name_of(inputs: Sequence[Asked], number: int) -> str:
    """Return what one of some inputs is called, unlike the others."""
    asked = inputs[number]
    alike = [each.text for each in inputs].count(asked.text) > 1 and not isinstance(asked.given, str)
    return f"{asked.text} {number}" if alike else asked.text


def find_asked(inputs: Sequence[Asked], input: Any) -> Asked:
    """Return an input however it was given: also by what one of `inputs` is called."""
    for number, each in enumerate(inputs if isinstance(input, str) else ()):
        if not isinstance(each.given, str) and name_of(inputs, number) == input:
            return each
    return asked_of(input)


def check_given(asked: Asked, pictures: Pictures | None) -> None:
    """Raise `InputError` for a picture that is asked for by its name and is not there: whoever types on a page
    does not come to read files by that."""
    if pictures is not None and isinstance(asked.given, str) and asked.given not in pictures.album:
        raise InputError(f"picture {asked.given!r} is not here: choose a file, PNG or JPEG")
