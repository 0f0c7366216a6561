"""The data of the view has the declared types."""

import pytest

from regard.viz.page import LayerData, MapData, PackedWeights, map_data
from tests.viz.test_terminal import example
from tests.viz.view_types import SHAPES, type_definitions


def test_every_shape_has_a_type() -> None:
    text = type_definitions()
    assert len(SHAPES) == 17 and all(f"export type {name} = {{" in text for name in SHAPES)
    assert "  importance?: Record<string, WorthData[]>;\n" in text
    assert '  kind: "encoder" | "decoder" | "cross";\n' in text and "  relevant: number[][] | null;\n" in text


@pytest.mark.parametrize("packed", [True, False])
def test_a_map_has_its_shape(packed: bool) -> None:
    stored = map_data(example(), packed=packed)
    assert set(stored) == MapData.__required_keys__
    [layer] = stored["layers"]
    assert set(layer) == LayerData.__required_keys__
    if packed:
        assert set(layer["weights"]) == PackedWeights.__required_keys__
