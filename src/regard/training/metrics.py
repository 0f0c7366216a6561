"""Metrics on disk: a line of JSON for each step that was told of."""

from pathlib import Path
from typing import Annotated, Any

import msgspec

from regard.reading import DamageError, damaged, is_file, parse_json, read_bytes, shaped


class _Line(msgspec.Struct):
    """What every line has, among others."""

    step: Annotated[int, msgspec.Meta(ge=1)]
    loss: float
    exact_match: float


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file of metrics, without a last one that a crash cut short; none where there is no
    file.

    Raises `InputError` where another line is damaged.
    """
    if not is_file(path):
        return []
    found = []
    for number, line in enumerate(read_bytes(path).split(b"\n")[:-1], start=1):
        try:
            found.append(shaped(parse_json(line), dict[str, int | float]))
            shaped(found[-1], _Line)
        except DamageError as error:
            mend = "restore a copy, or cut it before that line"
            raise damaged(path, f"line {number}: {error}", mend) from error
    return found
