"""The types of the view's data are equal in Python and JavaScript."""

import re
import types
import typing
from typing import Any

import numpy as np
import pytest

from regard.viz import data
from regard.viz.page import VIEW
from regard.viz.serialization import map_data
from tests.viz.test_terminal import example

SHAPES = {name: each for name, each in vars(data).items() if typing.is_typeddict(each)}
NAMES = {
    str: "string",
    bool: "boolean",
    int: "number",
    float: "number",
    type(None): "null",
    np.ndarray: "number[][][]",
}


def in_javascript(kind: Any) -> str:
    """Return the JSDoc type of a Python type; the members of a union are in alphabetical order."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return union(f'"{part}"' for part in parts)
    if origin in (typing.Union, types.UnionType):
        return union(in_javascript(part) for part in parts)
    if origin is list:
        return f"{in_javascript(parts[0])}[]"
    if origin is dict:
        return f"Record<{in_javascript(parts[0])}, {in_javascript(parts[1])}>"
    return kind.__name__ if typing.is_typeddict(kind) else NAMES[kind]


def union(parts: typing.Iterable[str]) -> str:
    return " | ".join(sorted(" | ".join(parts).split(" | ")))


def documented() -> dict[str, dict[str, str]]:
    """Return the typedefs of `data.js`: by name, the type of each property, with "?" if the property is
    optional.
    """
    found: dict[str, dict[str, str]] = {}
    for block in re.findall(r"/\*\*(.*?)\*/", (VIEW / "data.js").read_text(encoding="utf-8"), re.DOTALL):
        [name] = re.findall(r"@typedef \{object\} (\w+)", block)
        assert name not in found
        lines = [line for line in block.splitlines() if "@property" in line]
        read = [re.fullmatch(r" \* @property \{(.+)\} (\[?)(\w+)\]?", line) for line in lines]
        assert all(read), name
        found[name] = {each[3]: union([each[1]]) + "?" * bool(each[2]) for each in read if each}
    return found


def test_the_same_shapes() -> None:
    assert set(documented()) == set(SHAPES) and len(SHAPES) == 17


@pytest.mark.parametrize("name", SHAPES)
def test_the_same_properties(name: str) -> None:
    shape = SHAPES[name]
    expected = {
        key: in_javascript(kind) + "?" * (key in shape.__optional_keys__)
        for key, kind in typing.get_type_hints(shape).items()
    }
    assert documented()[name] == expected


@pytest.mark.parametrize("packed", [True, False])
def test_a_map_has_its_shape(packed: bool) -> None:
    stored = map_data(example(), packed=packed)
    assert set(stored) == data.MapData.__required_keys__
    [layer] = stored["layers"]
    assert set(layer) == data.LayerData.__required_keys__
    if packed:
        assert set(layer["weights"]) == data.PackedWeights.__required_keys__
