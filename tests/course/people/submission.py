"""A file that a person could hand in, with the faults that are in it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Submission:
    """An answer to one exercise."""

    exercise: str
    source: str
    faults: tuple[str, ...] = ()
    """The faults in the author's words; none for a correct answer."""


def edit(source: str, *changes: tuple[str, str]) -> str:
    """Return a source with texts replaced. Each old text must occur."""
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    return source
