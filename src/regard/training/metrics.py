"""Metrics of a training run: a file with one JSON object per line."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from regard.io.reading import DamageError, convert_json, damaged_file, is_file, parse_json, read_bytes


class _Line(msgspec.Struct):
    """Required fields of a line. A line may have additional fields."""

    step: Annotated[int, msgspec.Meta(ge=1)]
    loss: float
    exact_match: float


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a metrics file, without a truncated last line. Returns an empty list without a file.

    Raises `InputError` if a line before the last line is damaged, or if the steps do not increase.
    """
    if not is_file(path):
        return []
    lines: list[dict[str, Any]] = []
    for number, line in enumerate(read_bytes(path).split(b"\n")[:-1], start=1):
        try:
            lines.append(convert_json(parse_json(line), dict[str, int | float]))
            convert_json(lines[-1], _Line)
            if number > 1 and lines[-1]["step"] <= lines[-2]["step"]:
                raise DamageError(f"step {lines[-1]['step']} does not come after step {lines[-2]['step']}")
        except DamageError as error:
            mend = "restore a copy, or delete that line and all later lines"
            raise damaged_file(path, f"line {number}: {error}", mend) from error
    return lines


def missing_steps(lines: Sequence[Mapping[str, Any]], step: int, steps: int, every: int) -> list[int]:
    """Return the steps up to `step` whose lines are missing. A line is expected for every multiple of `every`,
    and for the last of all `steps`.

    >>> missing_steps([{"step": 10}, {"step": 30}], step=30, steps=30, every=10)
    [20]
    """
    expected = {*range(every, step + 1, every), *({step} & {steps})}
    return sorted(expected - {line["step"] for line in lines})
