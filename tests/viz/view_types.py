"""Write the types of the data in `regard.viz.serialization` as TypeScript, for the type checker of the view:
`python tests/viz/view_types.py FILE`."""

import sys
import types
import typing
from pathlib import Path
from typing import Any

import numpy as np

from regard.viz import serialization

NAMES = {
    str: "string",
    bool: "boolean",
    int: "number",
    float: "number",
    type(None): "null",
    np.ndarray: "number[][][]",
}
SHAPES = {name: kind for name, kind in vars(serialization).items() if typing.is_typeddict(kind)}


def in_typescript(kind: Any) -> str:
    """Return the TypeScript type of a Python type.

    >>> in_typescript(list[int] | None)
    'number[] | null'
    """
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return " | ".join(f'"{part}"' for part in parts)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(in_typescript, parts))
    if origin is list:
        return f"{in_typescript(parts[0])}[]"
    if origin is dict:
        return f"Record<{in_typescript(parts[0])}, {in_typescript(parts[1])}>"
    return kind.__name__ if typing.is_typeddict(kind) else NAMES[kind]


def type_definitions() -> str:
    """Return an exported type for each shape."""
    lines = []
    for name, shape in SHAPES.items():
        lines.append(f"export type {name} = {{")
        for key, kind in typing.get_type_hints(shape).items():
            lines.append(f"  {key}{'?' * (key in shape.__optional_keys__)}: {in_typescript(kind)};")
        lines.append("};")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(type_definitions(), encoding="utf-8")
