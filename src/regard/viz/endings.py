"""What a file's ending asks for."""

from collections.abc import Sequence
from pathlib import Path

from regard.errors import InputError

PICTURES = (".png", ".svg", ".pdf")
PAGE = ".html"


def check_ending(path: Path, endings: Sequence[str] = (*PICTURES, PAGE)) -> None:
    """Raise `InputError` unless `path` ends as one of `endings`, in whatever case."""
    if path.suffix.lower() not in endings:
        raise InputError(f"plot {str(path)!r} has no known ending: choose one of {', '.join(endings)}")
