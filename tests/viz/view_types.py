"""Write the types of the data in `regard.viz.page` as TypeScript, for the type checker of the view:
`python tests/viz/view_types.py FILE`."""

import sys
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.viz import maps, page

SUMS = {
    maps.ScoreStep: "StepData",
    maps.LayerIntermediates: "LayerSumsData",
    maps.AnswerIntermediates: "AnswerData",
    maps.Intermediates: "SumsData",
}
"""Intermediate values, whose arrays are packed as `NumbersData`."""
NAMES = {
    str: "string",
    bytes: "string | [number, number]",
    bool: "boolean",
    int: "number",
    float: "number",
    type(None): "null",
    np.ndarray: "number[][][]",
    dict[str, Any]: "SumsData",
    tuple[int, int]: "number[]",
    **SUMS,
}
SHAPES: dict[str, Any] = {name: kind for name, kind in vars(page).items() if typing.is_typeddict(kind)}
SHAPES |= {name: kind for kind, name in SUMS.items()}


def in_typescript(kind: Any) -> str:
    """Return the TypeScript type of a Python type.

    >>> in_typescript(list[int] | None)
    'number[] | null'
    """
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind in NAMES:
        return NAMES[kind]
    if origin is typing.Literal:
        return " | ".join(f'"{part}"' for part in parts)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(in_typescript, parts))
    if origin in (list, Sequence):
        return f"{in_typescript(parts[0])}[]"
    if origin is dict:
        return f"Record<{in_typescript(parts[0])}, {in_typescript(parts[1])}>"
    assert typing.is_typeddict(kind), kind
    return str(kind.__name__)


def type_definitions() -> str:
    """Return an exported type for each shape."""
    lines = []
    for name, shape in SHAPES.items():
        lines.append(f"export type {name} = {{")
        for key, kind in typing.get_type_hints(shape).items():
            text = in_typescript(kind)
            text = text.replace("number[][][]", "NumbersData") if shape in SUMS else text
            lines.append(f"  {key}{'?' * (key in getattr(shape, '__optional_keys__', ()))}: {text};")
        lines.append("};")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(type_definitions(), encoding="utf-8")
