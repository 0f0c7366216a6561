"""Metrics on disk: a line of JSON for each step that was told of."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from regard.io.reading import DamageError, convert_json, damaged_file, is_file, parse_json, read_bytes


class _Line(msgspec.Struct):
    """What every line has, among others."""

    step: Annotated[int, msgspec.Meta(ge=1)]
    loss: float
    exact_match: float


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file of metrics, without a last one that a crash cut short; none where there is no
    file.

    Raises `InputError` where another line is damaged, or does not come after the one before it.
    """
    if not is_file(path):
        return []
    found = []
    for number, line in enumerate(read_bytes(path).split(b"\n")[:-1], start=1):
        try:
            found.append(convert_json(parse_json(line), dict[str, int | float]))
            convert_json(found[-1], _Line)
            if number > 1 and found[-1]["step"] <= found[-2]["step"]:
                raise DamageError(f"step {found[-1]['step']} does not come after step {found[-2]['step']}")
        except DamageError as error:
            mend = "restore a copy, or cut it before that line"
            raise damaged_file(path, f"line {number}: {error}", mend) from error
    return found


def lost_steps(lines: Sequence[Mapping[str, Any]], step: int, steps: int, every: int) -> list[int]:
    """Return the steps up to `step` whose lines are missing, of a training over `steps` that writes a line at
    every so many and at the last."""
    expected = {*range(every, step + 1, every), *({step} & {steps})}
    return sorted(expected - {line["step"] for line in lines})
